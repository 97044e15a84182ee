"""What is remembered comes back equal; what is broken is no obstacle."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import msgspec
import pytest

from bgp.agent.saved_decisions import LastDecisions, SavedDecisions, decode, encode
from bgp.cluster.view import PoolView
from bgp.peering.passwords import SecretRef
from bgp.peering.planned import MESH, NODE, PlannedPeer
from bgp.routes.audiences import NextHop
from bgp.routes.communities import Tags
from bgp.routes.export_policy import Terms
from bgp.routes.local_routes import Kind
from bgp.speaker.interface import Family
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
        joins=True,
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
OWN = {
    ip_network("10.65.0.0/26"): Kind.BLOCK,
    ip_network("fd65::7/128"): Kind.HOST,
    ip_network("10.96.0.0/12"): Kind.SERVICE,
}
RANGES = frozenset({ip_network("10.96.0.0/12"), ip_network("fd96::/112")})
TERMS = Terms(
    pools=(
        PoolView(ip_network("10.65.0.0/16"), True),
        PoolView(ip_network("fd65::/48"), False, tunnelled=True),
    ),
    tags=Tags(((ip_network("10.65.0.0/16"), ("1:2", "1:2:3")),), ("a problem",)),
    cluster_id="1.2.3.4",
    services=(ip_network("198.51.100.0/24"), ip_network("fd98::/112")),
    priorities={4: 512, 6: 1024},
    draining=True,
)
SERVICES = frozenset({ip_network("198.51.100.7/32"), ip_network("fd98::7/128")})
SECRETS = {SecretRef("tor", "key"): "canary", SecretRef("mesh", "key"): "canary-2"}


def test_round_trip(tmp_path: Path) -> None:
    memory = SavedDecisions(tmp_path / "run" / "last.json")
    assert memory.load() is None
    borrowed = {ip_network("10.65.9.0/26"): {ip_address("10.65.9.7"): "n2"}}
    last = LastDecisions(
        *(PEERS, OWN, RANGES, TERMS, FILTERS, SERVICES, SECRETS, 64512, borrowed),
        reflectors={"n1": "1.2.3.4"},
        fresh=frozenset({"n1"}),
    )
    memory.save(last)
    memory.save(last)
    loaded = memory.load()
    assert loaded is not None
    assert loaded.peers == PEERS
    assert (loaded.own, loaded.ranges, loaded.terms) == (OWN, RANGES, TERMS)
    assert loaded.filters == FILTERS
    assert loaded.services == SERVICES
    assert loaded.secrets == SECRETS
    assert (loaded.local_as, loaded.borrowed) == (64512, borrowed)
    assert (loaded.reflectors, loaded.fresh) == ({"n1": "1.2.3.4"}, frozenset({"n1"}))
    assert "canary" not in repr(loaded)
    assert (tmp_path / "run" / "last.json").stat().st_mode & 0o777 == 0o400
    memory.save(LastDecisions())
    assert memory.load() == LastDecisions()


PEER = {
    *("peer", "kind", "in_cluster", "allowed_local_as", "node", "filters", "next_hop", "client"),
    *("own_cluster", "reachable_by"),
}


def test_older_programs_can_read_it() -> None:
    """They take a peer's members as they come, and of the rest what they know."""
    tree = msgspec.json.decode(encode(LastDecisions(PEERS)))
    assert all(each.keys() == PEER for each in tree["peers"])
    del tree["joins"]
    assert decode(msgspec.json.encode(tree)).peers == [replace(one, joins=False) for one in PEERS]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"peers":[{}],"own":{}}', '{"peers":1}', '{"peers":[],"own":{}}']
)
def test_broken(tmp_path: Path, text: str) -> None:
    path = tmp_path / "last.json"
    path.write_text(text)
    assert SavedDecisions(path).load() is None
    assert SavedDecisions(None).load() is None
