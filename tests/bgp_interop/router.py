"""What a test asks of somebody else's BGP speaker, whichever it is.

A `Setup` says what the router shall be; each speaker has a subclass of `Router` that writes it
in that speaker's own language, runs its daemons inside the router's namespace with all their
files in a folder of the test, and reads tables by that speaker's own client. What a router
heard is always asked of the router.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import ClassVar

from tests.support.netns import Namespace
from tests.support.patience import HANG


@dataclass(frozen=True)
class Neighbour:
    """A session that the router holds, from its address `local`."""

    address: str
    asn: int
    local: str
    password: str = ""
    client: bool = False
    """The router reflects for it."""
    hops: int = 0
    """eBGP over so many hops; 0: directly connected."""
    ttl_security: bool = False
    """Packets must come from `hops` hops at most (RFC 5082)."""

    @property
    def version(self) -> int:
        """The IP version of the session and of its routes."""
        return 6 if ":" in self.address else 4


@dataclass(frozen=True)
class Origin:
    """A route of the router's own."""

    prefix: str
    communities: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    local_pref: int | None = None

    @property
    def version(self) -> int:
        """The IP version."""
        return ip_network(self.prefix).version


@dataclass(frozen=True)
class Setup:
    """All that the router is. Times are seconds."""

    asn: int
    neighbours: tuple[Neighbour, ...]
    origins: tuple[Origin, ...] = ()
    cluster_id: str = ""
    hold: int = 90
    restart_time: int = 20


@dataclass(frozen=True)
class Learned:
    """A route as the router has it."""

    next_hop: str
    as_path: tuple[int, ...]
    communities: frozenset[str] = frozenset()
    large: frozenset[str] = frozenset()
    local_pref: int | None = None
    originator: str = ""
    clusters: tuple[str, ...] = ()


class Router(ABC):
    """A speaker. One setup at a time; `start` after `stop` or `kill` begins afresh."""

    name: ClassVar[str]
    loses_forwarding: ClassVar[str] = ""
    """Why the speaker, by its own documentation, cannot keep forwarding while it restarts."""

    def __init__(self, space: Namespace, directory: Path, router_id: str) -> None:
        self.space, self.directory, self.router_id = space, directory, router_id
        self.processes: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def start(self, setup: Setup, *, again: bool = False) -> None:
        """Run with this setup. `again`: it was killed, and keeps what graceful restart keeps."""

    @abstractmethod
    def table(self) -> dict[str, Learned]:
        """Prefix -> the best route, of all that neighbours said."""

    @abstractmethod
    def up(self, address: str) -> bool:
        """Whether the session with a neighbour is Established."""

    def launch(self, *command: str) -> None:
        """Start a daemon that stays in the foreground; what it says goes to a log."""
        with (self.directory / f"{self.name}.log").open("ab") as log:
            process = subprocess.Popen(self.space.command(*command), stdout=log, stderr=log)
        self.processes.append(process)

    def kill(self) -> None:
        """End all daemons at once, without a word to anybody."""
        for pid in _output("ip", "netns", "pids", self.space.name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for process in self.processes:
            process.wait(HANG)
        self.processes.clear()

    def write(self, name: str, lines: Iterable[str]) -> str:
        """Write a file of the router's folder; its path."""
        path = self.directory / name
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return str(path)

    def tell(self, *command: str) -> str:
        """The output of a client program, empty when it cannot reach the daemon."""
        return self.space.run(*command, check=False)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
