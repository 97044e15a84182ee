"""Whole agents: reflectors, filters that change, what is not believed, services, drain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

import pytest

from bgp.cluster.services import Endpoint, ServiceBatch, ServiceView
from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.peering.passwords import Passwords, SecretRef
from bgp.speaker.interface import Family, Peer, Route
from libcalico.datastore.interface import Entry
from libcalico.datastore.syncer import SyncBatch, Update
from libcalico.local.node_api import Fact
from libcalico.model.keys import ResourceKey
from tests.bgp.agents import Cluster, affinity, node, resource
from tests.bgp.memory_speaker import MemorySpeaker
from tests.support.patience import until

pytestmark = pytest.mark.asyncio

POOL = resource("IPPool", "pool", {"cidr": "10.65.0.0/16"})
NODES = [node(1), node(2), node(3)]
BLOCKS = [affinity(f"n{number}", f"10.65.{number}.0/26") for number in (1, 2, 3)]
REFLECTED = [
    node(3, routeReflectorClusterID="1.0.0.1", labels={"rr": "yes"}),
    resource("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False}),
    resource("BGPPeer", "rr", {"peerSelector": "rr == 'yes'"}),
]
ALL_OF_N1 = {"10.65.2.0/26": ["10.0.0.2"], "10.65.3.0/26": ["10.0.0.3"]}


async def three(**more: Any) -> Cluster:
    cluster = Cluster()
    for number in (1, 2, 3):
        cluster.add(f"n{number}", **more)
    await cluster.say(POOL, *NODES, *BLOCKS)
    return cluster


@pytest.mark.promise("F-39")
@pytest.mark.promise("M-128")
async def test_clients_of_a_reflector_reach_each_other_directly() -> None:
    """The next hop is the other client: no packet passes the reflector."""
    cluster = Cluster()
    for number in (1, 2, 3):
        cluster.add(f"n{number}")
    await cluster.say(POOL, *NODES, *BLOCKS, *REFLECTED)
    assert [peer["address"] for peer in cluster.agents["n1"].describe()["peers"]] == ["10.0.0.3"]
    assert cluster.table("n1") == ALL_OF_N1
    assert cluster.table("n3") == {"10.65.1.0/26": ["10.0.0.1"], "10.65.2.0/26": ["10.0.0.2"]}
    clients = [peer["reflector_client"] for peer in cluster.agents["n3"].describe()["peers"]]
    assert clients == [True, True]
    await cluster.stop()


async def test_a_reflector_that_starts_again_takes_nothing_from_its_clients() -> None:
    """It says End-of-RIB when it has heard all of them, not before (RFC 4724 4.1)."""
    cluster = Cluster()
    for number in (1, 2, 3):
        cluster.add(f"n{number}")
    told = [POOL, *NODES, *BLOCKS, *REFLECTED]
    await cluster.say(*told)
    changes: list[Any] = []
    for name in ("n1", "n2"):
        cluster.agents[name].routing._publish = changes.extend
    await cluster.speakers["n3"].close()
    await cluster.calm()
    fresh = cluster.add("n3")
    entries = {key: Entry(key, value, 1, b"") for key, value in told}
    await fresh.apply_batch(SyncBatch([Update(key, entry) for key, entry in entries.items()], True))
    await cluster.calm()
    assert changes == []
    for name in ("n1", "n2"):
        assert [peer["stale"] for peer in cluster.agents[name].describe()["peers"]] == [0]
        assert cluster.agents[name].sessions.complete(ip_address("10.0.0.3"))
    await cluster.stop()


async def test_a_reflector_says_what_it_keeps_to_itself_for_want_of_a_pool() -> None:
    """No pool covers the clients' blocks: a condition that names them, until one does."""
    cluster = Cluster()
    for number in (1, 2, 3):
        cluster.add(f"n{number}")
    await cluster.say(*NODES, *BLOCKS, *REFLECTED)
    assert cluster.table("n1") == {"10.65.3.0/26": ["10.0.0.3"]}
    reflector = cluster.agents["n3"]
    ((subject, why),) = reflector.conditions()
    assert subject == "route reflector"
    assert "10.65.1.0/26, 10.65.2.0/26: no IPPool covers them" in why
    assert cluster.agents["n1"].conditions() == []
    # A pool that is not to be exported is the operator's wish, and no news.
    silent = {"cidr": "10.65.0.0/16", "disableBGPExport": True}
    await cluster.say(resource("IPPool", "pool", silent))
    assert reflector.conditions() == []
    await cluster.say((ResourceKey("IPPool", "pool"), None))
    assert len(reflector.conditions()) == 1
    await cluster.say(POOL)
    assert reflector.conditions() == []
    assert cluster.table("n1") == ALL_OF_N1
    await cluster.stop()


