"""Policy that holds: repaired, unfelt restarts, closed and named where something is amiss."""

from __future__ import annotations

import pytest

from tests.felix import talk
from tests.felix.stage import ONLY_CLIENT, Stage, allow, both, conditions_of
from tests.felix.world import World
from tests.support.patience import HANG, wait_for


@pytest.mark.promise("M-121")
def test_what_was_taken_away_is_back_within_the_interval(stage: Stage) -> None:
    """A flushed chain, a removed and an added member, an added rule; foreign rules stay."""
    world = stage.world
    stage.policy("case", [allow(protocol="TCP", source=ONLY_CLIENT)])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    kernel = world.kernel
    (name,) = [n for n in kernel.sets() if n.startswith("cali40s:")]
    world.iptables("-A", "FORWARD", "-s", "192.0.2.9", "-j", "DROP")
    world.node.run("ipset", "create", "theirs", "hash:ip", "-exist")
    for damage, what in (
        (kernel.flush, ("cali-pi-gnp/case",)),
        (kernel.take, (name, "10.65.0.1")),
        (kernel.flush, ("cali-tw-cali3server",)),
        (kernel.put, (name, "10.65.0.2")),
        (kernel.accept_all, ("cali-pi-gnp/case",)),
    ):
        damage(*what)
        stage.comes_to({"client 4 tcp 80"}, {"other 4 tcp 80"}, within=6.0)
    wait_for(lambda: "10.65.0.2" not in kernel.members(name))
    wait_for(lambda: "accept" not in world.chain("cali-pi-gnp/case").lower())
    assert "192.0.2.9" in iptables_forward(world)
    assert "theirs" in world.node.run("ipset", "list", "-n")
    world.iptables("-D", "FORWARD", "-s", "192.0.2.9", "-j", "DROP")


def iptables_forward(world: World) -> str:
    """The chain in which others have their rules."""
    return "".join(
        world.node.run(f"iptables-{kind}", "-S", "FORWARD", check=False)
        for kind in ("legacy", "nft")
    )


@pytest.mark.promise("M-121")
def test_a_restart_writes_nothing_and_is_not_felt(stage: Stage) -> None:
    world = stage.world
    stage.policy("case", [allow(protocol="UDP", source=ONLY_CLIENT)])
    stage.comes_to(both("client * udp 53"), both("other * udp 53"))

    def holds() -> bool:
        # A datagram is sent once: it may be late, but what was lost does not come again.
        open_ = talk.udp(stage.client, stage.server, 53, wait=HANG)
        return open_ and not talk.udp(stage.other, stage.server, 53)

    world.stop_felix(9)
    world.start_felix()
    while not world.ready():
        assert holds()
    assert world.rule_writes == 0
    assert world.metric("muslin_felix_ipset_writes_total") == 0
    assert world.metric("felix_active_local_policies") == 1
    assert holds()


def test_a_missing_profile_is_closed_and_named(stage: Stage) -> None:
    world = stage.world
    world.put_endpoint("server", stage.server, labels={"role": "server"}, profiles=["kns.nowhere"])
    try:
        stage.comes_to(set(), both("client * tcp 80", "client * ping"))
        wait_for(lambda: conditions_of(world, "kns.nowhere"))
        assert world.metric("muslin_felix_policy_conditions") >= 1
    finally:
        ports = [{"name": "http", "protocol": "TCP", "port": 80}]
        world.put_endpoint("server", stage.server, labels={"role": "server"}, ports=ports)
    stage.comes_to(both("client * tcp 80", "client * ping"), set())


def test_a_broken_policy_is_named_and_widens_nothing(stage: Stage) -> None:
    world = stage.world
    stage.policy("bad", [allow(protocol="TCP", destination={"ports": ["99999"]})])
    stage.comes_to(set(), both("client * tcp 80", "client * udp 53"))
    wait_for(lambda: conditions_of(world, "bad"))
    assert world.metric("muslin_felix_policy_conditions") >= 1


def test_a_set_that_is_too_large_closes_its_policy_and_no_other(stage: Stage) -> None:
    world = stage.world
    nets = [f"192.0.{a}.{b}/32" for a in range(4) for b in range(250)]
    world.put("globalnetworksets", "many", "GlobalNetworkSet", {"nets": nets}, labels={"m": ""})
    stage.policy("case", [allow(source={"notSelector": "has(m)"})])
    stage.comes_to(set(), both("client * tcp 80"))
    wait_for(lambda: conditions_of(world, "case"))
    # Others go on: a policy that comes now is enforced, a pod that comes now is served.
    stage.policy("more", [allow(protocol="UDP", source=ONLY_CLIENT)])
    stage.comes_to(both("client * udp 53"), both("client * tcp 80", "other * udp 53"))
    world.delete("globalnetworksets", "many")
    stage.comes_to(both("client * tcp 80", "other * tcp 80"), set(), within=15.0)
    wait_for(lambda: not conditions_of(world, "case"))
