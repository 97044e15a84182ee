"""What is remembered comes back equal; what is broken is no obstacle."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from bgp.memory import Memory
from bgp.peering import MESH, PlannedPeer
from bgp.speaker.interface import Family, Route
from tests.bgp.test_exabgp import a_peer

PEERS = [
    PlannedPeer(a_peer("10.0.0.2", "10.0.0.1", passive=True, password="x"), MESH, True),
    PlannedPeer(a_peer("fd00::2", "fd00::1", families=(Family.IPV4, Family.IPV6)), MESH, False, 2),
]
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


def test_round_trip(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "run" / "last.json")
    assert memory.load() is None
    memory.save(PEERS, ROUTES)
    memory.save(PEERS, ROUTES)
    loaded = memory.load()
    assert loaded is not None
    assert loaded[0] == PEERS
    assert set(loaded[1]) == ROUTES
    assert (tmp_path / "run" / "last.json").stat().st_mode & 0o777 == 0o400
    memory.save([], [])
    assert memory.load() == ([], [])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"peers":[{}],"routes":[]}', '{"peers":1}'])
def test_broken(tmp_path: Path, text: str) -> None:
    path = tmp_path / "last.json"
    path.write_text(text)
    assert Memory(path).load() is None
    assert Memory(None).load() is None
