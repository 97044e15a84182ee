"""Notes beside an answer: masquerading, and services that are not in the datastore.

Tested in tests/felix/explain/test_explain.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from felix.calc.policy.facts import names_services
from felix.explain.ends import End
from felix.explain.flow import Packet
from felix.explain.stations import Station
from felix.explain.world import World
from libcalico.model import GlobalNetworkPolicy, NetworkPolicy, Profile, ResourceKey


def service_notes(world: World, stations: Sequence[Station]) -> list[str]:
    """Notes on policies on the way whose rules name services (EXP-3)."""
    asked: dict[ResourceKey | None, None] = {}
    for station in stations:
        asked |= dict.fromkeys(step.policy for step in station.ruling.steps)
        asked[station.ruling.policy] = None
    return [
        f"{key} names services, and who stands behind them is not in the datastore:"
        " rules that name one match nothing here"
        for key in asked
        if key is not None and _names_services(world.objects.get(key))
    ]


def masquerade_note(world: World, source: End, packet: Packet) -> Iterator[str]:
    """A note where the node masquerades what a pod sends."""
    own = [pool for pool in world.pools if packet.source in pool.network]
    inside = any(packet.destination in pool.network for pool in world.pools)
    if inside or not any(pool.nat_outgoing for pool in own):
        return
    node = source.node
    shown = sorted(a for a in world.nodes.get(node, ()) if a.version == packet.version)
    address = f" ({', '.join(map(str, shown))})" if shown else ""
    yield (
        f"{source.title} is masqueraded here: who receives the packet sees an address of"
        f" node {node}{address}, and so does policy there"
    )


def _names_services(stored: object) -> bool:
    if not isinstance(stored, NetworkPolicy | GlobalNetworkPolicy | Profile):
        return False
    return names_services(stored)
