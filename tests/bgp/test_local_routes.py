"""What a node originates, from the objects as the datastore gives them."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bgp.cluster.view import Changed, ClusterView, PoolView
from bgp.routes import local_routes
from bgp.routes.audiences import Manner, audiences
from bgp.routes.export_policy import Terms, offers
from bgp.speaker.interface import Family
from libcalico.model.codec import resource_from_tree
from libcalico.model.keys import AffinityKey, ResourceKey
from libcalico.model.resources.ipam import BlockAffinity

ME, OTHER = "n1", "n2"
PLANNED = Changed.PEERING | Changed.EXPORT


class World(ClusterView):
    """A view filled by text."""

    def __init__(self) -> None:
        super().__init__(ME)

    def pool(self, cidr: str, **spec: Any) -> None:
        tree = {
            "kind": "IPPool",
            "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": cidr.replace("/", "-")},
            "spec": {"cidr": cidr, **spec},
        }
        self.apply(ResourceKey("IPPool", tree["metadata"]["name"]), resource_from_tree(tree))  # type: ignore[index]

    def affinity(self, cidr: str, state: str = "confirmed", host: str = ME) -> Changed:
        return self.apply(AffinityKey(host, ip_network(cidr)), BlockAffinity(state=state))

    def borrowed(self, cidr: str, **users: list[int]) -> Changed:
        """Felix names addresses that nodes use out of others' blocks: `n2=[5, 6]`."""
        block = ip_network(cidr)
        return self.lend(block, {block[n]: node for node, all_ in users.items() for n in all_})

    @property
    def announced(self) -> set[str]:
        """What an ordinary peer is told."""
        peer = ip_address("10.0.0.9")
        manner = Manner((Family.IPV4, Family.IPV6), internal=True)
        told = Terms(audiences([(peer, manner)]), tuple(self.pools.values()))
        own = local_routes.originated(self.affinities, self.mine)
        return {str(net) for net, kind in own.items() if offers(net, kind, None, told)}


def test_blocks_and_borrowed_addresses() -> None:
    world = World()
    world.pool("10.65.0.0/16")
    world.affinity("10.65.1.0/26")
    assert world.affinity("10.65.2.0/26", host=OTHER) is Changed.IMPORT
    assert world.affinity("10.65.2.0/26", host=OTHER) is Changed.NOTHING
    world.borrowed("10.65.1.0/26", n2=[3])
    assert world.borrowed("10.65.2.0/26", n1=[7]) is Changed.EXPORT | Changed.IMPORT
    assert world.borrowed("10.65.2.0/26", n1=[7]) is Changed.NOTHING
    assert world.borrowed("10.65.2.0/26", n1=[7], n3=[9]) is Changed.IMPORT
    assert world.announced == {"10.65.1.0/26", "10.65.2.7/32"}
    world.borrowed("10.65.2.0/26")
    assert world.announced == {"10.65.1.0/26"}


def test_a_block_that_is_not_confirmed_gives_host_routes() -> None:
    world = World()
    world.pool("10.65.0.0/16")
    world.borrowed("10.65.1.0/26", n1=[1])
    for state in ("pending", "pendingDeletion"):
        world.affinity("10.65.1.0/26", state)
        assert world.announced == {"10.65.1.1/32"}
    world.affinity("10.65.1.0/26", "")
    assert world.announced == {"10.65.1.0/26"}
    world.apply(AffinityKey(ME, ip_network("10.65.1.0/26")), BlockAffinity("confirmed", True))
    assert world.announced == {"10.65.1.1/32"}, "marked as deleted, it is none"


def test_pools_decide() -> None:
    world = World()
    world.affinity("10.65.1.0/26")
    world.borrowed("10.65.2.0/26", n1=[7])
    everything = {"10.65.1.0/26", "10.65.2.7/32"}
    assert world.announced == everything  # a pool may go before its last pods
    world.pool("10.65.0.0/16", disabled=True)
    assert world.announced == everything
    world.pool("10.65.0.0/16")
    assert world.announced == everything
    world.pool("10.65.0.0/16", disableBGPExport=True)
    assert world.announced == set()


