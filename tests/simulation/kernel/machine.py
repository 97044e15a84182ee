"""The simulated machine: one network namespace, its sockets, sets, rules and settings.

`entered` is called at each system call: what others do meanwhile happens there (`Threads.pause`).
`room`: how many datagrams a new socket holds. `dump_parts`: how many objects one datagram of a dump
has; between two of them others may change the tables (`between_parts` is called there).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.kernel.chains import Chains
from tests.simulation.kernel.sets import Sets
from tests.simulation.kernel.sockets import OPEN, NetlinkSocket, datagram
from tests.simulation.kernel.state import Namespace

FIRST_FD = 1 << 20
_numbers = [itertools.count(1)]
"""Descriptors and ports are of one process, whatever machine they are on."""
_GROUPS = {"link": 1, "neighbour": 3, "address": 5, "route": 7, "netconf": 24}


def begin_anew() -> None:
    """A run in a process that had others."""
    _numbers[0] = itertools.count(1)
    OPEN.clear()


@dataclass
class Machine:
    """All of it. `losses`: messages that a full socket lost; `log`: hears of each change."""

    entered: Callable[[], None] = lambda: None
    room: Callable[[], int] = lambda: 100_000
    dump_parts: int = 40
    log: Callable[[str], None] = lambda text: None
    namespace: Namespace = field(default_factory=Namespace)
    sockets: dict[int, NetlinkSocket] = field(default_factory=dict)
    sets: Sets = field(default_factory=Sets)
    chains: Chains = field(default_factory=Chains)
    settings: dict[str, str] = field(default_factory=dict)
    losses: int = 0
    between_parts: Callable[[], None] = lambda: None
    boot: str = "boot-1"
    host: str = "host"

    def __post_init__(self) -> None:
        self.namespace.tell = self._tell
        self.chains.sets = self.sets

    def socket(self, protocol: int) -> NetlinkSocket:
        """A new socket."""
        number = next(_numbers[0])
        found = NetlinkSocket(self, protocol, FIRST_FD + number, 5000 + number)
        self.sockets[found.fileno()] = OPEN[found.fileno()] = found
        return found

    def _tell(self, what: str, kind: int, body: bytes, port: int) -> None:
        self.log(f"kernel tells {what} {kind} {body.hex()} by {port}")
        data = datagram(kind, body, port)
        group = _GROUPS[what]
        for each in list(self.sockets.values()):
            if group in each.groups and each.protocol == 0:
                each.hear(data)
