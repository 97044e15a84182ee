"""Trouble at the worst moment: in the middle of a dump, in a burst that overruns a queue, in what
a store forgot, and DELs that come once more. What felix can heal by what it hears, it has to."""

from __future__ import annotations

import asyncio
import contextlib

from linux import links
from linux.errors import KernelError
from linux.netlink import Socket
from tests.simulation import felix_wanted
from tests.simulation.felix_world import Node, Pod
from tests.simulation.kernel.rows import Route
from tests.simulation.kernel.state import Refused

HEALED = 5.0
"""Seconds in which a route of a pod that somebody took is there again, whatever the refreshes."""
FLOOD = 8


def _routes(node: Node) -> list[tuple[Pod, Route]]:
    """Of pods that run undisturbed."""
    found = []
    for name, pod in sorted(node.pods.items()):
        route = felix_wanted.route_to(node.run.machine, pod)
        if pod.running and name not in node.busy and route is not None:
            found.append((pod, route))
    return found


def _steal(node: Node, pod: Pod, route: Route) -> None:
    """Somebody else deletes it, and felix hears of that."""
    node.disturb(pod.name)
    with contextlib.suppress(Refused):
        node.run.machine.namespace.delete_route(route)
    if node.felix_has_read:
        node.run.loop.call_later(HEALED, _is_back, node, pod, node.agent, node.run.clock.now)


def _is_back(node: Node, pod: Pod, agent: object, since: float) -> None:
    same = node.agent is agent and node.felix is not None and not node.felix.done()
    alone = node.disturbed.get(pod.name) == since and node.pods.get(pod.name) is pod
    if not (same and alone and pod.running and pod.name not in node.busy):
        return
    if felix_wanted.route_to(node.run.machine, pod) is None:
        node.run.trace.fail(f"the route of {pod.name} was deleted and is not put back")


async def steal_in_a_dump(node: Node) -> None:
    """When the next dump stands between two of its parts."""
    node.run.trace.story("somebody waits for a dump, to delete a route in the middle of it")

    def act() -> None:
        found = _routes(node)
        if found and node.chance.random() < 0.5:
            node.run.machine.between_parts = lambda: None
            pod, route = node.chance.choice(found)
            node.run.trace.story(f"somebody deletes the route of {pod.name} in a dump")
            _steal(node, pod, route)

    node.run.machine.between_parts = act


async def burst(node: Node) -> None:
    """So much at once that a queue may be full, and a route goes in it."""
    found = _routes(node)
    if not found:
        return
    pod, route = node.chance.choice(found)
    node.run.trace.story(f"links of others come and go at once, and the route of {pod.name} goes")
    with contextlib.suppress(KernelError), Socket() as sock:
        for number in range(FLOOD):
            made = links.create_veth(
                f"flood{number}", mac="02:00:00:00:03:01", mtu=1500, peer_name="x",
                peer_mac=None, peer_netns_fd=0,
            )  # fmt: skip
            sock.transact([made])
        _steal(node, pod, route)
        for number in range(FLOOD):
            sock.transact([links.delete(f"flood{number}")])


async def forget(node: Node) -> None:
    """Something is deleted while felix hears nothing, and the store forgets that."""
    running = [pod for _, pod in sorted(node.pods.items()) if pod.running]
    if running:
        # One whose end somebody would notice.
        await node.put_policy("one", node.chance.choice(running).labels["colour"])
        await asyncio.sleep(node.chance.random())
    node.run.trace.story("the store is away; what happens meanwhile it forgets")
    node.trouble()
    node.weather.away = True
    await asyncio.sleep(node.chance.random() * 3)
    if node.policies:
        await node.delete_policy(min(node.policies))
    await asyncio.sleep(10 + node.chance.random() * 3)
    node.cluster.compact()
    node.weather.away = False
    node.trouble()
    node.run.trace.story("the store is back")


async def delete_again(node: Node) -> None:
    """A runtime's DEL of a container that is gone for long."""
    if node.past:
        await node.undo(node.chance.choice(node.past))
