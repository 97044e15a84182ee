"""The records of the file of last readable documents: one a line; the first names the cluster.

Checked one by one when they are read; the file is for root only. Tested in
tests/felix/store/test_readable_store.py.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from libcalico.errors import NO_DOCUMENT
from libcalico.model import ResourceKey
from libcalico.model.salvage import KINDS_OF_POLICY

FORMAT = 1


class Head(msgspec.Struct, array_like=True):
    """The first line."""

    format: int
    cluster: str


class Line(msgspec.Struct, array_like=True):
    """A version of an object. `raw` empty: deleted. `check`: the CRC-32 of `raw`."""

    kind: str
    namespace: str
    name: str
    revision: int
    check: int
    raw: str

    @property
    def key(self) -> ResourceKey:
        """Of which object."""
        return ResourceKey(self.kind, self.name, self.namespace)

    @property
    def sound(self) -> bool:
        """Whether it is as it was written."""
        return self.kind in KINDS_OF_POLICY and zlib.crc32(self.raw.encode()) == self.check


_HEADS, _LINES = msgspec.json.Decoder(Head), msgspec.json.Decoder(Line)


class Found(NamedTuple):
    """What a file has: the last version of each object; `bad` records could not be read."""

    cluster: str
    lines: dict[ResourceKey, Line]
    bad: int
    size: int


def read(path: Path) -> Found:
    """The records of a file. Raises OSError, and ValueError where it is not to be believed."""
    data = _private(path)
    head, *rest, torn = data.split(b"\n")
    try:
        first = _HEADS.decode(head)
    except NO_DOCUMENT as error:
        raise ValueError(f"its first line: {error}") from None
    if first.format != FORMAT:
        raise ValueError(f"format {first.format} is not known")
    lines: dict[ResourceKey, Line] = {}
    bad = 1 if torn else 0
    for line in _decoded(rest):
        if line is None or not line.sound:
            bad += 1
        elif line.raw:
            lines[line.key] = line
        else:
            lines.pop(line.key, None)
    return Found(first.cluster, lines, bad, len(data))


def append(path: Path, lines: Iterable[Line]) -> int:
    """Add records, on the disk when this returns; how many bytes. Raises OSError."""
    text = b"".join(map(_encoded, lines))
    _fill(path, os.O_APPEND, text)
    return len(text)


def replace(path: Path, cluster: str, lines: Iterable[Line]) -> int:
    """Write the file anew, as `append` does; it is the old one or the new one at any time."""
    folder = path.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    text = b"".join(map(_encoded, (Head(FORMAT, cluster), *lines)))
    _fill(fresh, os.O_CREAT | os.O_EXCL, text)
    fresh.replace(path)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return len(text)


def _fill(path: Path, flags: int, text: bytes) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _encoded(line: msgspec.Struct) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _decoded(lines: Iterable[bytes]) -> Iterator[Line | None]:
    for line in lines:
        try:
            yield _LINES.decode(line)
        except NO_DOCUMENT:
            yield None


def _private(path: Path) -> bytes:
    """The bytes of a file that only we can have written. Raises OSError, ValueError."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise ValueError("it is not a file of ours")
        if about.st_mode & 0o077:
            raise ValueError(f"others may touch it (mode {stat.S_IMODE(about.st_mode):o})")
        return file.read()
