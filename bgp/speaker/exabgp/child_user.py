"""The user that ExaBGP runs as, and the files that only this user may read.

Tested in tests/bgp/test_exabgp.py.
"""

from __future__ import annotations

import os
import stat
import sys
from importlib.util import find_spec
from pathlib import Path

from bgp.speaker.exabgp.child_command import LAUNCH

SPEAKER_ID = 61179
"""Uid and gid of ExaBGP: in a range that distributions assign to no account."""


def speaker_id(run_dir: Path) -> tuple[int, str]:
    """The uid for ExaBGP, and why it is 0 if it is.

    0 means: keep ours. Another uid needs to be mapped here, and to reach the interpreter,
    ExaBGP's code and the run directory.
    """
    if os.geteuid() != 0:
        return 0, "not started as root"
    mapped = any(
        int(first) <= SPEAKER_ID < int(first) + int(count)
        for first, _, count in map(str.split, Path("/proc/self/uid_map").read_text().splitlines())
    )
    if not mapped:
        return 0, f"uid {SPEAKER_ID} is not mapped in this user namespace"
    spec = find_spec("exabgp")
    needed = [Path(sys.executable), Path(os.path.realpath(sys.executable)), LAUNCH, run_dir.parent]
    needed += [Path(spec.origin)] if spec and spec.origin else []
    for path in needed:
        if hidden := _hidden_by(path):
            return 0, f"{hidden} cannot be entered or read by another user"
    return SPEAKER_ID, ""


def _hidden_by(path: Path) -> Path | None:
    """The first part of `path` that others may not pass, or None."""
    for part in [*reversed(path.absolute().parents), path]:
        mode = part.stat().st_mode
        needed = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
        if not mode & needed:
            return part
    return None


def prepare_run_dir(run_dir: Path, uid: int) -> None:
    """Make the directory for configuration and socket: ours, and only ExaBGP may enter."""
    run_dir.mkdir(parents=True, exist_ok=True)
    run_dir.chmod(0o710 if uid else 0o700)
    if os.geteuid() == 0:
        os.chown(run_dir, 0, uid)


def write_private(path: Path, text: str, uid: int) -> None:
    """Write a file that only its owner `uid` may read, never with a wider mode."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        if uid:
            os.fchown(file.fileno(), uid, uid)
