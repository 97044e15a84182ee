"""A node with two neighbours and two workloads, and an agent at each of the five ends.

    outside/left 10.99.7.2 -- eth0 [ host/node 10.99.7.1 ] eth1 -- outside/right 10.99.8.2
                                     |           |
                          alpha/p00 10.65.0.1   beta/p01 10.65.0.2

The node answers for a service and has ports of its own that lead to others (TRANSLATIONS), as
kube-proxy would have it. Neighbours know each other's hardware addresses for good: a host endpoint
without policy shuts neighbour discovery out as well. etcd is reached by the loopback, which has no
host endpoint.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from lab.machine import FAST_PYTHON
from tests.felix.in_kernel import mode
from tests.felix.world import NODE, POOL, POOL6, endpoint_spec, make_world
from tests.felix.world import Pod as Wired
from tests.felix.world import World as FelixWorld
from tests.netpol.ctl import Ctl
from tests.policy_random.flows import TCP, UDP, kinds
from tests.policy_random.generator import API, SOURCE_PORTS, Pod, World
from tests.policy_random.generator_hosts import make_host_world
from tests.policy_random.oracle import Flow
from tests.policy_random.oracle_way import Door, Site, Way
from tests.policy_random.rounds import AGENT, SERVED, Agent, Document, Rounds
from tests.support.netns import Namespace, network_namespace

LEFT, RIGHT, HOST, SERVICE = "outside/left", "outside/right", "host/node", "service/web"
ONE, TWO = "alpha/p00", "beta/p01"
ADDRESSES = {
    LEFT: ("10.99.7.2", "2001:db8:7::2"),
    RIGHT: ("10.99.8.2", "2001:db8:8::2"),
    HOST: ("10.99.7.1", "2001:db8:7::1"),
    ONE: ("10.65.0.1", "fd65::1"),
    TWO: ("10.65.0.2", "fd65::2"),
}
SERVICE_ADDRESSES = ("10.96.0.10", "fd96::10")
INTERFACES = {
    "eth0": ("10.99.7.1", "2001:db8:7::1"),
    "eth1": ("10.99.8.1", "2001:db8:8::1"),
}
WIRES = {ONE: "cali0a", TWO: "cali0b"}
TRANSLATIONS: dict[Door, Door] = {
    (HOST, TCP, 30080): (ONE, TCP, 80),
    (HOST, UDP, 30053): (TWO, UDP, 53),
    (HOST, TCP, 30443): (RIGHT, TCP, 443),
    (SERVICE, TCP, 80): (RIGHT, TCP, 8080),
    (SERVICE, UDP, 53): (LEFT, UDP, 5353),
}
TRANSLATED_PORTS = tuple(port + 1 for port in SOURCE_PORTS)
"""Where what is translated comes from: translated, it is no connection that is tried as well."""
SAFE_IN, SAFE_OUT = frozenset({(TCP, 443)}), frozenset({(UDP, 53)})
SITE = Site(
    {**ADDRESSES, SERVICE: SERVICE_ADDRESSES},
    # What nobody has is sent to the left.
    {LEFT: "eth0", RIGHT: "eth1", HOST: "", SERVICE: "eth0", **WIRES},
    INTERFACES,
    TRANSLATIONS,
    SAFE_IN,
    SAFE_OUT,
)
ENVIRONMENT = {
    "FELIX_FAILSAFEINBOUNDHOSTPORTS": "tcp:443",
    "FELIX_FAILSAFEOUTBOUNDHOSTPORTS": "udp:53",
}


def ends() -> list[Pod]:
    """All ends."""
    return [end(title) for title in ADDRESSES]


def end(title: str) -> Pod:
    """An end of packets, as the generator knows it."""
    namespace, name = title.split("/")
    return Pod(namespace, name, NODE, ADDRESSES[title])


def world_of(seed: int, number: int) -> World:
    """World `number` of a seed on this site."""
    workloads = [end(title) for title in WIRES]
    return make_host_world(seed, number, ends(), workloads, INTERFACES)


def every() -> list[Flow]:
    """All kinds of packets between all ends but the two workloads, and to what is translated."""
    found = [
        Flow(one, other, version, **kind)
        for version in (4, 6)
        for one, other in permutations(ADDRESSES, 2)
        if not {one, other} <= {*WIRES}
        for kind in kinds(version)
    ]
    for version in (4, 6):
        for (door, protocol, port), (_, _, _) in TRANSLATIONS.items():
            found += [
                Flow(source, door, version, protocol, source_port, port)
                for source in ((LEFT, RIGHT) if door == HOST else (HOST,))
                if TRANSLATIONS[door, protocol, port][0] != source
                for source_port in TRANSLATED_PORTS
            ]
    return found


@dataclass
class NodeSite(Rounds):
    """The node with felix, and the ends."""

    world: FelixWorld
    ctl: Ctl
    wired: dict[str, Wired]

    def calicoctl(self, word: str, documents: Sequence[Document]) -> None:
        """On the node."""
        self.ctl.run(word, [json.dumps(document) + "\n" for document in documents])

    def documents(self, world: World) -> list[Document]:
        """All; a workload's endpoint with what the node knows of it."""
        found = [d for d in world.documents if d["kind"] != "WorkloadEndpoint"]
        return found + [self.endpoint(d) for d in world.of("WorkloadEndpoint")]

    def endpoint(self, wanted: Document) -> Document:
        """The workload's real endpoint with what the world changes of it."""
        pod, metadata = wanted["spec"]["pod"], wanted["metadata"]
        real = endpoint_spec(pod, self.wired[f"{metadata['namespace']}/{pod}"])
        new = {k: wanted["spec"].get(k) for k in ("profiles", "ports", "serviceAccountName")}
        spec = {k: v for k, v in {**real, **new}.items() if v}
        return {"apiVersion": API, "kind": "WorkloadEndpoint", "metadata": metadata, "spec": spec}

    def rules(self) -> dict[str, str]:
        """Of the node."""
        native = self.world.environment["FELIX_NFTABLESMODE"] == "Enabled"
        program = "nft list table ip calico" if native else "iptables-nft-save"
        return {NODE: self.world.node.run(*program.split(), check=False)}

    def forget_connections(self) -> None:
        """On the node."""
        self.world.node.run("conntrack", "-F")

    def differences(self, world: World, flows: list[Flow]) -> list[tuple[Flow, bool]]:
        """(flow, whether the oracle allows it) of every flow that real packets see otherwise."""
        way = Way(world.documents, SITE)
        expected = {flow for flow in flows if way.answered(flow)}
        return [(flow, flow in expected) for flow in self.disagreeing(flows, expected)]

    def address(self, flow: Flow) -> str:
        """Where a flow is sent."""
        return str(SITE.address(flow.destination, flow.version))


