"""A base image of Debian's, made here: debootstrap's smallest tree, with this machine's mirrors.

How this machine reaches package archives and wheels (mirrors, pip's settings, certificates) is
given to a build from outside, never written into the tree.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from manifests.image import cache

INSIDE = Path("/etc/machine-certificates.pem")


def missing() -> str:
    """Why no Containerfile can be built here; empty if it can."""
    absent = [name for name in ("buildah", "debootstrap", "runc") if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)} (apt-get install {' '.join(absent)})" * bool(absent)


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite of the machine's Debian archives."""

    address: str
    name: str
    component: str
    codename: str


def suites() -> list[Suite]:
    """Where apt on this machine gets Debian from, the release first."""
    fields = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(CODENAME)|$(ORIGIN)"
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = [line.split("|") for line in listed.splitlines()]
    return [Suite(*one[:4]) for one in found if one[4] == "Debian"]


def archive() -> Path:
    """The base image's tree as a tar file; made once, kept in the cache."""
    mirrors = suites()
    release = next(one for one in mirrors if one.name == one.codename)
    place = cache.folder("image", "base") / f"{cache.key([str(one) for one in mirrors])}.tar"
    if place.exists():
        return place
    folder = Path(f"{place}.{release.name}")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        command = ["debootstrap", "--variant=minbase", release.name, str(folder), release.address]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        lines = [f"deb {one.address} {one.name} {one.component}\n" for one in mirrors]
        (folder / "etc/apt/sources.list").write_text("".join(lines))
        for left in (folder / "var/cache/apt/archives").glob("*.deb"):
            left.unlink()
        fresh = place.with_suffix(".new")
        subprocess.run(["tar", "-C", folder, "-cf", fresh, "."], check=True)
        fresh.replace(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return place


def machine(folder: Path) -> list[str]:
    """The options of a build that lend it pip's settings of this machine, and its certificates."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    kept = {name.rpartition(".")[2]: value.strip("'") for name, value in settings.items()}
    mounts: list[tuple[Path, Path]] = []
    if certificates := kept.get("cert"):
        mounts.append((Path(certificates).resolve(), INSIDE))
        kept["cert"] = str(INSIDE)
    if Path(kept.get("find-links", "")).is_absolute():
        mounts.append((Path(kept["find-links"]), Path(kept["find-links"])))
    written = folder / "pip.conf"
    text = "".join(f"{name} = {value}\n" for name, value in sorted(kept.items()))
    written.write_text(f"[global]\n{text}")
    mounts.append((written, Path("/etc/pip.conf")))
    given = [f"--volume={here}:{there}:ro" for here, there in mounts if here.exists()]
    return sorted(given)
