"""What a packet of an established connection costs: few rules, however many policies there are.

    client -- cali...1 [ node ] cali...2 -- server, selected by none or by forty policies

Felix's rules are counted by the kernel's own counters, in both back ends.
"""

from __future__ import annotations

import re
import socket
from collections import Counter

import pytest

from tests.felix.world import Pod, World
from tests.support.patience import HANG, wait_for

PORT, PACKETS, WINDOW = 5353, 2000, 50
GROUP, LONERS = 30, 10
MOST = {"nft": 6, "nftables": 4}
"""The jumps to our chains, dispatch (two steps, or a map), and the rule that accepts."""


@pytest.fixture(scope="module")
def pods(world: World) -> tuple[Pod, Pod]:
    made = []
    for number, name in enumerate(("client", "server"), 1):
        pod = world.wire(f"cali{number:010}", f"10.65.0.{number}", f"fd65::{number}")
        world.put_endpoint(name, pod, labels={"role": name})
        made.append(pod)
    made[1].until_reached(made[0].address, "pods reach each other")
    return made[0], made[1]


def counted(world: World) -> Counter[tuple[str, int]]:
    """The packets of each rule of IPv4, by chain and place."""
    found: Counter[tuple[str, int]] = Counter()
    chain, place = "", 0
    for line in world.node.run("nft", "list", "ruleset", "ip").splitlines():
        if name := re.match(r"\tchain (\S+) \{", line):
            chain, place = name.group(1), 0
        elif packets := re.search(r"counter packets (\d+)", line):
            place += 1
            found[chain, place] = int(packets.group(1))
    return found


def connected(client: Pod, server: Pod) -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection that was answered."""

    def sockets(pod: Pod) -> socket.socket:
        return pod.space.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))

    here, there = sockets(client), sockets(server)
    there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    there.bind((server.address, PORT))
    there.settimeout(HANG)
    here.settimeout(HANG)
    here.connect((server.address, PORT))
    here.send(b"?")
    there.sendto(b"!", there.recvfrom(9)[1])
    assert here.recv(9) == b"!"
    return here, there


def met(world: World, client: Pod, server: Pod) -> list[tuple[str, int]]:
    """The rules that every packet of an established connection meets, in no order."""
    here, there = connected(client, server)
    before = counted(world)
    for _ in range(PACKETS // WINDOW):
        for _ in range(WINDOW):
            here.send(b"data")
        # What arrived has met all its rules; a machine that is busy lets packets wait before.
        for _ in range(WINDOW):
            there.recv(9)
    here.close()
    there.close()
    return sorted(rule for rule, n in (counted(world) - before).items() if n >= PACKETS)


def decides(world: World, client: Pod, server: Pod, name: str) -> bool:
    """Whether the first packet of a new connection meets this policy's chain."""
    chain = f"cali-pi-gnp/{name}"

    def packets() -> int:
        return sum(n for (each, _), n in counted(world).items() if each.endswith(chain))

    before = packets()
    for end in connected(client, server):
        end.close()
    return packets() > before


def test_established_packets_meet_as_few_rules_with_forty_policies_as_with_none(
    world: World, pods: tuple[Pod, Pod], backend: str
) -> None:
    without = met(world, *pods)
    assert 2 <= len(without) <= MOST[backend], without
    for number in range(GROUP + LONERS):
        # Ten are of another selector each; the client is let in by the very last one.
        last = number == GROUP + LONERS - 1
        alone = f" && !has(none{number})" if number >= GROUP else ""
        who = "client" if last else f"no{number}"
        rule = {"action": "Allow", "protocol": "UDP", "source": {"selector": f"role == '{who}'"}}
        selector = f"role == 'server'{alone}"
        spec = {"order": number, "selector": selector, "types": ["Ingress"], "ingress": [rule]}
        world.put("globalnetworkpolicies", f"p{number}", "GlobalNetworkPolicy", spec)
    name = f"p{GROUP + LONERS - 1}"
    server = pods[1].interface
    wait_for(lambda: f"cali-pi-gnp/{name}" in world.chain(f"cali-tw-{server}"), "in force")
    assert decides(world, *pods, name), "a first packet meets the policies"
    own = world.chain(f"cali-tw-{server}")
    assert own.count("cali-gi-") == 1, "thirty of one selector are one jump"
    assert len(re.findall(r"cali-pi-gnp/p\d+", own)) == LONERS
    assert met(world, *pods) == without
