"""Ways kept up to date by what changed: as if all were evaluated, whatever the order (CLR-1)."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_address, ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from felix.calc.blocks import BlockFacts
from felix.calc.cluster_routes import ClusterRoutes, IPNetwork
from felix.calc.nodes import NodeFacts, Vtep
from felix.calc.pools import Pool
from felix.calc.tunnels import Kind, RemoteHop, TunnelSupport

NODES = ("me", "a", "b")
CIDRS: list[IPNetwork] = [IPv4Network((0x0A410000 + 64 * n, 26)) for n in range(4)]
MODES = st.sampled_from(
    [("Never", "Never"), ("Always", "Never"), ("CrossSubnet", "Never"), ("Never", "CrossSubnet")]
)
POOLS = MODES.flatmap(
    lambda modes: st.booleans().map(
        lambda out: Pool(ip_network("10.65.0.0/16"), False, *modes, exported=out)
    )
)


def facts(name: str, rack: int, ready: bool) -> NodeFacts:
    number = NODES.index(name) + 1
    own = ip_address(f"10.99.{rack}.{number}")
    end = Vtep(own, ip_address(f"10.65.9.{number}"), f"66:00:00:00:00:0{number}")
    network = (ip_network(f"10.99.{rack}.0/24"),)
    ipip = ip_address(f"10.65.8.{number}") if ready else None
    return NodeFacts(frozenset({own}), network, ipip, (end,) if ready else ())


TUNNELS = {ip_address(f"10.65.{net}.{n}") for net in (8, 9) for n in (1, 2, 3)}
OWNERS = st.sampled_from(["", "host:me", "host:a", "host:b", "host:c", "virtual:load-balancer"])
USERS = st.frozensets(st.tuples(st.integers(0, 3), st.sampled_from(NODES)), max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("block"), st.sampled_from(CIDRS), OWNERS, USERS),
        st.tuples(st.just("unblock"), st.sampled_from(CIDRS)),
        st.tuples(st.just("node"), st.sampled_from(NODES), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("unnode"), st.sampled_from(NODES)),
        st.tuples(st.just("pool"), POOLS),
        st.tuples(st.just("unpool")),
        st.tuples(st.just("means"), st.booleans(), st.booleans()),
    ),
    max_size=30,
)


class Cluster:
    """The tables, and what is told of their changes."""

    def __init__(self) -> None:
        self.blocks: dict[IPNetwork, BlockFacts] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.pools: dict[str, Pool] = {}
        self.means = TunnelSupport()
        self.routes = ClusterRoutes("me", self.blocks, self.nodes, self.pools)

    def step(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("block", cidr, owner, users):
                named = frozenset((cidr.network_address + n, who) for n, who in users)
                self.blocks[cidr] = BlockFacts(owner, named)
                self.routes.block_changed(cidr)
            case ("unblock", cidr):
                self.blocks.pop(cidr, None)
                self.routes.block_changed(cidr)
            case ("node", name, rack, ready):
                self.nodes[name] = facts(name, rack, ready)
                self.routes.node_changed(name)
            case ("unnode", name):
                self.nodes.pop(name, None)
                self.routes.node_changed(name)
            case ("pool", pool):
                self.pools["p"] = pool
                self.routes.pools_changed()
            case ("unpool",):
                self.pools.clear()
                self.routes.pools_changed()
            case ("means", ipip, told):
                self.means = TunnelSupport(ipip=ipip, told=told)

    def anew(self) -> ClusterRoutes:
        """As if all had come at once."""
        made = ClusterRoutes("me", self.blocks, self.nodes, self.pools)
        made.pools_changed()
        made.settle(self.means)
        return made


@given(STEPS, st.sets(st.integers(0, 30)), st.sampled_from([None, 1, 3]))
def test_what_changed_is_enough(
    steps: list[tuple[Any, ...]], settled_after: set[int], limit: int | None
) -> None:
    """Also in slices, whatever changes between two of them."""
    cluster = Cluster()
    known: dict[IPNetwork, RemoteHop] = {}
    for number, step in enumerate([*steps, ("means", True, True)]):
        cluster.step(step)
        last = number == len(steps)
        while number in settled_after or last:
            for network in cluster.routes.settle(cluster.means, limit):
                if network in cluster.routes.ways:
                    known[network] = cluster.routes.ways[network]
                else:
                    del known[network]
            if not (last and cluster.routes.pending):
                break
    fresh = cluster.anew()
    assert cluster.routes.ways == fresh.ways == known
    assert cluster.routes.waiting == fresh.waiting
    assert cluster.routes.refused == fresh.refused
    assert cluster.routes.complaints() == fresh.complaints()
    mine = {cidr for cidr, block in cluster.blocks.items() if block.owner == "host:me"}
    used = {
        ip_network(address)
        for block in cluster.blocks.values()
        for address, user in block.users
        if user == "me" and (address, user) in block.users
    }
    assert not mine & known.keys()
    for network in used & known.keys():
        # Only where two nodes claim one address, and then the other one's claim is as good.
        if network.network_address in TUNNELS:
            continue
        others = {
            u for b in cluster.blocks.values() for a, u in b.users if ip_network(a) == network
        }
        assert others - {"me"}


NEAR = ip_address("10.99.1.2")


def test_no_node_takes_an_address_of_our_block_for_its_tunnel() -> None:
    """CLR-3, whatever comes first; what the block lent is led away."""
    for order in ((0, 1), (1, 0)):
        cluster = Cluster()
        cluster.step(("node", "me", 1, True))
        cluster.step(("pool", Pool(ip_network("10.65.0.0/16"), False, "Never", "Always")))
        ours = ip_network("10.65.9.0/26")
        steps: list[tuple[Any, ...]] = [("node", "a", 1, True)]
        steps.append(("block", ours, "host:me", frozenset()))
        for each in order:
            cluster.step(steps[each])
            cluster.routes.settle(TunnelSupport())
        theirs = ip_network("10.65.9.2/32")
        assert theirs not in cluster.routes.ways
        assert cluster.routes.refused == {theirs}
        (told,) = cluster.routes.complaints().values()
        assert "its tunnel's 10.65.9.2 is of a block of this node, which did not lend it" in told
        cluster.blocks[ours] = BlockFacts("host:me", frozenset({(theirs[0], "a")}))
        cluster.routes.block_changed(ours)
        assert cluster.routes.settle(TunnelSupport()) == {theirs}
        assert cluster.routes.ways[theirs] == RemoteHop(Kind.VXLAN, None)
        cluster.step(("block", ours, "host:me", frozenset()))
        cluster.routes.settle(TunnelSupport())
        assert theirs not in cluster.routes.ways
        cluster.step(("unblock", ours))
        cluster.routes.settle(TunnelSupport())
        assert theirs in cluster.routes.ways
        assert (cluster.routes.refused, cluster.routes.complaints()) == (set(), {})


def test_a_borrowed_address_leads_to_its_user() -> None:
    cluster = Cluster()
    for name, rack in (("me", 1), ("a", 1), ("b", 2)):
        cluster.step(("node", name, rack, True))
    cluster.step(("pool", Pool(ip_network("10.65.0.0/16"), False, "CrossSubnet")))
    users = frozenset({(3, "b"), (4, "me")})
    cluster.step(("block", CIDRS[0], "host:a", users))
    cluster.step(("block", CIDRS[1], "host:me", users))
    cluster.routes.settle(TunnelSupport())
    far = RemoteHop(Kind.IPIP, ip_address("10.99.2.3"))
    assert cluster.routes.ways == {
        CIDRS[0]: RemoteHop(Kind.STRAIGHT, ip_address("10.99.1.2")),
        ip_network("10.65.0.3/32"): far,
        ip_network("10.65.0.67/32"): far,
        # And to the ends of tunnels themselves.
        **{ip_network(f"10.65.{net}.2"): RemoteHop(Kind.STRAIGHT, NEAR) for net in (8, 9)},
        **{ip_network(f"10.65.{net}.3"): far for net in (8, 9)},
    }


def test_what_cannot_be_reached_is_told_once_a_node() -> None:
    cluster = Cluster()
    cluster.step(("node", "me", 1, True))
    cluster.step(("node", "a", 1, False))
    cluster.step(("pool", Pool(ip_network("10.65.0.0/16"), False, "Never", "Always")))
    for cidr in CIDRS[:3]:
        cluster.step(("block", cidr, "host:a", frozenset()))
    cluster.step(("block", CIDRS[3], "host:gone", frozenset()))
    cluster.routes.settle(TunnelSupport())
    assert cluster.routes.complaints() == {
        "Node(a)": "3 network(s) of it have no route from the datastore:"
        " it has no VXLAN tunnel address for IPv4 yet",
        "Node(gone)": "1 network(s) of it have no route from the datastore: there is no such node",
    }
