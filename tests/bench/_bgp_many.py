"""Many speakers: a full mesh, and a reflector with its clients; BIRD does the same beside.

Parts mesh and reflector of `./run bench bgp`. Every mesh node has a namespace of its own; clients
of the reflector are processes at addresses of one namespace. Our nodes have no felix: what counts
is what felix would be told, and for BIRD its own table.

All namespaces share the kernel's one table of neighbours, which holds about a thousand: those of
the mesh are written beforehand, and the reflector reaches its clients by one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import TypeVar

from tests.bench._bgp_table import cpu, resident, start_bird
from tests.bench._felix_world import Json
from tests.bench.felix import say
from tests.bgp.bird_client import ask
from tests.bgp.routed import use_pool
from tests.bgp.world import Node, World, cluster
from tests.support.netns import Namespace, network_namespace

Pids = Callable[[], list[int]]
Start = Callable[[World, Node, list[str], ExitStack], tuple[float, Pids]]
T = TypeVar("T")
NODE_MIB = 100
"""What a mesh node of a hundred may take, generously."""
STEP = 0.05
AS_AN_OPERATOR = {"CALICO_LOG_LEVEL": "INFO", "CALICO_BGP_HOLD_TIME": "90"}
"""Tests have it otherwise."""
MY_AS = 64512
FIRST_CLIENT = IPv4Address("10.98.0.1")
CLIENTS_DOOR = "10.99.0.250"


def nodes_that_fit(most: int) -> int:
    """How many mesh nodes the free memory holds, a third of it left alone; said aloud."""
    text = Path("/proc/meminfo").read_text()
    free = int(text.split("MemAvailable:")[1].split()[0]) // 1024
    fits = max(2, min(most, free * 2 // 3 // NODE_MIB))
    say(f"mesh: {fits} of {most} nodes: {free} MiB are free, {NODE_MIB} each")
    return fits


def block_of(number: int) -> str:
    """The block of a node or client."""
    return f"10.{70 + number // 200}.{number % 200}.0/26"


def _compared(ours: Json, peer: Json) -> Json:
    done = not ("unfinished" in ours or "unfinished" in peer)
    return {
        **ours,
        "bird": peer,
        **({"ratio": round(ours["seconds"] / peer["seconds"], 2)} if done else {}),
    }


def mesh(count: int, patience: float) -> Json:
    """Ours, then BIRD's."""
    ours = _mesh_ours(count, patience)
    say(f"mesh: {ours}")
    return {"nodes": count, **_compared(ours, _mesh_bird(count, patience))}


def _mesh_ours(count: int, patience: float) -> Json:
    with ExitStack() as stack:
        world = stack.enter_context(cluster(count))
        nodes = list(world.nodes.values())
        acquaint(nodes)
        for node in nodes:
            world.register(node)
            world.block(node.name, block_of(node.number))
        say(f"mesh: {count} nodes are cabled")
        begun = time.perf_counter()
        for node in nodes:
            node.environ.update(AS_AN_OPERATOR)
            node.start()
        until = begun + patience
        left = _emptied(nodes, lambda node: len(node.ear.table) >= count - 1, until)
        known = time.perf_counter() - begun
        others = {node.name: {each.address for each in nodes} - {node.address} for node in nodes}
        left += _emptied(nodes, lambda node: node.up(*others[node.name]), until)
        seconds = time.perf_counter() - begun
        for node in left[:3]:
            lacking = {each: p["info"] for each, p in node.peers().items() if not _is_up(p)}
            log = node.log.read_text(errors="replace")[-1000:]
            say(f"{node.name} knows {len(node.ear.table)} blocks; sessions: {lacking}\n{log}")
        pids = [_pids(node) for node in nodes]
        return {
            "seconds": round(seconds, 2),
            "routes_known_s": round(known, 2),
            "cpu_s_per_node": round(sum(map(cpu, pids)) / count, 2),
            "pss_mib_per_node": round(sum(map(resident, pids)) / count, 1),
            **_unfinished({node.name for node in left}),
        }


def _is_up(peer: Json) -> bool:
    return bool(peer["info"] == "Established")


def _unfinished(names: Collection[str]) -> Json:
    return {"unfinished": len(names)} if names else {}


def acquaint(nodes: Sequence[Node]) -> None:
    """Everybody's neighbours, once and for all."""
    shown = {node.name: node.space.run("cat", "/sys/class/net/eth0/address") for node in nodes}
    for node in nodes:
        lines = [
            f"neighbour replace {each.address} lladdr {shown[each.name].strip()} dev eth0\n"
            for each in nodes
            if each is not node
        ]
        node.space.run("ip", "-batch", "-", input="".join(lines))


def _pids(node: Node) -> list[int]:
    assert node.process is not None
    return [node.process.pid, *node.exabgp()]


def _mesh_bird(count: int, patience: float) -> Json:
    with ExitStack() as stack:
        world = stack.enter_context(cluster(count))
        nodes = list(world.nodes.values())
        acquaint(nodes)
        birds = []
        begun = time.perf_counter()
        for node in nodes:
            text = _speaker(node.address, block_of(node.number))
            for other in nodes:
                if other is not node:
                    text += _session(other.name, other.address)
            bird = start_bird(node.space, world.directory, f"m{node.number}", text)
            stack.callback(bird.kill)
            birds.append(bird.pid)
        names = [f"m{node.number}" for node in nodes]
        left = _emptied(names, lambda name: _knows(world, name, count - 1), begun + patience)
        return {
            "seconds": round(time.perf_counter() - begun, 2),
            "cpu_s_per_node": round(cpu(birds) / count, 2),
            "pss_mib_per_node": round(resident(birds) / count, 1),
            **_unfinished(left),
        }