def neighbours(one: Namespace, this: str, other: Namespace, that: str) -> None:
    """Both ends of a wire know each other for good."""
    both = ((one, this), (other, that))
    for (space, name), (peer, far) in (both, both[::-1]):
        shown = json.loads(peer.run("ip", "-j", "addr", "show", far))[0]
        for address in (each["local"] for each in shown["addr_info"]):
            words = f"ip neigh replace {address} lladdr {shown['address']} dev {name} nud permanent"
            space.run(*words.split())


def wire_right(world: FelixWorld, stack: ExitStack) -> Namespace:
    """The second neighbour, and what both need to reach the workloads and each other."""
    right = stack.enter_context(network_namespace("right"))
    world.node.run(*f"ip link add eth1 type veth peer name eth0 netns {right.name}".split())
    node = (
        "ip addr add 10.99.8.1/24 dev eth1",
        "ip addr add 2001:db8:8::1/64 dev eth1 nodad",
        "ip link set eth1 up",
        "ip -6 route add default via 2001:db8:7::2",
    )
    far = (
        "ip addr add 10.99.8.2/24 dev eth0",
        "ip addr add 2001:db8:8::2/64 dev eth0 nodad",
        "ip link set eth0 up",
        "ip route add default via 10.99.8.1",
        "ip -6 route add default via 2001:db8:8::1",
    )
    near = (
        "ip route add 10.99.8.0/24 via 10.99.7.1",
        "ip -6 route add fd65::/48 via 2001:db8:7::1",
        "ip -6 route add 2001:db8:8::/64 via 2001:db8:7::1",
    )
    for space, commands in ((world.node, node), (right, far), (world.outside, near)):
        for command in commands:
            space.run(*command.split())
    neighbours(world.node, "eth0", world.outside, "eth0")
    neighbours(world.node, "eth1", right, "eth0")
    return right


def translate(node: Namespace) -> None:
    """What kube-proxy would do."""
    every_door = {HOST: ADDRESSES[HOST], SERVICE: SERVICE_ADDRESSES}
    for (door, protocol, port), (end, _, target) in TRANSLATIONS.items():
        word = "tcp" if protocol == TCP else "udp"
        hook = "PREROUTING" if door == HOST else "OUTPUT"
        for program, address, to in (
            ("iptables-nft", every_door[door][0], f"{ADDRESSES[end][0]}:{target}"),
            ("ip6tables-nft", every_door[door][1], f"[{ADDRESSES[end][1]}]:{target}"),
        ):
            rule = f"-A {hook} -d {address} -p {word} --dport {port} -j DNAT --to-destination {to}"
            node.run(program, "-t", "nat", *rule.split())


def start_agent(title: str, space: Namespace) -> Agent:
    """The agent of an end; it says when it is ready."""
    command = space.command(*FAST_PYTHON, str(AGENT), *ADDRESSES[title], *SERVED)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    return Agent(end(title), process)


def start_calicoctl(world: FelixWorld) -> Ctl:
    """A calicoctl that stays, on the node."""
    command = world.node.command(sys.executable, "-m", "tests.netpol.ctl")
    settings = {"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": world.etcd.endpoint}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **settings, "PYTHONPATH": str(Path(__file__).parents[2])},
        bufsize=0,
        start_new_session=True,
    )
    return Ctl(process)


@contextmanager
def node_site(folder: Path, backend: str) -> Iterator[NodeSite]:
    """The site on one back end, taken down at the end."""
    agents: dict[str, Agent] = {}
    with make_world(folder) as world, ExitStack() as stack:
        world.environment |= {**mode(backend), **ENVIRONMENT}
        world.etcd.start()
        world.write_cluster()
        for name, cidr in (("v4", POOL), ("v6", POOL6)):
            # Everybody sees the workloads' own addresses.
            world.put("ippools", name, "IPPool", {"cidr": cidr})
        world.start_felix()
        right = wire_right(world, stack)
        spaces = {LEFT: world.outside, RIGHT: right, HOST: world.node}
        wired = {
            title: world.wire(interface, *ADDRESSES[title]) for title, interface in WIRES.items()
        }
        spaces |= {title: pod.space for title, pod in wired.items()}
        translate(world.node)
        ctl = start_calicoctl(world)
        stack.callback(ctl.end)
        for title, space in spaces.items():
            # The end of a handshake may be lost to policy: what waits for it would not take the
            # same connection's next beginning for a minute.
            space.run("sysctl", "-qw", "net.ipv4.tcp_synack_retries=0")
            agents[title] = start_agent(title, space)
            stack.callback(agents[title].end)
        for agent in agents.values():
            assert agent.read() == "ready"
        world.wait_ready()
        yield NodeSite(agents, world, ctl, wired)