@pytest.mark.promise("PAIN-15")
async def test_from_mesh_to_reflectors_no_route_is_ever_missing() -> None:
    """The nodes hear of the change one after the other; each table stays whole throughout."""
    cluster = await three()
    for agent in cluster.agents.values():
        agent.handover = MakeBeforeBreak(linger=0.3)
    lost: list[tuple[str, Any]] = []
    for name, agent in cluster.agents.items():

        def publish(changes: Any, name: str = name, agent: Any = agent) -> None:
            lost.extend((name, prefix) for prefix, path in changes if path is None)
            type(agent.publisher).publish(agent.publisher, changes)

        agent.routing._publish = publish
    everybody = cluster.agents
    for name in ("n1", "n2", "n3"):
        cluster.agents = {name: everybody[name]}
        await cluster.say(*REFLECTED)
        await asyncio.sleep(0.4)
    cluster.agents = everybody
    await until(lambda: not any(agent.handover.kept for agent in everybody.values()))
    assert lost == []
    assert cluster.table("n1") == ALL_OF_N1
    assert [peer["address"] for peer in everybody["n1"].describe()["peers"]] == ["10.0.0.3"]
    await cluster.stop()


async def test_held_sessions_are_named() -> None:
    cluster = await three()
    n1 = cluster.agents["n1"]
    cluster.agents = {"n1": n1}
    await cluster.say(*REFLECTED)
    leaving = {peer["address"]: peer["leaving"] for peer in n1.describe()["peers"]}
    assert leaving == {"10.0.0.2": True, "10.0.0.3": False}
    kept = "is kept until its successors carry its routes, 120 s at most"
    assert ("peer 10.0.0.2", kept) in n1.conditions()
    await cluster.stop()


@pytest.mark.promise("ADV-8")
async def test_what_is_not_believed_is_counted_and_named() -> None:
    """n2 offers a block that the datastore gives to n3; the datastore's word changes it."""
    cluster = await three()
    n1 = cluster.agents["n1"]
    wrong = affinity("n2", "10.65.9.0/26")
    await cluster.agents["n2"].apply_batch(batch(wrong))
    await cluster.calm()
    assert "10.65.9.0/26" not in cluster.table("n1")
    (peer,) = [each for each in n1.describe()["peers"] if each["address"] == "10.0.0.2"]
    assert peer["refused"] == 1
    reason = "the datastore gives it to no node, so not to n2"
    assert peer["refused_paths"] == {"10.65.9.0/26": reason}
    await n1.apply_batch(batch(wrong))
    assert cluster.table("n1")["10.65.9.0/26"] == ["10.0.0.2"]
    await n1.apply_batch(batch((wrong[0], None)))
    assert "10.65.9.0/26" not in cluster.table("n1")
    await cluster.stop()