def _emptied(asked: Sequence[T], done: Callable[[T], bool], until: float) -> list[T]:
    """Ask one after another, each until it is done: asking takes processor time from the answer.

    Returns those that were not done at `until`, by the performance counter.
    """
    for number, each in enumerate(asked):
        while not done(each):
            if time.perf_counter() > until:
                return [one for one in asked[number:] if not done(one)]
            time.sleep(STEP)
    return []


def _speaker(address: str, block: str, timing: str = "connect delay time 1;") -> str:
    """A BIRD that originates a block; its sessions come from the template `mate`."""
    return f"""
router id {address};
protocol device {{}}
protocol direct {{ ipv4; interface "eth0"; }}
protocol static own {{ ipv4; route {block} unreachable; }}
template bgp mate {{ local {address} as {MY_AS}; strict bind; multihop; {timing}
  connect retry time 1; error wait time 1,2;
  ipv4 {{ import all; export where source = RTS_STATIC; next hop self; }}; }}
"""


def _knows(world: World, name: str, count: int) -> bool:
    """Whether a BIRD has so many routes from others."""
    question = "show route where source = RTS_BGP count"
    try:
        answer = asyncio.run(ask(world.directory / f"{name}.ctl", question))
    except TimeoutError:  # hundreds of BIRDs share two cores: one that has no time to answer
        return False
    return any(line[5:].startswith(f"{count} of ") for line in answer)


def reflector(count: int, patience: float) -> Json:
    """Ours, then BIRD's, before the same clients."""
    ours = _reflected(count, _our_reflector, patience)
    say(f"reflector: {ours}")
    return {"clients": count, **_compared(ours, _reflected(count, _bird_reflector, patience))}


def _session(name: str, address: str) -> str:
    return f"protocol bgp {name} from mate {{ neighbor {address} as {MY_AS}; }}\n"


def _reflected(count: int, start: Start, patience: float) -> Json:
    """Clients run already; seconds from the reflector's start until all know all blocks."""
    with ExitStack() as stack:
        world = stack.enter_context(cluster(1))
        (node,) = world.nodes.values()
        clients = stack.enter_context(network_namespace("clients"))
        addresses = [str(FIRST_CLIENT + number) for number in range(count)]
        _cable(world, node, clients, addresses)
        for number, each in enumerate(addresses):
            text = _speaker(each, block_of(number)) + _session("upstream", node.address)
            client = start_bird(clients, world.directory, f"c{number}", text)
            stack.callback(client.kill)
        names = [f"c{number}" for number in range(count)]
        begun, pids = start(world, node, addresses, stack)
        left = _emptied(names, lambda name: _knows(world, name, count - 1), begun + patience)
        seconds = round(time.perf_counter() - begun, 2)
        found = pids()
        used = {"cpu_s": round(cpu(found), 2), "pss_mib": resident(found)}
        return {"seconds": seconds, **used, **_unfinished(left)}


def _cable(world: World, node: Node, clients: Namespace, addresses: list[str]) -> None:
    """All clients behind one cable on the bridge, on the network 10.98.0.0/16."""
    end = ("peer", "name", "eth0", "netns", clients.name)
    world.hub.run("ip", "link", "add", "clients", "type", "veth", *end)
    world.hub.run("ip", "link", "set", "clients", "master", "br0", "up")
    lines = "\n".join(f"address add {each}/16 dev eth0" for each in addresses)
    clients.run("ip", "-batch", "-", input=lines)
    clients.run("ip", "link", "set", "eth0", "up")
    clients.run("ip", "address", "add", f"{CLIENTS_DOOR}/24", "dev", "eth0")
    node.space.run("ip", "route", "add", "10.98.0.0/16", "via", CLIENTS_DOOR)


def _our_reflector(
    world: World, node: Node, addresses: list[str], _: ExitStack
) -> tuple[float, Pids]:
    use_pool(world)  # bgp tells on what lies in a pool
    own = {"ipv4Address": f"{node.address}/24", "routeReflectorClusterID": "10.99.0.1"}
    world.apply("Node", node.name, {"bgp": own})
    world.apply("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
    for number, each in enumerate(addresses):
        peer = {"peerIP": each, "asNumber": MY_AS, "node": node.name}
        world.apply("BGPPeer", f"c{number}", peer)
    node.environ.update(AS_AN_OPERATOR)
    begun = time.perf_counter()
    node.start()
    return begun, lambda: _pids(node)


def _bird_reflector(
    world: World, node: Node, addresses: list[str], stack: ExitStack
) -> tuple[float, Pids]:
    text = f"""
router id {node.address};
protocol device {{}}
protocol direct {{ ipv4; interface "eth0"; }}
template bgp mate {{ local {node.address} as {MY_AS}; strict bind; multihop; rr client;
  connect delay time 1; connect retry time 1; error wait time 1,2;
  ipv4 {{ import all; export where source = RTS_BGP; }}; }}
"""
    text += "".join(_session(f"c{number}", each) for number, each in enumerate(addresses))
    begun = time.perf_counter()
    bird = start_bird(node.space, world.directory, "rr", text)
    stack.callback(bird.kill)
    return begun, lambda: [bird.pid]
