"""What is remembered comes back equal; what is broken is no obstacle."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from bgp.agent.memory import Last, Memory
from bgp.peering.passwords import SecretRef
from bgp.peering.planned import MESH, NODE, PlannedPeer
from bgp.routes.offer import NextHop
from bgp.speaker.interface import Family, Route
from libcalico.model.resources.bgpfilter import (
    BGPFilterOperation,
    BGPFilterPrefixLength,
    BGPFilterRule,
    BGPFilterSetPriority,
    BGPFilterSpec,
)
from tests.bgp.test_exabgp import a_peer

PEERS = [
    PlannedPeer(a_peer("10.0.0.2", "10.0.0.1", passive=True, password="x"), MESH, True),
    PlannedPeer(a_peer("fd00::2", "fd00::1", families=(Family.IPV4, Family.IPV6)), MESH, False, 2),
    PlannedPeer(
        a_peer("10.0.0.3", "10.0.0.1"),
        NODE,
        False,
        filters=("strict", "mild"),
        next_hop=NextHop.KEEP,
        client=True,
        own_cluster="1.2.3.4",
        reachable_by=ip_address("10.0.0.254"),
    ),
]
FILTERS = {
    "strict": BGPFilterSpec(
        importV4=[
            BGPFilterRule(
                cidr="10.0.0.0/8",
                matchOperator="In",
                prefixLength=BGPFilterPrefixLength(min=24),
                action="Accept",
                operations=[BGPFilterOperation(setPriority=BGPFilterSetPriority(value=7))],
            )
        ]
    )
}
ROUTES = {
    Route(ip_network("10.65.0.0/26")),
    Route(
        ip_network("fd65::/64"),
        next_hop=ip_address("fd00::1"),
        peers=frozenset({ip_address("fd00::2")}),
        local_pref=7,
        communities=("1:2",),
        as_path=(1, 2),
    ),
}
SERVICES = frozenset({ip_network("198.51.100.7/32"), ip_network("fd98::7/128")})
SECRETS = {SecretRef("tor", "key"): "canary", SecretRef("mesh", "key"): "canary-2"}


def test_round_trip(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "run" / "last.json")
    assert memory.load() is None
    last = Last(PEERS, list(ROUTES), FILTERS, SERVICES, SECRETS)
    memory.save(last)
    memory.save(last)
    loaded = memory.load()
    assert loaded is not None
    assert loaded.peers == PEERS
    assert set(loaded.routes) == ROUTES
    assert loaded.filters == FILTERS
    assert loaded.services == SERVICES
    assert loaded.secrets == SECRETS
    assert "canary" not in repr(loaded)
    assert (tmp_path / "run" / "last.json").stat().st_mode & 0o777 == 0o400
    memory.save(Last())
    assert memory.load() == Last()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"peers":[{}],"routes":[]}', '{"peers":1}', '{"peers":[],"routes":[]}']
)
def test_broken(tmp_path: Path, text: str) -> None:
    path = tmp_path / "last.json"
    path.write_text(text)
    assert Memory(path).load() is None
    assert Memory(None).load() is None
