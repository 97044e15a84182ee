"""A directory that others watch, written so that no reader ever sees half a file.

An opened folder holds flock(2) on the directory itself: installers of several containers, whose
process ids may be equal, take turns, no lock file is left behind, and the kernel releases the
lock of one that was killed. The holder may therefore sweep every unfinished file.

Every access goes through the directory's descriptor and refuses to follow a link in the last
component (INST-2, INST-3).
Tested in tests/cni/test_install_places.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from libcalico.errors import MuslinError

UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.new")
LOCK_SECONDS = 60.0


class Busy(MuslinError):
    """Another installer holds the directory."""


class Folder:
    """An opened directory. `changed` after something was written or removed."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor, self.changed = path, descriptor, False

    def read(self, name: str) -> bytes | None:
        """The bytes of the regular file `name`; None when it is missing or something else."""
        entry = self._look(name)
        return entry[1] if entry else None

    def _look(self, name: str) -> tuple[int, bytes] | None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=self.descriptor)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            return (stat.S_IMODE(mode), file.read()) if stat.S_ISREG(mode) else None

    def exists(self, name: str) -> bool:
        """Whether there is anything called `name`, also a link to nowhere."""
        try:
            os.lstat(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return False
        return True

    def replace(self, name: str, content: bytes, mode: int) -> bool:
        """Make `name` a regular file with `content` and `mode`; False when it is one already."""
        if self._look(name) == (mode, content):
            return False
        fresh = f".{name}.{secrets.token_hex(8)}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(fresh, flags, 0o600, dir_fd=self.descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.rename(fresh, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=self.descriptor)
            raise
        self.changed = True
        return True

    def restrict(self, name: str) -> bool:
        """Take SUID and SGID from the regular file `name`; whether it had one."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=self.descriptor)
        except OSError:
            return False
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode) or not mode & (stat.S_ISUID | stat.S_ISGID):
                return False
            os.fchmod(descriptor, stat.S_IMODE(mode) & 0o777)
            return True
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> bool:
        """Remove the file or link `name`; False when there is none."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return False
        self.changed = True
        return True

    @contextlib.contextmanager
    def inner(self, name: str, mode: int = 0o700) -> Iterator[Folder]:
        """The directory `name` in this one, made where missing, locked too; no link is followed."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=self.descriptor)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self.descriptor)
        os.fchmod(descriptor, mode)
        with _held(Folder(self.path / name, descriptor)) as folder:
            yield folder

    def remove_inner(self, name: str) -> None:
        """Remove the directory `name` if it is empty."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self.descriptor)
            self.changed = True

    def sync(self) -> None:
        """What was written or removed so far survives a loss of power."""
        if self.changed:
            os.fsync(self.descriptor)
            self.changed = False

    def sweep(self) -> None:
        """Remove what killed installers left unfinished."""
        for name in os.listdir(self.descriptor):
            if UNFINISHED.fullmatch(name):
                self.remove(name)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Folder]:
    """The directory `path`, made where missing, locked, swept, and synced at the end.

    `path` itself may lead through links: where a distribution keeps its directories is its
    own affair. Raises Busy after a minute, OSError.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags)
    with _held(Folder(path, descriptor)) as folder:
        yield folder


@contextlib.contextmanager
def _held(folder: Folder) -> Iterator[Folder]:
    try:
        _lock(folder)
        folder.sweep()
        yield folder
        folder.sync()
    finally:
        os.close(folder.descriptor)


def _lock(folder: Folder) -> None:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise Busy(
                    f"{folder.path}: another installer has held it for {LOCK_SECONDS:.0f} s"
                ) from None
            time.sleep(0.02)
