"""The state of a lab between two commands: one directory with one JSON file.

LAB-2: everything `lab down` needs is written before the thing itself is made, so a crash between
the two leaves a record without a thing, never a thing without a record. Namespaces have names on
the host too (`NAME-node1` in /run/netns). Tested in tests/lab/test_updown.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.errors import LabError

NETNS = Path("/run/netns")
MARK_ENV = "MUSLIN_LAB"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


def base_directory() -> Path:
    """The directory of the state of this host's labs; MUSLIN_LAB_DIR overrides it."""
    return Path(os.environ.get("MUSLIN_LAB_DIR", "/run/muslin-lab"))


@dataclass
class MachineRecord:
    """The holder process of a machine and the inode of its UTS namespace.

    `environment` is given to every command there.
    """

    pid: int = 0
    started: int = 0
    uts: int = 0
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class State:
    """The choices a lab was made from, and its machines.

    `environment` is set for every node's agents beside what the lab sets. `agents`: not `--bare`.
    `scenario` is the name of the one it was made for.
    """

    name: str
    topology: str
    nodes: int
    tls: bool = False
    reflectors: int = 0
    ipv6_only: bool = False
    scenario: str = ""
    agents: bool = True
    ready: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    machines: dict[str, MachineRecord] = field(default_factory=dict)


def check_name(name: str) -> str:
    """The name itself, or LabError when it cannot be a namespace's prefix."""
    if not NAME.fullmatch(name):
        raise LabError(
            f"lab name {name!r}: allowed are a-z, 0-9 and - inside, at most 32 characters"
        )
    return name


def directory(name: str) -> Path:
    """The state directory of one lab."""
    return base_directory() / check_name(name)


def load(name: str) -> State | None:
    """The state of a lab; None when it is not up (nor left over)."""
    try:
        raw: dict[str, Any] = json.loads((directory(name) / "state.json").read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LabError(f"{directory(name)}/state.json cannot be read: {error}") from error
    machines = {key: MachineRecord(**value) for key, value in raw.pop("machines").items()}
    return State(**raw, machines=machines)


def save(state: State) -> None:
    """Write atomically, so that a crash leaves the old or the new state."""
    path = directory(state.name) / "state.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(state), indent=1))
    temporary.replace(path)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One lab command at a time changes what labs share: the base directory and /run/netns."""
    path = base_directory() / ".lock"
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # The last lab to go removes the directory: what we waited for may be gone by now.
            if path.exists() and path.stat().st_ino == os.fstat(handle.fileno()).st_ino:
                yield
                return
