"""Wheels: those that constraints.txt pins, by their hashes, and our own; unpacked into a tree."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from manifests.image import cache
from manifests.image.cache import BuildError
from manifests.image.tree import Tree, file

ROOT = Path(__file__).parents[2]
LEFT_OUT = frozenset({"kubernetes"})
"""What neither an image nor calicoctl as one file has, nor what it alone needs: 150 MB, for the
kubeconfigs of people; an agent has its service account."""

_OURS = ("pyproject.toml", "build_hook.py", "README.md", "LICENSE")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel: what its metadata says, its file's hash, and its files."""

    name: str
    version: str
    license: str
    sha256: str
    content: bytes


def project(root: Path = ROOT) -> dict[str, object]:
    """The table `project` of pyproject.toml."""
    table = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert isinstance(table, dict)
    return table


def runtime(extra: str = "") -> list[str]:
    """The names of all packages that what we build needs at run time, without LEFT_OUT.

    `extra`: one of ours, whose packages are needed as well.
    """
    done: set[tuple[str, str]] = set()
    asked = [("muslin", name) for name in {"", extra}]
    while asked:
        one = asked.pop()
        if one not in done and one[0] not in LEFT_OUT:
            done.add(one)
            asked += _needs(*one)
    return sorted({name for name, _ in done} - {"muslin"})


def _needs(name: str, extra: str) -> list[tuple[str, str]]:
    """What an installed package requires here, with an extra of its own: names and their extras."""
    wanted = [Requirement(line) for line in metadata.requires(name) or ()]
    return [
        (canonicalize_name(one.name), asked)
        for one in wanted
        if one.marker is None or one.marker.evaluate({"extra": extra})
        for asked in ("", *one.extras)
    ]


def pinned(python: str, glibc: int, extra: str = "") -> list[Wheel]:
    """The wheels of others for CPython `python` (as "3.11") and glibc 2.`glibc`, verified by pip.

    Raises BuildError with pip's own words, as when there is no wheel for that Python.
    """
    chosen = pins(extra)
    machine = platform.machine()
    store = cache.folder("image", "wheels", cache.key(chosen, python, glibc, machine))
    if len(list(store.glob("*.whl"))) != len(chosen):
        _download("\n".join(chosen), python, glibc, store)
    return [_read(path) for path in sorted(store.glob("*.whl"))]


def pins(extra: str = "") -> list[str]:
    """The requirement of each package that `runtime` names, with its hashes, sorted by name.

    Raises BuildError where one is not pinned, or twice and not alike.
    """
    files = ["constraints.txt", *([f"constraints-{extra}.txt"] if extra else [])]
    found: dict[str, str] = {}
    for one in files:
        for block in re.split(r"\n(?=[a-z])", (ROOT / one).read_text().strip()):
            name = canonicalize_name(block.partition("==")[0].strip())
            if found.setdefault(name, block) != block:
                raise BuildError(f"{' and '.join(files)} pin {name} differently")
    wanted = runtime(extra)
    if lacking := [name for name in wanted if name not in found]:
        raise BuildError(f"{' and '.join(files)} do not pin {', '.join(lacking)}")
    return [found[name] for name in wanted]


def _download(requirements: str, python: str, glibc: int, store: Path) -> None:
    machine, abi = platform.machine(), "cp" + python.replace(".", "")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(glibc, 4, -1)]
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--implementation=cp"]
    options += [f"--python-version={python}", f"--abi={abi}", "--abi=abi3", "--abi=none"]
    options += [f"--platform={one}" for one in (*platforms, f"manylinux2014_{machine}")]
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        listed = Path(folder, "requirements.txt")
        listed.write_text(requirements)
        pip("download", *options, "-q", "-d", folder, "-r", str(listed))
        for path in Path(folder).glob("*.whl"):
            path.replace(store / path.name)


def pip(*arguments: str, cwd: Path | None = None, **environment: str) -> None:
    """Run this Python's pip, with more variables; raises BuildError with its words."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    if done.returncode != 0:
        raise BuildError(f"pip {arguments[0]} failed: {done.stderr.strip()[-2000:]}")


def sources(root: Path = ROOT) -> list[Path]:
    """The files that our wheel is made of: tracked by git, or new and not ignored; without
    git all that are not build products."""
    table = tomllib.loads((root / "pyproject.toml").read_text())
    rooms = table["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    names = (*rooms, *_OURS)
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "ls-files", "-zco", "--exclude-standard", *names]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found: Iterable[Path] = (root / name for name in listed.split("\0") if name)
    else:
        found = (path for name in names for path in _below(root / name))
    return sorted(path for path in found if path.is_file())


def _below(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        yield path
        return
    for one in path.rglob("*"):
        if not {"__pycache__", "_bin"} & set(one.parts) and not one.stem.endswith(
            ("_pb2", "_pb2_grpc")
        ):
            yield one


def ours(root: Path, when: int) -> Wheel:
    """Our wheel, built from a copy of the sources, with the C executable inside."""
    paths = sources(root)
    digest = cache.digest_of(paths, root)
    place = cache.folder("image", "own") / f"{cache.key(digest, when, platform.machine())}.whl"
    content = cache.kept(place, lambda: _build(paths, root, when))
    return _parsed(content)


def _build(paths: list[Path], root: Path, when: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        copy, made = Path(folder, "tree"), Path(folder, "made")
        for path in paths:
            target = copy / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
            target.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
        options = ["-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(made)]
        pip("wheel", *options, "./tree", cwd=Path(folder), SOURCE_DATE_EPOCH=str(when))
        (wheel,) = made.glob("*.whl")
        if wheel.name.endswith("-any.whl"):
            raise BuildError("no compiler made the CNI executable; install musl-tools or gcc")
        return wheel.read_bytes()


def _read(path: Path) -> Wheel:
    return _parsed(path.read_bytes())


def _parsed(content: bytes) -> Wheel:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (name,) = [
            one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one)
        ]
        said = message_from_bytes(archive.read(name))
    names = [
        one.rpartition(" :: ")[2]
        for one in said.get_all("Classifier", [])
        if one.startswith("License :: ")
    ]
    return Wheel(
        said["Name"],
        said["Version"],
        said["License-Expression"] or ", ".join(names) or (said["License"] or "").splitlines()[0],
        hashlib.sha256(content).hexdigest(),
        content,
    )


def unpack(wheels: Iterable[Wheel], site: str) -> Tree:
    """The files of wheels below `site` (a path of the tree), without scripts and data files."""
    tree: Tree = {}
    for wheel in wheels:
        with zipfile.ZipFile(io.BytesIO(wheel.content)) as archive:
            for info in archive.infolist():
                name = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", info.filename)
                if info.is_dir() or re.match(r"[^/]+\.data/", name):
                    continue
                mode = info.external_attr >> 16
                tree[f"{site}/{name}"] = file(archive.read(info), 0o755 if mode & 0o100 else 0o644)
    return tree
