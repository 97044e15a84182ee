"""The temporary files of one run of tests: in a folder of their own, which no run outlives.

A run holds a lock on its folder while it lasts. The folder of a run that failed stays, to be
looked at; it goes, like that of a run that was killed, when the next run begins.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import control_groups

PREFIX = "muslin-"
"""Short, for sockets lie below it, and the kernel takes no more than 108 bytes of their paths."""
LOCK = ".run-of-tests"
"""The file by which such a folder is known."""
GROUPS = ".control-groups"
"""A file of such a folder: patterns of the names of the run's control groups, which outlive a kill.
"""
PATIENCE_S = 60.0
ENOUGH = 4 << 30
"""Bytes that a run of the fast tier needs: what its servers hold at one time, twice."""


@contextmanager
def made(spared: Collection[Path] = ()) -> Iterator[Path]:
    """A new folder below the one for temporary files, held until the end of the block.

    Nothing is removed at the end: `remove` it when nothing failed. `spared`: folders of earlier
    parts of this run, which stay.
    """
    place = Path(tempfile.gettempdir())
    with _locked(place / f"{PREFIX}runs.lock"):
        _remove_ended(place, spared)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        folder.chmod(0o1777)  # as that which it stands for: some programs run as another user
        held = _lock(folder / LOCK, os.O_CREAT)
    assert held is not None, "it is new"
    try:
        yield folder
    finally:
        os.close(held)


def remove(folder: Path) -> None:
    """Remove a run's folder with all that is in it, and the control groups that it names."""
    _remove_groups(folder / GROUPS)
    shutil.rmtree(folder, ignore_errors=True)


def name_groups(pattern: str) -> None:
    """Said in a run before it makes control groups: they go at the latest with its folder."""
    folder = Path(tempfile.gettempdir())
    if (folder / LOCK).exists():
        with (folder / GROUPS).open("a") as named:
            named.write(f"{pattern}\n")


def _remove_groups(named: Path) -> None:
    # A box that was killed a moment ago still ends its processes.
    until = time.monotonic() + PATIENCE_S
    for pattern in named.read_text().split() if named.exists() else ():
        while not control_groups.remove(pattern) and time.monotonic() < until:
            time.sleep(0.05)


def short_of_room(folder: Path, enough: int = ENOUGH) -> str:
    """A sentence where less than `enough` bytes are free there; empty otherwise."""
    free = shutil.disk_usage(folder).free
    if free >= enough:
        return ""
    return (
        f"{free >> 20} MiB are free in {folder.parent}, and the tests need {enough >> 20}: "
        "make room, or name another folder by TMPDIR"
    )


def _remove_ended(place: Path, spared: Collection[Path]) -> None:
    for folder in place.glob(f"{PREFIX}*/"):
        held = _lock(folder / LOCK) if folder not in spared else None
        if held is not None:
            remove(folder)
            os.close(held)


def _lock(file: Path, flags: int = 0) -> int | None:
    """Take a lock until the descriptor is closed; None where another has it, or without a file."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.closing(os.fdopen(descriptor)):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
