"""What happens to addresses, by chance, and what is looked at when all is quiet."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import IPv4Address, IPv4Network

from libcalico.model.keys import AffinityKey, BlockKey, ResourceKey
from tests.simulation import cluster
from tests.simulation.addresses_world import GRACE, POOL, Node, World
from tests.simulation.cluster import EtcdCluster
from tests.simulation.kernel.state import Refused
from tests.simulation.runner import Run

Act = Callable[[World], Awaitable[None]]
PODS = ("a", "b", "c", "d", "e", "f")
NODES = {"node1": "10.99.0.1/24", "node2": "10.99.0.2/24"}
QUIET, QUIET_LEAST = 150.0, 70.0
"""At least longer than the grace that controllers give, and than they take to look again."""
WHOLE = 0.25
"""How often quiet lasts as long as it may."""


async def play(run: Run) -> None:
    """The story of one seed."""
    chance, trace = run.chance, run.trace
    made = cluster.make(chance.random() < 0.5, chance, trace.detail)
    world = World(run, made)
    trace.story(f"seed {run.seed}: {type(made).__name__}")
    await _build(world)
    world.start_controllers()
    await asyncio.sleep(2)
    acts: list[asyncio.Task[None]] = []
    for _ in range(chance.randint(6, 16)):
        await asyncio.sleep(chance.choice((0.0, 0.1, 1.0, 10.0, 40.0)) * chance.random())
        acts.append(asyncio.create_task(_one(world)))
        world.ledger.look()
    await asyncio.wait(acts, timeout=200)
    for act in acts:
        if not act.done():
            act.cancel()
        elif not act.cancelled() and act.exception() is not None:
            trace.fail(f"an actor broke: {act.exception()!r}")
    for node in world.nodes.values():
        node.weather.away = False
        node.weather.lost_answers = 0.0
        if not node.tasks:
            node.start()
    world.weather.away = False
    trace.story("quiet")
    await _settle(world)
    world.ending = True
    await world.stop_controllers()
    for node in (*world.nodes.values(), *world.clones):
        await node.stop()


async def _settle(world: World) -> None:
    """Quiet, until all is as it must be: no seed needs all of it, and some wait for all of it."""
    whole = world.run.chance.random() < WHOLE
    began = world.run.clock.now
    while True:
        await asyncio.sleep(15)
        world.ledger.look()
        waited = world.run.clock.now - began
        wrong = [*world.ledger.lacking(), *_without_endpoint(world), *_not_owned(world)]
        if waited >= QUIET or (waited >= QUIET_LEAST and not wrong and not whole):
            break
    for text in wrong:
        world.run.trace.fail(text)


async def _build(world: World) -> None:
    made = world.cluster
    watched = made.log

    def heard(text: str) -> None:
        watched(text)
        if "assignment/" in text or "/ipamblocks/" in text:
            world.ledger.look()
        world.heard_of(text)

    made.hear(heard)
    await made.ready()
    spec = {"cidr": POOL, "ipipMode": "Never", "vxlanMode": "Never", "blockSize": 29}
    await made.resource("IPPool", "pool", {**spec, "nodeSelector": "all()"})
    node_ = {"leakGracePeriod": GRACE, "reconcilerPeriod": "60s"}
    await made.resource("KubeControllersConfiguration", "default", {"controllers": {"node": node_}})
    for name, address in NODES.items():
        made.api.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name}, "spec": {}})
        node = world.nodes[name] = world.add_node(name, address)
        node.start()
    await asyncio.sleep(3)


async def _one(world: World) -> None:
    acts: list[tuple[int, Act]] = [
        (10, _add), (4, _delete), (2, _delete_affinity), (1, _delete_block), (2, _delete_node),
        (1, _delete_endpoint), (1, _pool), (2, _restart_node), (1, _power), (1, _clone),
        (2, _outage), (1, _restart_controllers), (1, _lost_answers),
        (2, _collect), (1, _rename), (1, _compact),
    ]  # fmt: skip
    chosen = world.run.chance.choices([act for _, act in acts], [weight for weight, _ in acts])[0]
    await chosen(world)


def _node(world: World) -> Node:
    return world.nodes[world.run.chance.choice(sorted(world.nodes))]


async def _add(world: World, on: str = "", fixed: tuple[IPv4Address, ...] = ()) -> None:
    free = [name for name in PODS if name not in world.ledger.pods and name not in world.starting]
    if free:
        name = world.run.chance.choice(free)
        world.starting.add(name)
        node = world.nodes[on] if on else _node(world)
        try:
            await node.begin(node.add(name, fixed), "ADD")
        finally:
            world.starting.discard(name)


async def _delete(world: World) -> None:
    found = [pod for name, pod in world.ledger.pods.items() if name not in world.starting]
    if found:
        pod = world.run.chance.choice(found)
        node = world.nodes[pod.node]
        world.starting.add(pod.name)
        try:
            await node.begin(node.delete(pod), "DEL")
        finally:
            world.starting.discard(pod.name)


def _blocks(world: World) -> list[dict[str, str]]:
    return [b for b in world.ledger.blocks() if str(b.get("affinity")).startswith("host:")]


async def _delete_affinity(world: World) -> None:
    blocks = [each for each in _blocks(world) if IPv4Network(each["cidr"]) not in world.contested]
    if blocks:
        block = world.run.chance.choice(blocks)
        owner = block["affinity"].removeprefix("host:")
        world.run.trace.story(f"operator: deletes the claim of {owner} on {block['cidr']}")
        await world.cluster.delete(AffinityKey(owner, IPv4Network(block["cidr"])))


async def _delete_block(world: World) -> None:
    blocks = _blocks(world)
    if not blocks:
        return
    block = world.run.chance.choice(blocks)
    cidr, owner = IPv4Network(block["cidr"]), block["affinity"].removeprefix("host:")
    world.run.trace.story(f"operator: deletes the block {cidr}")
    world.ledger.doomed.add(cidr)
    await world.cluster.delete(BlockKey(cidr))
    # A pod elsewhere may ask for one of its addresses before its owner writes it again. An operator
    # who deleted the claim as well has given them away.
    others = sorted(world.nodes.keys() - {owner})
    if others and world.ledger.claimed(cidr) and world.run.chance.random() < 0.5:
        fixed = world.run.chance.choice(list(cidr))
        world.contested.add(cidr)
        await _add(world, world.run.chance.choice(others), (fixed,))
        world.contested.discard(cidr)


async def _delete_node(world: World) -> None:
    name = world.run.chance.choice(sorted(world.nodes))
    chance = world.run.chance
    if isinstance(world.cluster, EtcdCluster) and chance.random() < 0.5:
        world.run.trace.story(f"operator: calicoctl delete node {name}, the object alone")
        await world.cluster.delete(ResourceKey("Node", name))
        return
    world.run.trace.story(f"operator: kubectl delete node {name}")
    world.cluster.api.delete(f"/api/v1/nodes/{name}")
    await asyncio.sleep(chance.choice((1.0, 7.0, 15.0)))
    world.run.trace.story(f"kubelet: registers {name}")
    world.cluster.api.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name}, "spec": {}})


async def _delete_endpoint(world: World) -> None:
    if isinstance(world.cluster, EtcdCluster) and world.ledger.pods:
        name, pod = world.run.chance.choice(sorted(world.ledger.pods.items()))
        world.run.trace.story(f"operator: deletes the endpoint of {name}")
        await world.cluster.delete(pod.attachment.endpoint_key)


async def _pool(world: World) -> None:
    disabled = world.run.chance.random() < 0.5
    world.run.trace.story(f"operator: pool disabled {disabled}")
    spec = {"cidr": POOL, "ipipMode": "Never", "vxlanMode": "Never", "blockSize": 29}
    spec |= {"nodeSelector": "all()", "disabled": disabled}
    await world.cluster.resource("IPPool", "pool", spec)


async def _restart_node(world: World) -> None:
    node = _node(world)
    if node.tasks:
        world.run.trace.story(f"{node.name}: its daemons are killed")
        await node.stop()
        await asyncio.sleep(world.run.chance.random() * 20)
        world.run.trace.story(f"{node.name}: its daemons start")
        if not node.tasks:
            node.start()


async def _power(world: World) -> None:
    node = _node(world)
    world.run.trace.story(f"{node.name}: loses power")
    await node.stop()
    node.lose_power()
    await asyncio.sleep(world.run.chance.random() * 30)
    if not node.tasks:
        world.run.trace.story(f"{node.name}: boots")
        node.start()


async def _clone(world: World) -> None:
    if world.clones:
        return
    name = world.run.chance.choice(sorted(world.nodes))
    world.run.trace.story(f"a machine with another address starts as {name}")
    clone = world.add_node(name, "10.99.0.77/24", machine="clone")
    world.clones.append(clone)
    clone.folder.mkdir(parents=True, exist_ok=True)
    # Its calico-node is refused at start-up (node.identity.life); calico-cni runs all the same.
    clone.tasks = [clone.begin(clone._cni(), "cni of the clone")]
    clone.tasks[0].add_done_callback(world.heard)


async def _outage(world: World) -> None:
    weathers = [world.weather, *(node.weather for node in world.nodes.values())]
    weather = world.run.chance.choice(weathers)
    world.run.trace.story("the store is away for one of them")
    weather.away = True
    await asyncio.sleep(world.run.chance.random() * 30)
    weather.away = False


async def _lost_answers(world: World) -> None:
    node = _node(world)
    world.run.trace.story(f"answers to {node.name} get lost")
    node.weather.lost_answers = 0.3
    await asyncio.sleep(world.run.chance.random() * 20)
    node.weather.lost_answers = 0.0


async def _compact(world: World) -> None:
    world.run.trace.story("the store forgets its history")
    world.cluster.compact()


async def _collect(world: World) -> None:
    node = _node(world)
    if node.daemon is not None:
        world.run.trace.story(f"{node.name}: CNI GC of another network")
        node.daemon.server.dispatcher.collect("other", [])


async def _rename(world: World) -> None:
    """Once, for less than the gap of the collector, whose second look may see it otherwise."""
    pods = sorted(world.ledger.pods)
    if not pods or world.renamed:
        return
    world.renamed = True
    pod = world.ledger.pods[world.run.chance.choice(pods)]
    node = world.nodes[pod.node]
    space = node.machine.namespace
    with contextlib.suppress(Refused):
        link = space.named(pod.attachment.host_interface)
        world.run.trace.story(f"{node.name}: somebody renames the link of {pod.name} for a while")
        link.name = "renamed"
        if node.daemon is not None:
            node.daemon.server.dispatcher.collect("other", [])
        await asyncio.sleep(world.run.chance.random() * 7)
        link.name = pod.attachment.host_interface


async def _restart_controllers(world: World) -> None:
    if world.controllers:
        world.run.trace.story("kube-controllers are killed")
        await world.stop_controllers()
        await asyncio.sleep(world.run.chance.random() * 30)
        if not world.controllers:
            world.start_controllers()


def _without_endpoint(world: World) -> Iterator[str]:
    """Whose pods live and have no rules any more."""
    if isinstance(world.cluster, EtcdCluster):
        for pod in world.ledger.pods.values():
            if not world.cluster.has(pod.attachment.endpoint_key):
                yield f"quiet: the endpoint of {pod.name}, which lives, is gone"


def _not_owned(world: World) -> Iterator[str]:
    """What a living node owns, and what is neither there again nor a condition."""
    for node in world.nodes.values():
        conditions = _conditions(node)
        stored = world.cluster.address_of(node.name)
        if stored != node.address:
            yield f"quiet: the Node of {node.name}, which lives, has the address {stored!r}"
        for block in _blocks(world):
            if block["affinity"] != f"host:{node.name}":
                continue
            key = AffinityKey(node.name, IPv4Network(block["cidr"]))
            if not world.cluster.has(key) and block["cidr"] not in conditions:
                yield f"quiet: {node.name} owns {block['cidr']} without a claim"


def _conditions(node: Node) -> str:
    try:
        status = json.loads((node.folder / "status" / "cni.json").read_text())
    except OSError:
        return ""
    return json.dumps(status.get("conditions", []))
