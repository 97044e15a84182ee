"""What happens to one node, by chance, and what is looked at when all is quiet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address

from libcalico.errors import MuslinError
from linux import links, routes
from linux.errors import KernelError
from linux.netlink import Socket
from linux.prefixes import parse
from linux.routes import NextHop
from tests.simulation import cluster, felix_trouble, felix_wanted
from tests.simulation.felix_world import COLOURS, NODE, PODS, POOL, QUIET, Node
from tests.simulation.kernel.state import MAIN
from tests.simulation.runner import Run
from tests.simulation.stores.weather import Weather

Act = Callable[[Node], Awaitable[None]]


async def play(run: Run) -> None:
    """The story of one seed."""
    chance, trace = run.chance, run.trace
    machine = run.machine
    machine.dump_parts = chance.choice((1, 2, 40))
    room = chance.choice((100_000, 100_000, 3, 12))
    machine.room = lambda: room
    loop = run.loop
    # What is told in the middle of a dump is heard before its end where threads are late.
    loop.threads.late = chance.choice((1, 1, 1, 30))

    def later(act: Callable[[], None]) -> None:
        loop.call_later(chance.random() * 0.02, act)

    machine.namespace.later = later
    made = cluster.make(chance.random() < 0.5, chance, trace.detail)
    node = Node(run, made, Weather(chance, slow=chance.choice((0.002, 0.01, 0.2))))
    trace.story(f"seed {run.seed}: {type(made).__name__}, {machine.dump_parts} a part, room {room}")
    node.build_machine()
    await node.build_cluster()
    guard = felix_wanted.Guard(node)
    machine.log = guard.kernel_did
    machine.chains.changed = guard.rules_changed
    node.start_felix()
    line = asyncio.create_task(node.client.run())
    acts: list[asyncio.Task[None]] = []
    for _ in range(chance.randint(4, 14)):
        await asyncio.sleep(chance.choice((0.0, 0.01, 0.1, 1.0, 4.0)) * chance.random())
        acts.append(asyncio.create_task(_one(node)))
    await asyncio.wait(acts, timeout=60)
    for act in acts:
        if not act.done():
            act.cancel()
        elif not act.cancelled() and act.exception() is not None:
            trace.fail(f"an actor broke: {act.exception()!r}")
    node.weather.away = False
    if node.felix is None or node.felix.done():
        node.start_felix()
    await node.finish_deletes()
    await node.speaker.tell_all()
    trace.story("quiet")
    await asyncio.sleep(QUIET)
    if not node.speaker.connected:
        await node.speaker.tell_all()
        await asyncio.sleep(QUIET)
    # Whoever waited for a dump may have met the first one only now.
    run.machine.between_parts = lambda: None
    await asyncio.sleep(node.unhealed(felix_trouble.HEALED))
    felix_wanted.check(node)
    line.cancel()
    await asyncio.wait([line])
    await node.stop_felix()


async def _one(node: Node) -> None:
    acts: list[tuple[int, Act]] = [
        (8, _add), (4, _delete), (2, _relabel), (3, _policy), (1, _broken_policy), (2, _path),
        (1, _speaker), (1, _pool), (1, _restart), (1, _outage), (1, _compact), (2, _steal_route),
        (2, _bounce), (1, _foreign_route), (1, _fail_programs), (1, _namespace_noise),
        (2, felix_trouble.steal_in_a_dump), (2, felix_trouble.burst), (2, felix_trouble.forget),
        (1, felix_trouble.delete_again), (2, _renew),
    ]  # fmt: skip
    chosen = node.chance.choices([act for _, act in acts], [weight for weight, _ in acts])[0]
    await chosen(node)


async def _add(node: Node) -> None:
    free = [name for name in PODS if name not in node.busy and name not in node.pods]
    await _one_of(node, free, node.add)


async def _delete(node: Node) -> None:
    await _one_of(node, _idle(node), node.delete)


async def _renew(node: Node) -> None:
    """The pod's sandbox died: its runtime makes another one, and deletes the old one later."""
    await _one_of(node, _idle(node), node.add)


def _idle(node: Node) -> list[str]:
    """The pods that run, and that no call is about."""
    return [n for n, pod in node.pods.items() if pod.running and n not in node.busy]


async def _one_of(node: Node, names: list[str], call: Callable[[str], Awaitable[None]]) -> None:
    """A call of the runtime about one of these, if there are any."""
    if names:
        name = node.chance.choice(names)
        node.busy.add(name)
        try:
            await call(name)
        finally:
            node.busy.discard(name)


