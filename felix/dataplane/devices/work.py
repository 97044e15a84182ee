"""What one commit of links is about, as a value: the same for every manager of links.

Tested in tests/felix/dataplane/test_turns.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from felix.calc.cluster_facts import ClusterFacts
from felix.calc.encapsulation import Encapsulation
from felix.calc.endpoints import Endpoint
from felix.config.parameters import Config
from felix.dataplane.devices.view import KernelView
from linux.netlink import Socket

Listener = tuple[str, int]
"""Where wrapped packets come in: a device, and its UDP port or 0."""


@dataclass(frozen=True, slots=True)
class LinkWork:
    """`endpoints`: those whose links are looked at. `families`: the IP versions programmed.

    `used`: the tunnels that are needed. `guarded`: the tunnels' listeners whose rules stand.
    `routes_written`: how many routes felix has written so far.
    """

    sock: Socket
    view: KernelView
    config: Config
    cluster: ClusterFacts = field(default_factory=lambda: ClusterFacts(""))
    used: Encapsulation = field(default_factory=Encapsulation)
    endpoints: Sequence[Endpoint] = ()
    families: frozenset[int] = frozenset({4})
    guarded: frozenset[Listener] = frozenset()
    routes_written: int = 0
