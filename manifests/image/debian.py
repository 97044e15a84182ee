"""Debian packages as apt on this machine finds and verifies them, unpacked into a tree.

apt is asked as if nothing were installed, so that the closure is complete; it checks what it
downloads against the signed lists of its archives. No maintainer script runs: what they would
do and an image needs (alternatives, byte code) is done in `contents` and `bytecode`.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import tarfile
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from manifests.image import cache
from manifests.image.cache import BuildError
from manifests.image.tree import Tree, directory, file, link, path_of

LISTS = Path("/var/lib/apt/lists")

ONLY_FOR_SCRIPTS = frozenset(
    {"debconf", "dpkg", "libcap2-bin", "openssl", "readline-common", "tar"}
)
"""Packages that others want for their maintainer scripts alone."""

LEFT_OUT = (
    "usr/share/man/*",
    "usr/share/info/*",
    "usr/share/locale/*",
    "usr/share/lintian/*",
    "usr/share/bash-completion/*",
    "usr/share/binfmts/*",
    "usr/share/initramfs-tools/*",
    "usr/share/bug/*",
    "usr/share/apport/*",
    "usr/share/applications/*",
    "usr/share/pixmaps/*",
    "usr/share/gcc/*",
    "usr/share/gdb/*",
    "usr/lib/*/gconv/*",
    "usr/lib/*/perl*",
    "usr/share/perl*",
    "usr/lib/systemd/*",
    "etc/init.d/*",
    "etc/cron*",
    "usr/lib/python3*/__pycache__/*",
    "usr/lib/python3*/lib2to3/*",
    "usr/lib/python3*/pydoc_data/*",
)
"""What no process of ours reads. Of /usr/share/doc the copyright files stay."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package file of a lock: name, version and architecture are those of its control file."""

    file: str
    name: str
    version: str
    architecture: str
    sha256: str


def lock(wanted: tuple[str, ...], store: Path) -> list[Package]:
    """Fetch the closure of packages into `store`; what it consists of, in order of names.

    Asked again only when apt's lists changed. Raises BuildError with apt's own words.
    """
    lists = sorted(LISTS.glob("*InRelease")) + sorted(LISTS.glob("*_Release"))
    if not lists:
        raise BuildError(f"apt has no lists in {LISTS}; run `apt-get update` as root")
    name = cache.key(wanted, cache.digest_of(lists, LISTS))
    text = cache.kept(store / f"{name}.lock", lambda: "\n".join(_fetch(wanted, store)).encode())
    files = text.decode().splitlines()
    if not all((store / one).exists() for one in files):
        _fetch(wanted, store)
    found = [_package(store / one) for one in files]
    return sorted(
        (one for one in found if one.name not in ONLY_FOR_SCRIPTS), key=lambda one: one.name
    )


def _fetch(wanted: tuple[str, ...], store: Path) -> list[str]:
    """Have apt download the closure; the names of its files."""
    (store / "partial").mkdir(exist_ok=True)
    options = {
        "Dir::State::status": os.devnull,
        "Dir::Cache::archives": str(store),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "0",
    }
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    _apt(*given, "-qq", "-y", "--download-only", "install", *wanted)
    return sorted(_names(_apt(*given, "-qq", "-s", "install", *wanted)))


def _names(simulated: str) -> list[str]:
    """The package files that apt would install, as it names them in its archives' folder."""
    # Inst libc6 (2.36-9+deb12u14 Debian:12.11/stable [amd64]) []
    found = re.findall(r"^Inst (\S+) \((\S+) .*?\[(\w+)\]\)", simulated, re.MULTILINE)
    return [f"{name}_{version.replace(':', '%3a')}_{kind}.deb" for name, version, kind in found]


def _apt(*arguments: str) -> str:
    done = subprocess.run(
        ["apt-get", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )
    if done.returncode != 0:
        raise BuildError(f"apt-get cannot give the packages: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _package(path: Path) -> Package:
    """What a package file says of itself."""
    fields = ("Package", "Version", "Architecture")
    shown = _deb("--show", "--showformat=" + "\\n".join(f"${{{one}}}" for one in fields), path)
    name, version, architecture = shown.decode().splitlines()
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Package(path.name, name, version, architecture, sha256)


def _deb(*arguments: str | Path) -> bytes:
    return subprocess.run(["dpkg-deb", *arguments], check=True, capture_output=True).stdout


def unpack(packages: list[Package], store: Path, left_out: tuple[str, ...] = ()) -> Tree:
    """The files of the packages, and their entries in dpkg's status for scanners of images."""
    tree: Tree = {}
    status = b""
    for package in packages:
        content = _deb("--fsys-tarfile", store / package.file)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                _place(tree, archive, member, LEFT_OUT + left_out)
        control = _deb("--field", store / package.file).rstrip(b"\n")
        first, _, rest = control.partition(b"\n")
        status += first + b"\nStatus: install ok installed\n" + rest + b"\n\n"
    tree["var/lib/dpkg/status"] = file(status)
    return tree


def _place(
    tree: Tree, archive: tarfile.TarFile, member: tarfile.TarInfo, left_out: tuple[str, ...]
) -> None:
    path = path_of(member.name)
    documentation = path.startswith("usr/share/doc/") and not (
        path.endswith("/copyright") or member.issym()
    )
    if not path or path in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
        return
    if (documentation and not member.isdir()) or any(fnmatch(path, one) for one in left_out):
        return
    if member.issym():
        tree[path] = link(member.linkname)
    elif member.isdir():
        if not documentation:
            tree[path] = directory(member.mode & 0o1777)
    elif member.islnk():
        tree[path] = tree[path_of(member.linkname)]
    elif member.isfile():
        opened = archive.extractfile(member)
        assert opened is not None
        tree[path] = file(opened.read(), member.mode)
    else:
        raise BuildError(f"{member.name} of a package is a device; no image of ours has any")