async def test_host_routes_to_neighbours_are_taken_only_where_no_link_leads_there() -> None:
    """felix says which networks are connected, the datastore which nodes there are."""
    cluster = await three()
    n1 = cluster.agents["n1"]
    router = MemorySpeaker(cluster.fabric)
    mine, theirs = ip_address("10.0.0.1"), IPv4Address("10.0.0.254")
    await router.configure([Peer(mine, 64512, theirs, 64500, theirs, (Family.IPV4,))])
    said = {f"{each}/32" for each in ("10.0.0.2", "10.0.0.9", "10.0.0.99", "192.0.2.1")}
    await router.announce([Route(ip_network(each), next_hop=theirs) for each in said])
    tor = {"peerIP": str(theirs), "asNumber": 64500, "node": "n1"}
    await cluster.say(resource("BGPPeer", "tor", tor))

    def refused() -> dict[str, str]:
        (peer,) = [each for each in n1.describe()["peers"] if each["address"] == str(theirs)]
        assert peer["refused"] == len(peer["refused_paths"])
        assert said - peer["refused_paths"].keys() <= cluster.table("n1").keys()
        assert not peer["refused_paths"].keys() & cluster.table("n1").keys()
        return {prefix: why.partition(",")[0] for prefix, why in peer["refused_paths"].items()}

    assert refused() == {}
    n1.on_felix(Fact(["10.0.0.1"], {"10.0.0.0/24": "eth0", "10.0.0.1/32": "lo"}))
    neighbour = {"10.0.0.2/32": "it is the address of node n2"}
    assert refused() == neighbour
    n1.decisions.datastore = frozenset({ip_address("10.0.0.99")})
    await cluster.say(node(9))
    more = {
        "10.0.0.9/32": "it is the address of node n9",
        "10.0.0.99/32": "it is the address of the datastore",
    }
    assert refused() == neighbour | more
    renamed = resource("Node", "other", {"bgp": {"ipv4Address": "10.0.0.9/24"}})
    await cluster.say((node(9)[0], None), renamed)
    more["10.0.0.9/32"] = "it is the address of node other"
    assert refused() == neighbour | more
    accept = [{"cidr": "10.0.0.99/32", "matchOperator": "Equal", "action": "Accept"}]
    await cluster.say(
        resource("BGPFilter", "etcd", {"importV4": accept}),
        resource("BGPPeer", "tor", {**tor, "filters": ["etcd"]}),
    )
    assert refused().keys() == {"10.0.0.2/32", "10.0.0.9/32"}
    n1.on_felix(Fact(["10.0.0.1"], {"192.0.2.0/24": "eth0", "10.0.0.0/24": "lo"}))
    assert refused() == {}
    await cluster.stop()


def batch(*changes: tuple[Any, Any]) -> SyncBatch:
    """What one agent alone hears."""
    return SyncBatch(
        [Update(key, value and Entry(key, value, 1, b"")) for key, value in changes], True
    )


