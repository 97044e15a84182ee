"""Own blocks and pods together: what the route table wants, over every block size; and restarts."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.blocks import BlockFacts, IPNetwork, blackholes, own_blocks
from felix.dataplane.routes.routes import RouteTable
from linux.prefixes import unpack
from linux.routes import Route
from tests.felix.dataplane.test_dataplane_parts import BOTH, ETH0, endpoint, view
from tests.felix.world import BLOCK, BLOCK6, World
from tests.support.patience import wait_for

SIZES = [(4, length) for length in range(20, 33)] + [(6, length) for length in range(116, 129)]


def block_of(version: int, length: int, number: int) -> IPNetwork:
    if version == 4:
        return IPv4Network(((10 << 24) + (number << (32 - length)), length))
    return IPv6Network(((0xFD65 << 112) + (number << (128 - length)), length))


def leads(table: RouteTable, network: IPNetwork) -> Route | None:
    """The wanted route by which an address leaves: the longest that holds it."""
    address = network.network_address
    around = [
        route
        for (_, prefix, _), route in table.table.desired.items()
        if (known := unpack(prefix)).version == address.version and address in known
    ]
    return max(around, key=lambda route: route.dst.prefixlen, default=None)


@pytest.mark.promise("F-48", "PAIN-8", "PAIN-9", "PAIN-4")
@given(st.data(), st.sampled_from(SIZES))
def test_every_address_of_an_own_block_leads_to_its_pod_or_nowhere(
    data: st.DataObject, size: tuple[int, int]
) -> None:
    version, length = size
    mine, theirs, pending = (block_of(version, length, number) for number in (1, 2, 3))
    facts = {
        mine: BlockFacts("host:me", frozenset()),
        theirs: BlockFacts("host:other", frozenset()),
        pending: BlockFacts("", frozenset()),
    }
    own = own_blocks("me", facts)
    assert own == {mine}
    last = mine.num_addresses - 1
    used = data.draw(st.sets(st.integers(0, last), max_size=5))
    # A borrowed address lies in a block that is not this node's.
    borrowed = data.draw(st.sets(st.integers(0, last), max_size=2))
    networks = [ip_network(mine.network_address + n) for n in used]
    networks += [ip_network(theirs.network_address + n) for n in borrowed]
    links = [replace(ETH0, index=10 + n, name=f"cali{n}") for n in range(len(networks))]
    pods = {
        link.name: endpoint(str(network), interface=link.name)
        for link, network in zip(links, networks, strict=True)
    }
    table = RouteTable()
    table.want_local(pods, blackholes(own), view(*links), BOTH)
    for link, network in zip(links, networks, strict=True):
        route = leads(table, network)
        assert route is not None
        assert (route.type, route.oif, route.dst) == ("unicast", link.index, network)
    free = data.draw(st.integers(0, last).filter(lambda n: n not in used) | st.none())
    if free is not None and free not in used:
        route = leads(table, ip_network(mine.network_address + free))
        assert (route.type if route else None) == ("blackhole" if last else None)
    holes = [r.dst for r in table.table.desired.values() if r.type == "blackhole"]
    assert holes == ([mine] if last else []), "one for the block, none for a single address"


@pytest.mark.promise("F-59", "PAIN-9")
def test_what_was_released_while_the_node_was_down_leaves_nothing(bare_world: World) -> None:
    world = bare_world
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    for block in (BLOCK, BLOCK6):
        wait_for(lambda block=block: "blackhole" in world.route(block))  # type: ignore[misc]
    world.stop_felix()
    assert "blackhole" in world.route(BLOCK), "felix may go, the block does not leak"
    for family, block in (("ipv4", BLOCK), ("ipv6", BLOCK6)):
        name = block.replace("/", "-")
        world.etcd.ctl("del", f"/calico/ipam/v2/assignment/{family}/block/{name}")
        world.etcd.ctl("del", f"/calico/ipam/v2/host/node1/{family}/block/{name}")
    world.start_felix()
    world.wait_ready()
    for block in (BLOCK, BLOCK6):
        wait_for(lambda block=block: not world.route(block))  # type: ignore[misc]
    assert "proto 109" not in world.routes()
