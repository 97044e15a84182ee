"""What a process tells others on its node: one small JSON file, readable by everyone.

`calicoctl node status` reads these without root. A reader sees the old file or the new
one, never a half.
Tested in tests/libcalico/test_process.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from libcalico.errors import NO_DOCUMENT
from libcalico.model.base.meta import now_text
from libcalico.process import paths


def own_namespace() -> int | None:
    """The PID namespace of this process; None without /proc."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None


_NAMESPACE = own_namespace()


def write(process: str, status: Mapping[str, object], directory: Path | None = None) -> None:
    """Write `<directory>/<process>.json` (0644) with `time` (UTC) and `pid` added.

    `pid_namespace` is the namespace of that number: a reader in another container cannot look it
    up. The directory is `/var/run/calico/status` unless given. Raises OSError.
    """
    folder = directory or paths.STATUS
    os.makedirs(folder, exist_ok=True)
    fresh = f"{folder}/.{process}.{os.getpid()}.new"
    writer = {"time": now_text(), "pid": os.getpid(), "pid_namespace": _NAMESPACE}
    with open(fresh, "wb") as file:
        file.write(msgspec.json.encode({**writer, **status}))
        os.fchmod(file.fileno(), 0o644)
    os.replace(fresh, f"{folder}/{process}.json")


def read(process: str, directory: Path | None = None) -> dict[str, Any] | None:
    """The status of a process, or None when it has written none (or no JSON)."""
    try:
        path = (directory or paths.STATUS) / f"{process}.json"
        document = msgspec.json.decode(path.read_bytes())
    except (*NO_DOCUMENT, OSError):
        return None
    return document if isinstance(document, dict) else None
