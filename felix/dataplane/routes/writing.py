"""How routes are written: what the writer is asked for, and what came of it.

Tested in tests/felix/dataplane/test_dataplane_parts.py and, with a kernel, test_event_order.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from felix.dataplane.routes.own_routes import IPAddress, IPNetwork
from linux.netlink import Result
from linux.routes import Route

Failures = Mapping[int, Result]
"""What the kernel refused, by the number of the route, removals after what was written."""


class Writer(Protocol):
    """What writes routes in felix: `felix.dataplane.routes.kernel_reader.KernelReader` alone."""

    def write(
        self,
        upserts: Sequence[Route],
        removals: Sequence[Route],
        account: Callable[[Failures], None],
    ) -> None:
        """Write and remove routes, and account for it in view and tables. The monitor tells
        nothing of this, and of what it told earlier of these routes nothing is believed after.

        Raises `KernelError` only when the socket fails.
        """


@dataclass
class Outcome:
    """What a commit did, and what it could not do.

    `departed`: addresses of removed pod routes; `pods`: interfaces to which routes were written.
    """

    written: int = 0
    deleted: int = 0
    failures: dict[IPNetwork, str] = field(default_factory=dict)
    departed: set[IPAddress] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)