def test_single_addresses_and_ipv6() -> None:
    world = World()
    world.pool("10.65.0.0/16")
    world.pool("fd65::/48")
    world.affinity("10.65.1.1/32")
    world.borrowed("10.65.1.1/32", n1=[0])
    world.affinity("fd65::40/122")
    world.borrowed("fd65::80/122", n1=[1])
    assert world.announced == {"10.65.1.1/32", "fd65::40/122", "fd65::81/128"}


def test_a_connected_network_inside_an_own_block_is_told_by_the_block() -> None:
    world = World()
    world.affinity("10.65.1.0/26")
    world.affinity("10.65.2.0/26", "pending")
    world.affinity("fd65::40/122")
    tunnels = [ip_network(n) for n in ("10.65.1.1/32", "10.65.2.1/32", "fd65::41/128")]
    lan = ip_network("10.65.0.0/16")
    told = local_routes.originated(world.affinities, world.mine, connected=[*tunnels, lan])
    assert told == {
        ip_network("10.65.1.0/26"): local_routes.Kind.BLOCK,
        ip_network("fd65::40/122"): local_routes.Kind.BLOCK,
        tunnels[1]: local_routes.Kind.CONNECTED,
        lan: local_routes.Kind.CONNECTED,
    }


def test_unreadable_nodes_and_pools_are_named_and_left_out() -> None:
    world = World()
    key = ResourceKey("Node", "n2")
    tree = {
        "kind": "Node",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "n2"},
        "spec": {"bgp": {"ipv4Address": "10.0.0.2/24"}},
    }
    assert world.apply(key, resource_from_tree(tree)) is PLANNED
    tree["spec"] = {"bgp": {"ipv4Address": "10.0.0.2.3"}}
    assert world.apply(key, resource_from_tree(tree)) is PLANNED
    assert "10.0.0.2.3" in world.broken[str(key)]
    assert "n2" not in world.nodes
    pool = ResourceKey("IPPool", "bad")
    tree = {"kind": "IPPool", "metadata": {"name": "bad"}, "spec": {"cidr": "10.0.0.0/99"}}
    world.apply(pool, resource_from_tree(tree))
    assert "10.0.0.0/99" in world.broken[str(pool)]


nets = st.integers(0, 63).map(lambda number: ip_network(f"10.65.0.{number * 4}/30"))
states = st.sampled_from(["confirmed", "pending", "pendingDeletion"])
ordinals = st.frozensets(st.integers(0, 3), min_size=1)


@given(
    st.dictionaries(nets, states),
    st.dictionaries(nets, ordinals),
    st.booleans(),
)
def test_never_more_than_ours(
    affinities: dict[Any, str], used: dict[Any, frozenset[int]], exported: bool
) -> None:
    """BGP-4: own confirmed blocks and own addresses, each address covered at most once."""
    mine = {net: frozenset(net[number] for number in numbers) for net, numbers in used.items()}
    pool = PoolView(ip_network("10.65.0.0/16"), exported)
    told = Terms(audiences([(ip_address("10.0.0.9"), Manner((Family.IPV4,), True))]), (pool,))
    own = local_routes.originated(affinities, mine)
    prefixes = [net for net, kind in own.items() if offers(net, kind, None, told)]
    confirmed = {net for net, state in affinities.items() if state == "confirmed"}
    everything = {ip_address(each) for addresses in mine.values() for each in addresses}
    if not exported:
        assert prefixes == []
    for prefix in prefixes:
        assert prefix in confirmed or prefix.network_address in everything
        assert not any(prefix != other and prefix.subnet_of(other) for other in prefixes)  # type: ignore[arg-type]
