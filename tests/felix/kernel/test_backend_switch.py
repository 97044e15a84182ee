"""BKE-1: another back end takes over while packets flow, and nothing of the old one is left."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import pytest

from felix.config.parameters import Config
from felix.dataplane.rules import backend_mode, other_backend_cleanup
from felix.dataplane.rules.other_backend_cleanup import OtherBackendCleanup
from libcalico.process.tasks import Background
from linux import programs
from tests.felix.in_kernel import InKernel
from tests.felix.stage import ONLY_CLIENT, Stage, allow, both, make_stage
from tests.felix.world import World
from tests.support.netns import network_namespace
from tests.support.patience import HANG, wait_for

SO_RCVBUFFORCE = 33
"""Not named by Python (asm-generic/socket.h)."""
END = b"end"

KUBE_PROXY = """
add table ip kube-proxy
add chain ip kube-proxy services { type nat hook prerouting priority -100; }
add rule ip kube-proxy services counter
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with make_stage(tmp_path_factory.mktemp("world"), "nft") as stage:
        world = stage.world
        world.stop_felix()
        # The environment says nothing of the mode: the datastore does.
        del world.environment["FELIX_NFTABLESMODE"]
        set_mode(world, "Disabled")
        world.start_felix()
        world.wait_ready()
        yield stage


def set_mode(world: World, mode: str, **more: str) -> None:
    spec = {"nftablesMode": mode, **more}
    world.put("felixconfigurations", "default", "FelixConfiguration", spec)


def ours(world: World) -> tuple[bool, bool, bool]:
    """Whether there is anything of ours in nftables, in iptables, among the ipsets."""
    saved = "".join(
        world.node.run(f"{program}-{kind}-save", check=False)
        for program in ("iptables", "ip6tables")
        for kind in ("nft", "legacy")
    )
    listed = world.node.run("nft", "list", "tables")
    return " calico\n" in listed, "cali" in saved, "cali" in world.node.run("ipset", "list", "-n")


def holds(world: World, wanted: tuple[bool, bool, bool]) -> bool:
    return ours(world) == wanted


NFTABLES, IPTABLES = (True, False, False), (False, True, True)


@contextmanager
def held(stage: Stage) -> Iterator[None]:
    """While this lasts every new flow of the client comes through, and none of the other."""
    over, listening = threading.Event(), threading.Event()
    sent, arrived = {"client": 0, "other": 0}, {"client": 0, "other": 0}

    def send(who: str) -> None:
        while not over.is_set():
            # Another port each time: no connection is known, policy is asked.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(who.encode(), (stage.server.address, 7))
            sent[who] += 1
            time.sleep(0.003)

    def receive() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            # The receiver may stand still while thousands come.
            receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
            receiver.bind(("", 7))
            listening.set()
            while (word := receiver.recv(10)) != END:
                arrived[word.decode()] += 1

    def end() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(END, (stage.server.address, 7))

    with ThreadPoolExecutor(3) as pool:
        receiving = pool.submit(stage.server.space.call, receive)
        assert listening.wait(HANG)
        sending = [
            pool.submit(pod.space.call, partial(send, who))
            for who, pod in (("client", stage.client), ("other", stage.other))
        ]
        try:
            yield
            wait_for(lambda: min(sent.values()) > 100, "enough was sent")
        finally:
            over.set()
            wait(sending)
            # What was let through comes, however late; only then the receiver is told to end.
            with suppress(AssertionError):
                wait_for(lambda: arrived["client"] == sent["client"])
            stage.server.space.call(end)
        for each in (receiving, *sending):
            each.result()
    assert arrived == {"client": sent["client"], "other": 0}


@pytest.mark.promise("F-117")
def test_nftables_and_back_without_a_gap(stage: Stage) -> None:
    world = stage.world
    node = world.node
    stage.policy("case", [allow(source=ONLY_CLIENT)])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    world.iptables("-A", "FORWARD", "-s", "192.0.2.9", "-j", "DROP")
    node.run("ipset", "create", "theirs", "hash:ip", "-exist")
    assert ours(world) == IPTABLES
    for mode, wanted in (("Enabled", NFTABLES), ("Disabled", IPTABLES)):
        with held(stage):
            set_mode(world, mode)
            wait_for(partial(holds, world, wanted))
            time.sleep(0.5)
        stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
        # What comes later is enforced, too.
        stage.policy("more", [allow(protocol="UDP", source={"selector": "role == 'other'"})])
        stage.comes_to(both("other * udp 53", "client * tcp 80"), both("other * tcp 80"))
        world.delete("globalnetworkpolicies", "more")
        stage.comes_to(both("client * udp 53"), both("other * udp 53"))
        assert "192.0.2.9" in node.run("iptables-nft", "-S", "FORWARD")
        assert "theirs" in node.run("ipset", "list", "-n")


def test_there_and_back_before_the_old_rules_are_gone(stage: Stage) -> None:
    """The removal for nftables must not go on once iptables is in use again."""
    world = stage.world
    stage.policy("case", [allow(source=ONLY_CLIENT)])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    wait_for(partial(holds, world, IPTABLES))
    for _ in range(3):
        with held(stage):
            set_mode(world, "Enabled")
            wait_for(lambda: " calico\n" in world.node.run("nft", "list", "tables"))
            begun = world.log().count("programming begins")
            set_mode(world, "Disabled")
            wait_for(lambda n=begun: world.log().count("programming begins") > n)  # type: ignore[misc]
            wait_for(partial(holds, world, IPTABLES))
            world.wait_ready()
        stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))


