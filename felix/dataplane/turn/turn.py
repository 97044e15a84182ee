"""One turn of the main loop as a value: what it is about, and what failed of links and routes.

Tested in tests/felix/dataplane/test_turns.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from felix.calc.endpoints import Endpoint
from felix.dataplane.devices.tunnels import Door
from felix.dataplane.rules import backend
from felix.dataplane.rules.desired import Desire
from felix.dataplane.rules.ipsets import Sets
from ipam.records.blocks import IPAddress


@dataclass(slots=True)
class Turn:
    """`active`: the node's endpoints, by interface. `about`: those of this turn, None for all.

    `asked`: tunnels' listeners whose packets the rules of this turn look at. `spared`: addresses
    whose connections stay, though they moved.
    """

    active: dict[str, Endpoint]
    about: frozenset[str] | None
    asked: frozenset[Door]
    spared: frozenset[IPAddress]
    link_failures: dict[str, str] = field(default_factory=dict)
    route_failures: dict[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, str]:
        """What failed of links and routes, by object."""
        return {**self.link_failures, **self.route_failures}


class Parts(NamedTuple):
    """What writes rules and sets, and what these should hold."""

    tables: backend.Tables
    sets: Sets
    desire: Desire