async def _relabel(node: Node) -> None:
    if running := _idle(node):
        name = node.chance.choice(running)
        labels = {"colour": node.chance.choice(COLOURS)}
        node.run.trace.story(f"operator: labels {name} {labels}")
        async with node.operator:
            node.pods[name].labels = labels
            await node.cluster.relabel(name, NODE, labels)


async def _policy(node: Node) -> None:
    name = node.chance.choice(("one", "two"))
    if node.chance.random() < 0.3:
        await node.delete_policy(name)
        return
    await node.put_policy(name, node.chance.choice(COLOURS))


async def _broken_policy(node: Node) -> None:
    if node.policies:
        name = node.chance.choice(sorted(node.policies))
        node.run.trace.story(f"operator: policy {name} is garbage now")
        async with node.operator:
            if name in node.policies:
                await node.cluster.corrupt("GlobalNetworkPolicy", name)
                node.garbage.add(name)


async def _path(node: Node) -> None:
    await node.speaker.change()


async def _speaker(node: Node) -> None:
    if node.speaker.connected and node.chance.random() < 0.5:
        await node.speaker.leave()
    else:
        await node.speaker.tell_all()


async def _pool(node: Node) -> None:
    node.pool_disabled = not node.pool_disabled
    node.run.trace.story(f"operator: pool disabled {node.pool_disabled}")
    spec = {"cidr": POOL, "ipipMode": "Never", "vxlanMode": "Never", "natOutgoing": True}
    await node.cluster.resource(
        "IPPool", "pool", {**spec, "nodeSelector": "all()", "disabled": node.pool_disabled}
    )


async def _restart(node: Node) -> None:
    if node.felix is not None and not node.restarting:
        node.restarting = True
        node.run.trace.story("felix is killed")
        node.trouble()
        await node.stop_felix()
        await asyncio.sleep(node.chance.random() * 2)
        node.run.trace.story("felix starts")
        node.start_felix()
        node.trouble()
        node.restarting = False


async def _outage(node: Node) -> None:
    node.run.trace.story("the store is away")
    node.trouble()
    node.weather.away = True
    await asyncio.sleep(node.chance.random() * 8)
    node.weather.away = False
    node.trouble()
    node.run.trace.story("the store is back")


async def _compact(node: Node) -> None:
    node.run.trace.story("the store forgets its history")
    node.cluster.compact()


async def _steal_route(node: Node) -> None:
    mine = [r for r in node.run.machine.namespace.routes if r.table == MAIN and r.protocol == 109]
    if mine:
        route = node.chance.choice(mine)
        node.run.trace.story(f"somebody deletes the route {route.dst}")
        node.meddle(route.dst)
        with Socket() as sock:
            shape = routes.Shape.of(4, (), "blackhole", protocol=109, metric=route.metric)
            sock.transact([routes.delete(routes.Route.of(parse(str(route.dst)), shape))])


async def _bounce(node: Node) -> None:
    running = _idle(node)
    if running:
        name = node.chance.choice(running)
        node.run.trace.story(f"somebody takes the link of {name} down and up")
        node.disturb(name)
        interface = node.pods[name].attachment.host_interface
        with contextlib.suppress(KernelError, MuslinError), Socket() as sock:
            sock.transact([links.set_down(interface)])
            await asyncio.sleep(node.chance.choice((0.0, 0.0, 0.3)))
            sock.transact([links.set_up(interface)])


async def _foreign_route(node: Node) -> None:
    node.run.trace.story("somebody writes a route of his own")
    hop = NextHop(IPv4Address("10.99.0.77"), 0)
    shape = routes.Shape.of(4, (hop,), protocol=4)
    prefix = parse(node.chance.choice(("192.0.2.0/24", "198.51.100.0/24")))
    with Socket() as sock:
        route = routes.Route.of(prefix, shape)
        sock.transact([routes.replace(route)])
        await asyncio.sleep(node.chance.random())
        sock.transact([routes.delete(route)])


async def _fail_programs(node: Node) -> None:
    node.run.trace.story("the next writes of rules fail")
    node.trouble()
    node.run.machine.chains.failing = node.chance.randint(1, 6)


async def _namespace_noise(node: Node) -> None:
    node.run.trace.story("links of others come and go")
    with Socket() as sock:
        for number in range(node.chance.randint(1, 5)):
            made = links.create_veth(
                f"other{number}", mac="02:00:00:00:02:01", mtu=1500, peer_name="x",
                peer_mac=None, peer_netns_fd=0,
            )  # fmt: skip
            sock.transact([made])
            await asyncio.sleep(0)
            sock.transact([links.delete(f"other{number}")])
