"""Packets pay for no comment of felix's rules, whoever wrote them (`linux.iptables.comments`).

pod a -- cali...a [ node ] cali...b -- pod b
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Literal

import pytest

from linux.iptables.comments import moved
from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.connection import Connection
from tests.felix.in_kernel import mode
from tests.felix.kernel.test_restart import kernel_state
from tests.felix.world import Pod, World, make_world
from tests.support.patience import HANG, wait_for

NOT_PLAIN = (b"multiport\0", b"rpfilter\0", b"icmp6\0", b"MASQUERADE\0")
FAMILIES: tuple[Literal[4, 6], ...] = (4, 6)


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.etcd.start()
        world.write_cluster()
        world.environment |= mode("nft")
        world.start_felix()
        world.wait_ready()
        yield world


@pytest.fixture
def pods(world: World) -> tuple[Pod, Pod]:
    a = world.add_pod("a", "cali0000000000a", "10.65.0.1", "fd65::1")
    b = world.add_pod("b", "cali0000000000b", "10.65.0.2", "fd65::2")
    wait_for(lambda: a.reaches(b.address, wait=0.3))
    return a, b


def met(world: World) -> tuple[int, int]:
    """Rules whose comments packets meet for nothing, and those whose last comment is elsewhere."""
    with world.node.entered(), closing(Connection()) as connection:
        rules = [
            rule
            for family in FAMILIES
            for table in ("raw", "nat", "filter")
            for rule in connection.objects(messages.GETRULE, family, table)
        ]
    for_nothing = elsewhere = 0
    for rule in rules:
        userdata = rule.get(messages.RULE_USERDATA, b"")
        elsewhere += b"cali:" in userdata
        listed = rule.get(messages.RULE_EXPRESSIONS, b"")
        before = [data for _, data in m.iterate_attributes(listed)]
        kept = any(each in listed for each in NOT_PLAIN)
        for_nothing += not kept and moved(before, userdata) != (before, userdata)
    return for_nothing, elsewhere


def polished(world: World) -> bool:
    """Whether no packet meets a comment that it need not meet."""
    for_nothing, elsewhere = met(world)
    return not for_nothing and elsewhere > 20


def test_no_packet_meets_a_comment_for_nothing(world: World, pods: tuple[Pod, Pod]) -> None:
    wait_for(lambda: polished(world))
    # Written by a program again, for it is of a new kind.
    rule = {"action": "Allow", "protocol": "TCP", "metadata": {"annotations": {"who": "we"}}}
    spec = {"selector": "all()", "types": ["Ingress"], "ingress": [rule]}
    restores = world.rule_writes
    world.put("globalnetworkpolicies", "p", "GlobalNetworkPolicy", spec)
    wait_for(lambda: "cali-pi-gnp/p" in world.chain(f"cali-tw-{pods[1].interface}"))
    assert world.rule_writes > restores
    wait_for(lambda: polished(world))
    # Whoever mends what another flushed writes what he has learned.
    world.kernel.flush("cali-FORWARD")
    wait_for(lambda: "to-wl-dispatch" in world.chain("cali-FORWARD"))
    wait_for(lambda: polished(world))


def test_rules_of_an_older_felix_are_polished_unfelt(world: World, pods: tuple[Pod, Pod]) -> None:
    """An upgrade: it wrote the same rules, with each comment where packets meet it."""
    wait_for(lambda: polished(world))
    world.stop_felix()
    before = kernel_state(world)
    for program in ("iptables-nft", "ip6tables-nft"):
        written = world.node.run(f"{program}-save", "-c")
        world.node.run(f"{program}-restore", "-c", input=written)
    assert kernel_state(world) == before
    for_nothing, elsewhere = met(world)
    assert for_nothing > 20
    assert not elsewhere
    command = ("ping", "-n", "-q", "-i", "0.01", "-c", "500", pods[1].address)
    pings = subprocess.Popen(pods[0].space.command(*command), stdout=subprocess.PIPE, text=True)
    world.start_felix()
    world.wait_ready()
    wait_for(lambda: polished(world))
    assert world.rule_writes == 0
    assert " 0% packet loss" in pings.communicate(timeout=HANG)[0]
    assert kernel_state(world) == before
