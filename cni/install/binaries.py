"""The executables: our two names of one file, and the plugins that an image brings along.

`calico` and `calico-ipam` are one executable that looks at its own name (CAL-32).

A plugin that we brought where none was goes with us (INS-12); `RECORD`, beside the plugins, names
those. One that was there before, or that was replaced since, stays.
Tested in tests/cni/test_install_places.py and tests/cni_conformance/test_install_beside.py.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from cni import python_plugin
from cni.install.files import Folder, opened
from libcalico.errors import MuslinError

log = logging.getLogger(__name__)

NAMES = ("calico", "calico-ipam")
BUILT = Path(__file__).parents[1] / "_bin" / "calico"
NOT_COPIED = (*NAMES, "install", "install-cni")
"""What lies beside the plugins in an image and is none, or is made from BUILT."""
RECORD = ".calico-brought"
"""A line for each plugin of others that only we brought: its SHA-256, and its name."""


class NoExecutable(MuslinError):
    """There is no executable to install, and no interpreter for its twin."""


def own_interpreter() -> str:
    """The Python that runs us, outside of any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def install_binaries(
    bin_dir: Path,
    executable: Path = BUILT,
    *,
    twin: bool = False,
    interpreter: str = "",
    others: Path | None = None,
    skip: Collection[str] = (),
    update: bool = True,
) -> None:
    """Install `calico` and `calico-ipam`, and every executable of the directory `others`.

    `skip` names files to leave out; without `update`, what is there already is kept, but never
    SUID. Raises NoExecutable, OSError, Busy.
    """
    content = _twin(interpreter) if twin else _executable(executable, interpreter)
    with opened(bin_dir) as folder:
        for name in NAMES:
            _place(folder, name, content, skip, update)
        plugins = [path for path in _plugins(others, bin_dir) if path.name not in skip]
        # First: a plugin that was placed without a record would stay for ever.
        _record(folder, plugins)
        for path in plugins:
            _place(folder, path.name, path.read_bytes(), skip, update)


def remove_binaries(bin_dir: Path) -> None:
    """Remove `calico`, `calico-ipam` and the plugins that only we brought (INS-12).

    Raises OSError, Busy.
    """
    if bin_dir.is_dir():
        with opened(bin_dir) as folder:
            for name in NAMES:
                folder.remove(name)
            for name in _brought(folder):
                folder.remove(name)
            folder.remove(RECORD)


def _record(folder: Folder, plugins: Sequence[Path]) -> None:
    known = _brought(folder)
    coming = [path for path in plugins if path.name in known or not folder.exists(path.name)]
    digests = known | {
        path.name: {*known.get(path.name, ()), _digest(path.read_bytes())} for path in coming
    }
    lines = sorted(f"{digest}  {name}\n" for name in digests for digest in digests[name])
    # Also where nothing is left: a line of a plugin that was replaced would be true again
    # as soon as ours is placed over it.
    if lines:
        folder.replace(RECORD, "".join(lines).encode(), 0o644)
    else:
        folder.remove(RECORD)


def _brought(folder: Folder) -> dict[str, set[str]]:
    """The plugins that only we brought and that were not replaced since, with what they may hold.

    More than one digest: that of an upgrade is noted before it is there.
    """
    noted: dict[str, set[str]] = {}
    for line in (folder.read(RECORD) or b"").decode(errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        if name and "/" not in name:
            noted.setdefault(name, set()).add(digest)
    return {
        name: digests
        for name, digests in noted.items()
        if (content := folder.read(name)) is not None and _digest(content) in digests
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _plugins(others: Path | None, bin_dir: Path) -> list[Path]:
    if others is None or not others.is_dir() or os.path.samefile(others, bin_dir):
        return []
    return sorted(
        path
        for path in others.iterdir()
        if path.name not in NOT_COPIED
        and not path.name.startswith(".")
        and path.is_file()
        and os.access(path, os.X_OK)
    )


def _place(folder: Folder, name: str, content: bytes, skip: Collection[str], update: bool) -> None:
    where = folder.path / name
    if name in skip:
        log.info("%s is left out", where)
    elif not update and folder.exists(name):
        if folder.restrict(name):
            log.warning("%s is kept, but no longer SUID or SGID", where)
        log.info("%s is kept", where)
    elif folder.replace(name, content, 0o755):
        log.info("installed %s", where)


def _executable(path: Path, interpreter: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        log.warning("there is no CNI executable at %s: its Python twin is installed", path)
        return _twin(interpreter)


def _twin(interpreter: str) -> bytes:
    chosen = interpreter or own_interpreter()
    try:
        return python_plugin.source(chosen)
    except ValueError as error:
        raise NoExecutable(
            f"neither an executable nor its Python twin can be installed: {error}; install "
            "musl-tools (or any C compiler) and the package again, or name another interpreter"
        ) from error