def test_nothing_is_removed_once_the_cleaner_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []

    async def story() -> None:
        stopped, step = asyncio.Event(), asyncio.Event()

        async def remove(used: str, lock_wait: float, still: Callable[[], bool]) -> dict[str, str]:
            for table in ("filter", "nat"):
                if still():
                    await step.wait()
                    assert not stopped.is_set()
                    removed.append(f"{table} beside {used}")
            return {}

        monkeypatch.setattr(other_backend_cleanup, "remove_leftovers", remove)
        background = Background()
        cleaner = OtherBackendCleanup(background)
        cleaner.clean("nftables", 1.0)
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(cleaner.stop())
        await asyncio.sleep(0)
        assert not stopping.done(), "a step is under way"
        step.set()
        await stopping
        stopped.set()
        while background.busy("removal of another back end's rules"):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert removed == ["filter beside nftables"]
        stopped.clear()
        cleaner.clean("iptables-nft", 1.0)
        while background.busy("removal of another back end's rules"):  # noqa: ASYNC110
            await asyncio.sleep(0)
        background.stop()

    asyncio.run(story())
    assert removed[1:] == ["filter beside iptables-nft", "nat beside iptables-nft"]


def test_auto_follows_kube_proxy(stage: Stage) -> None:
    world = stage.world
    set_mode(world, "Auto")
    stage.policy("case", [allow(source=ONLY_CLIENT)])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    assert ours(world) == IPTABLES
    world.node.run("nft", "-f", "-", input=KUBE_PROXY)
    # It is looked for every fifteen seconds; a change of parameters has it looked for at once.
    if "MUSLIN_FULL_SIZE" not in os.environ:
        set_mode(world, "Auto", logPrefix="x")
    wait_for(lambda: ours(world) == NFTABLES)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    assert InKernel(world.node, native=True).chain("cali-pi-gnp/case")
    world.node.run("nft", "delete", "table", "ip", "kube-proxy")
    set_mode(world, "Disabled")
    wait_for(lambda: ours(world) == IPTABLES)


def test_what_a_dead_felix_left_in_another_back_end_goes(stage: Stage) -> None:
    world = stage.world
    stage.policy("case", [allow(source=ONLY_CLIENT)])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    world.stop_felix(9)
    set_mode(world, "Enabled")
    with held(stage):
        world.start_felix()
        world.wait_ready()
        wait_for(lambda: ours(world) == NFTABLES)
    world.stop_felix(9)
    set_mode(world, "Disabled")
    world.start_felix()
    world.wait_ready()
    wait_for(lambda: ours(world) == IPTABLES)


def test_a_flush_of_everything_is_made_good_at_once(stage: Stage) -> None:
    """As a start-up script does it, long before the next reading back."""
    world = stage.world
    set_mode(world, "Enabled", nftablesRefreshInterval="0s", ipsetsRefreshInterval="0s")
    stage.policy("case", [allow(source=ONLY_CLIENT)])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    wait_for(partial(holds, world, NFTABLES))
    (name,) = [n for n in InKernel(world.node, native=True).sets() if n.startswith("cali40s:")]
    for damage in (
        "flush ruleset",
        "delete table ip6 calico",
        "flush chain ip calico filter-cali-pi-gnp/case",
        f"delete element ip calico {name.replace(':', '-')} {{ 10.65.0.1 }}",
    ):
        before = listing(world)
        world.node.run("nft", *damage.split(" ", maxsplit=4))
        wait_for(partial(repaired, world, before), damage)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    # It counts what it has mended.
    wait_for(lambda: world.metric("muslin_felix_rule_drift_total") > 0)
    set_mode(world, "Disabled")
    wait_for(partial(holds, world, IPTABLES))


def listing(world: World) -> list[str]:
    """Our tables; in what order things stand in them says when they were made."""
    both = (
        world.node.run("nft", "-s", "list", "table", family, "calico", check=False)
        for family in ("ip", "ip6")
    )
    return sorted("".join(both).splitlines())


def repaired(world: World, before: list[str]) -> bool:
    return listing(world) == before


@pytest.mark.parametrize(
    ("xtables", "ipsets", "lacks"),
    [
        (True, True, ""),
        (False, True, "xtables with the match set"),
        (True, False, "IP sets"),
        (False, False, "xtables with the match set (xt_set) and IP sets (ip_set)"),
    ],
)
def test_auto_is_native_where_the_kernel_refuses_what_iptables_needs(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    xtables: bool,
    ipsets: bool,
    lacks: str,
) -> None:
    """Whatever programs the image brings; what the kernel said once counts for good."""
    asked: list[tuple[str, int]] = []

    def has_match(name: str, revision: int) -> bool:
        asked.append((name, revision))
        return xtables

    monkeypatch.setattr(backend_mode, "has_match", has_match)
    monkeypatch.setattr(backend_mode, "has_ipsets", lambda: ipsets)
    monkeypatch.setattr(backend_mode, "legacy_tables", lambda _: [])
    monkeypatch.setattr(programs, "find", lambda _: "/usr/sbin/some")
    backend_mode.lacking_for_iptables.cache_clear()
    caplog.set_level(logging.INFO)
    with network_namespace("auto") as space:
        for mode, wanted in (("Auto", bool(lacks)), ("Disabled", False), ("Enabled", True)):
            config = replace(Config(), nftables_mode=mode)
            assert space.call(partial(backend_mode.native, config)) is wanted, mode
        assert space.call(partial(backend_mode.native, Config())) is bool(lacks)
    backend_mode.lacking_for_iptables.cache_clear()
    assert len(asked) == 1
    assert caplog.text.count("nftablesMode Auto") == bool(lacks)
    assert lacks in caplog.text


def test_auto_asks_this_kernel() -> None:
    backend_mode.lacking_for_iptables.cache_clear()
    with network_namespace("auto") as space:
        assert space.call(backend_mode.lacking_for_iptables) == ""