async def test_a_deleted_peering_ends_though_the_peers_that_remain_are_down() -> None:
    """HND-3: the limit counts from the deletion, not from a successor that never comes."""
    cluster = await three()
    for agent in cluster.agents.values():
        agent.handover = MakeBeforeBreak(linger=0.0, limit=3600.0)
    no_mesh = resource("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
    away = resource("BGPPeer", "away", {"peerIP": "10.0.0.99", "asNumber": 64500})
    key, near = resource("BGPPeer", "near", {"peerSelector": "all()"})
    await cluster.say(no_mesh, away, (key, near))
    n1 = cluster.agents["n1"]
    assert n1.sessions.up(ip_address("10.0.0.2"))
    await cluster.say((key, None))
    assert [each["address"] for each in n1.describe()["peers"] if each["leaving"]] == [
        "10.0.0.2",
        "10.0.0.3",
    ]
    for agent in cluster.agents.values():
        agent.handover.limit = 0.0
    await until(lambda: not any(agent.handover.kept for agent in cluster.agents.values()))
    assert [each["address"] for each in n1.describe()["peers"]] == ["10.0.0.99"]
    assert cluster.table("n1") == {}
    await cluster.stop()


@pytest.mark.promise("F-44")
async def test_a_filter_that_changes_moves_routes_and_no_session() -> None:
    cluster = await three()
    peer = resource("BGPPeer", "all", {"peerSelector": "all()", "filters": ["f"]})
    await cluster.say(resource("BGPFilter", "f", {}), peer)
    n1 = cluster.agents["n1"]
    before = [each["session"] for each in n1.describe()["peers"]]
    assert cluster.table("n1") == ALL_OF_N1
    configured = cluster.speakers["n1"]._peers
    no_two = {"cidr": "10.65.2.0/26", "matchOperator": "Equal", "action": "Reject"}
    await cluster.say(resource("BGPFilter", "f", {"importV4": [no_two]}))
    assert set(cluster.table("n1")) == {"10.65.3.0/26"}
    await cluster.say(resource("BGPFilter", "f", {"exportV4": [no_two]}))
    assert set(cluster.table("n1")) == {"10.65.3.0/26"}
    assert n1.describe()["peers"][0]["received"] == 0  # not even offered
    await cluster.say(resource("BGPFilter", "f", {}))
    assert cluster.table("n1") == ALL_OF_N1
    assert [each["session"] for each in n1.describe()["peers"]] == before
    assert cluster.speakers["n1"]._peers is configured
    await cluster.stop()


class Services:
    """A `ServiceSource` of values."""

    problem = ""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[ServiceBatch] = asyncio.Queue()
        self.wanted = False

    def require(self) -> None:
        self.wanted = True

    async def batches(self) -> AsyncIterator[ServiceBatch]:
        while True:
            yield await self.queue.get()


RANGES = resource(
    "BGPConfiguration", "default", {"serviceLoadBalancerIPs": [{"cidr": "198.51.100.0/24"}]}
)


def local_service(*nodes: str) -> ServiceView:
    return ServiceView(
        "LoadBalancer",
        (ip_address("10.96.0.7"),),
        load_balancer_ips=(ip_address("198.51.100.7"),),
        local=True,
        endpoints=frozenset(Endpoint(name, 4) for name in nodes),
    )


@pytest.mark.promise("F-47")
async def test_services_travel_as_single_addresses() -> None:
    """Nodes with endpoints announce; others use all of them; nobody routes whole ranges."""
    cluster = Cluster()
    sources = {}
    for number in (1, 2, 3):
        sources[f"n{number}"] = source = Services()
        agent = cluster.add(f"n{number}", service_source=source)
        cluster.tasks.append(asyncio.create_task(agent.follow_services(source)))
    await cluster.say(POOL, *NODES, *BLOCKS, RANGES)
    assert not cluster.agents["n1"].in_sync  # services first: a restart must not withdraw them
    for name, source in sources.items():
        source.queue.put_nowait(ServiceBatch(((("ns", "web"), local_service("n2", "n3")),)))
        assert name in cluster.agents
    await cluster.calm()
    assert cluster.table("n1") == {**ALL_OF_N1, "198.51.100.7/32": ["10.0.0.2", "10.0.0.3"]}
    assert "198.51.100.7/32" not in cluster.table("n2")  # its own endpoints serve it
    for source in sources.values():
        source.queue.put_nowait(ServiceBatch(((("ns", "web"), local_service("n2")),)))
    await cluster.calm()
    assert cluster.table("n1")["198.51.100.7/32"] == ["10.0.0.2"]
    for source in sources.values():
        source.queue.put_nowait(ServiceBatch(((("ns", "web"), None),)))
    await cluster.calm()
    assert cluster.table("n1") == ALL_OF_N1
    await cluster.stop()


async def test_without_word_about_services_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    cluster, source = Cluster(), Services()
    calm = cluster.add("n2", service_source=Services())
    await cluster.say(POOL, *NODES, *BLOCKS)
    assert calm.in_sync  # no range is announced: nobody asks for services
    agent = cluster.add("n1", service_source=source, service_patience=0.02)
    await cluster.say(POOL, *NODES, *BLOCKS, RANGES)
    assert not agent.in_sync
    assert source.wanted
    cluster.tasks.append(asyncio.create_task(agent._services_in_time()))
    await until(lambda: agent.in_sync)
    warned = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert not any("services" in each for each in warned), "a first start has none of before"
    await cluster.stop()


class Secrets:
    """A `PasswordSource` of values."""

    problem = ""

    def __init__(self) -> None:
        self.wanted: frozenset[SecretRef] = frozenset()
        self.queue: asyncio.Queue[Passwords] = asyncio.Queue()

    def require(self, refs: frozenset[SecretRef]) -> None:
        self.wanted = refs

    async def changes(self) -> AsyncIterator[Passwords]:
        while True:
            yield await self.queue.get()


@pytest.mark.promise("F-41")
async def test_a_password_that_comes_and_changes_touches_its_session_only() -> None:
    cluster, secrets = Cluster(), Secrets()
    agent = cluster.add("n1", password_source=secrets)
    cluster.tasks.append(asyncio.create_task(agent.follow_passwords(secrets)))
    reference = {"secretKeyRef": {"name": "tor", "key": "key"}}
    tor = {"peerIP": "10.0.0.254", "asNumber": 64500, "password": reference}
    await cluster.say(POOL, *NODES, *BLOCKS, resource("BGPPeer", "tor", tor))
    ref = SecretRef("tor", "key")
    assert secrets.wanted == {ref}
    assert len(agent.plan.peers) == 2
    for value in ("first-canary", "second-canary"):
        secrets.queue.put_nowait(Passwords({ref: value}))
        await cluster.calm()
        peers = {str(each.peer.address): each.peer.password for each in agent.plan.peers}
        assert peers == {"10.0.0.2": "", "10.0.0.3": "", "10.0.0.254": value}
    assert "canary" not in str(agent.describe())
    await cluster.stop()


async def test_no_start_is_complete_before_the_passwords_are_read() -> None:
    """felix would take away the routes of all peers whose sessions are not configured yet."""
    cluster = Cluster()
    sources = {name: Secrets() for name in ("n1", "n2", "n3")}
    reference = {"secretKeyRef": {"name": "mesh", "key": "key"}}
    mesh = resource("BGPConfiguration", "default", {"nodeMeshPassword": reference})
    for name, source in sources.items():
        agent = cluster.add(name, password_source=source)
        cluster.tasks.append(asyncio.create_task(agent.follow_passwords(source)))
    await cluster.say(POOL, *NODES, *BLOCKS, mesh)
    assert all(agent.plan.peers == () for agent in cluster.agents.values())
    assert not any(agent.gate.passed for agent in cluster.agents.values())
    for source in sources.values():
        source.queue.put_nowait(Passwords({SecretRef("mesh", "key"): "secret"}))
    await cluster.calm()
    assert all(agent.gate.passed for agent in cluster.agents.values())
    assert cluster.table("n1") == ALL_OF_N1
    await cluster.stop()


async def test_a_draining_node_is_the_last_choice() -> None:
    """RFC 8326: while another node announces the same address, nothing goes to it."""
    cluster = Cluster()
    for number in (1, 2, 3):
        source = Services()
        agent = cluster.add(f"n{number}", service_source=source)
        cluster.tasks.append(asyncio.create_task(agent.follow_services(source)))
        source.queue.put_nowait(ServiceBatch(((("ns", "web"), local_service("n2", "n3")),)))
    await cluster.say(POOL, *NODES, *BLOCKS, RANGES)
    await cluster.say(node(2, annotations={"muslin/bgp-drain": "true"}))
    assert cluster.agents["n2"].describe()["draining"] is True
    assert cluster.table("n1") == {**ALL_OF_N1, "198.51.100.7/32": ["10.0.0.3"]}
    await cluster.say(node(2))
    assert cluster.table("n1")["198.51.100.7/32"] == ["10.0.0.2", "10.0.0.3"]
    await cluster.stop()


@pytest.mark.promise("F-57")
async def test_connected_networks_go_out_where_a_filter_lets_them() -> None:
    cluster = await three()
    allow = {"interface": "eth1", "action": "Accept"}
    await cluster.say(
        resource("BGPFilter", "f", {"exportV4": [allow]}),
        resource("BGPPeer", "all", {"peerSelector": "all()", "filters": ["f"]}),
    )
    n2 = cluster.agents["n2"]
    n2.on_felix(Fact(["10.0.0.2"], {"10.0.0.0/24": "eth0", "192.0.2.0/24": "eth1"}))
    await cluster.calm()
    offered = {str(prefix) for prefix in n2.routing.offered}
    assert offered == {"10.65.2.0/26", "192.0.2.0/24"}
    assert "192.0.2.0/24" not in cluster.table("n1")  # a node of the cluster: not believed
    ignore = {"ignoredInterfaces": ["eth1"]}
    await cluster.say(resource("BGPConfiguration", "default", ignore))
    assert {str(prefix) for prefix in n2.routing.offered} == {"10.65.2.0/26"}
    await cluster.say((ResourceKey("BGPConfiguration", "default"), None))
    assert {str(prefix) for prefix in n2.routing.offered} == {"10.65.2.0/26", "192.0.2.0/24"}
    await cluster.stop()
