"""A file tree in memory, and the layer of an image that it becomes.

Everything that would make two builds differ is set here: order, owners, times and modes. No
file has SUID or SGID, none may be written by others than its owner (sticky /tmp apart).
"""

from __future__ import annotations

import io
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MERGED = ("bin", "sbin", "lib", "lib64")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a directory or a symbolic link; `mode` holds the permissions alone."""

    kind: str
    mode: int = 0o755
    data: bytes = b""
    target: str = ""
    owner: int = 0


Tree = dict[str, Entry]
"""Path without a leading slash to what is there."""


def file(data: bytes, mode: int = 0o644) -> Entry:
    """A file of root."""
    return Entry("file", mode & 0o755, data)


def directory(mode: int = 0o755, owner: int = 0) -> Entry:
    """A directory; only a sticky one may be writable by others."""
    return Entry("dir", mode if mode & stat.S_ISVTX else mode & 0o755, owner=owner)


def link(target: str) -> Entry:
    """A symbolic link."""
    return Entry("link", 0o777, target=target)


def path_of(name: str) -> str:
    """A path as an image has it: `./bin/x` of a package that knows no merged /usr is usr/bin/x."""
    path = str(PurePosixPath("/", name)).lstrip("/")
    return f"usr/{path}" if path.split("/", 1)[0] in _MERGED else path


def skeleton() -> Tree:
    """The merged /usr and what every process may expect."""
    tree: Tree = {name: link(f"usr/{name}") for name in _MERGED}
    for name in ("dev", "etc", "proc", "root", "run", "sys", "usr", "var"):
        tree[name] = directory()
    tree["tmp"] = tree["var/tmp"] = directory(0o1777)
    tree["var/run"] = link("/run")
    return tree


def with_parents(tree: Tree) -> Tree:
    """The tree with every directory on the way, in order of paths."""
    full = dict(tree)
    for name in tree:
        for parent in PurePosixPath(name).parents:
            if str(parent) != ".":
                full.setdefault(str(parent), directory())
    return dict(sorted(full.items()))


def layer(tree: Tree, when: int) -> bytes:
    """The tar archive of a tree; `when` is the time of every file, in seconds since 1970."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, entry in with_parents(tree).items():
            archive.addfile(_info(name, entry, when), io.BytesIO(entry.data))
    return out.getvalue()


def _info(name: str, entry: Entry, when: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime, info.uid, info.gid = entry.mode, when, entry.owner, entry.owner
    if entry.kind == "file":
        info.size = len(entry.data)
    elif entry.kind == "dir":
        info.type = tarfile.DIRTYPE
    else:
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
    return info


def write(tree: Tree, root: Path) -> None:
    """Put a tree below an existing directory, as whoever runs this: owners are not set."""
    for name, entry in with_parents(tree).items():
        place = root / name
        if entry.kind == "dir":
            place.mkdir(exist_ok=True)
            place.chmod(entry.mode | 0o700)
        elif entry.kind == "link":
            place.symlink_to(entry.target)
        else:
            place.write_bytes(entry.data)
            place.chmod(entry.mode)
