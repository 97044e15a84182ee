"""One turn of the main loop as a value: what it is about, and what failed of links and routes.

Tested in tests/felix/dataplane/test_turns.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from felix.calc.changes import Changes
from felix.calc.encapsulation import Encapsulation
from felix.dataplane.devices.work import Listener
from ipam.records.blocks import IPAddress


@dataclass(slots=True)
class Turn:
    """`about`: the interfaces of the endpoints that it is about, None for all and everything.

    `used`: the tunnels that are needed. `asked`: tunnels' listeners whose packets the rules of this
    turn look at. `spared`: addresses whose connections stay, though they moved.
    """

    news: Changes
    about: frozenset[str] | None
    used: Encapsulation
    asked: frozenset[Listener]
    spared: frozenset[IPAddress]
    link_failures: dict[str, str] = field(default_factory=dict)
    route_failures: dict[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, str]:
        """What failed of links and routes, by object."""
        return {**self.link_failures, **self.route_failures}
