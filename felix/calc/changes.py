"""What the calculation hands to the data plane: one value for each turn of the main loop.

What may be very much is in the value as something that is taken in steps: the difference of the
policies (`PolicyEngine.flushing`), and the routes to other nodes (`ClusterRoutes.settle`). What
changes while a turn is under way makes another turn.
Tested in tests/felix/calc/test_graph.py and tests/felix/dataplane/test_turns.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from felix.calc.cluster_facts import ClusterFacts
from felix.calc.cluster_routes import ClusterRoutes
from felix.calc.endpoints import Endpoint
from felix.calc.learned_routes import PathFacts
from felix.calc.policy.engine import PolicyEngine
from libcalico.model import ResourceKey

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Changes:
    """One turn's word of the calculation.

    `active`: this node's endpoints by interface; the same object while nothing changed.
    `shadowed`: why each of the others is not served. `moved`: the interfaces whose endpoint may be
    another than in the last turn. `wait`: seconds until time alone changes something, None: it
    does not.

    The others are as of when they are asked: `policies`, `routes`, `endpoint` (of a key),
    `blackholes`, which not every turn needs, and `paths`, what learned routes are checked
    against, given the addresses of this node.
    """

    active: dict[str, Endpoint]
    shadowed: dict[ResourceKey, str]
    moved: frozenset[str]
    endpoint: Callable[[ResourceKey], Endpoint | None]
    policies: PolicyEngine
    cluster: ClusterFacts
    routes: ClusterRoutes
    blackholes: Callable[[], frozenset[IPNetwork]]
    paths: Callable[[frozenset[IPAddress]], PathFacts]
    wait: float | None = None
