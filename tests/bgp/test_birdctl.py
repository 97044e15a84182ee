"""BIRD's control sockets: what they say, to whom, and that nobody who asks delays the agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.agent.bird_world import AgentWorld
from bgp.agent.status_document import describe
from bgp.bird import birdctl
from bgp.bird.birdanswers import answer
from bgp.bird.birdctl import ControlServer
from bgp.bird.birdlines import Line, encode, last
from bgp.speaker.interface import Announced, Attributes, Family, Origin, PathsReceived, Peer
from tests.bgp.agents import Cluster, affinity, node, resource
from tests.bgp.bird_client import ask, peers
from tests.bgp.memory_speaker import MemorySpeaker
from tests.support.patience import HANG, until

N1, TOR = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.253")


@asynccontextmanager
async def sockets(folder: Path) -> AsyncIterator[Cluster]:
    """n1 and n2 in a mesh of both families, a router, two that are not there; n1's sockets."""
    cluster = Cluster()
    for name in ("n1", "n2"):
        cluster.add(name)
    router = MemorySpeaker(cluster.fabric)
    session = Peer(N1, 64512, TOR, 64500, TOR, (Family.IPV4,))
    await router.configure([session])
    await cluster.say(
        node(1, ipv6Address="fd00::1/64"),
        node(2, ipv6Address="fd00::2/64"),
        resource("BGPPeer", "tor", {"peerIP": "10.0.0.254:1790", "asNumber": 64500}),
        resource("BGPPeer", "near", {"peerIP": str(TOR), "asNumber": 64500, "node": "n1"}),
        resource("BGPPeer", "mine", {"peerIP": "fd00::fe", "asNumber": 64500, "node": "n1"}),
        resource("IPPool", "pods", {"cidr": "10.65.0.0/16"}),
        affinity("n1", "10.65.1.0/26"),
        affinity("n2", "10.65.2.0/26"),
        affinity("n2", "fd65::/122"),
        resource("IPPool", "pods6", {"cidr": "fd65::/48"}),
    )
    agent = cluster.agents["n1"]
    worlds = {family: AgentWorld(agent, family) for family in (4, 6)}
    agent.control = ControlServer(folder, worlds)
    task = asyncio.create_task(agent.control.run())
    try:
        await until(lambda: (folder / "bird6.ctl").exists(), "sockets")
        yield cluster
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await cluster.stop()


async def birdc(path: Path, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *("birdc", "-s", str(path), *words), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), HANG)
    return out.decode()


@pytest.mark.promise("M-129", "M-132", "M-164")
@pytest.mark.asyncio
async def test_a_client_of_the_reference_reads_every_peer(tmp_path: Path) -> None:
    async with sockets(tmp_path) as cluster:
        told = {peer["address"]: peer for peer in describe(cluster.agents["n1"])["peers"]}
        four = await peers(tmp_path / "bird.ctl", ".")
        six = await peers(tmp_path / "bird6.ctl", ":")
        named = {peer[0].partition(".port")[0]: peer for peer in (*four, *six)}
        assert (
            named.keys()
            == told.keys()
            == {*("10.0.0.2", str(TOR), "10.0.0.254", "fd00::2", "fd00::fe")}
        )
        for address, (_, kind, state, since, info) in named.items():
            assert {"Mesh": "node-to-node mesh", "Global": "global", "Node": "node specific"}[
                kind
            ] == told[address]["type"]
            assert state == told[address]["state"]
            assert re.fullmatch(r"\d\d:\d\d:\d\d", since)
            assert info == told[address]["info"].replace("Active", "Passive")
        assert (tmp_path / "bird.ctl").stat().st_mode & 0o777 == 0o660
        assert not (tmp_path / "bird.ctl.json").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.promise("M-129", "M-130", "M-132")
@pytest.mark.asyncio
async def test_debians_birdc_shows_both_tables(tmp_path: Path) -> None:
    async with sockets(tmp_path) as cluster:
        ctl, ctl6 = tmp_path / "bird.ctl", tmp_path / "bird6.ctl"
        shown = await birdc(ctl, "show", "protocols")
        assert re.search(r"^Mesh_10_0_0_2 +BGP +master +up +\S+ +Established$", shown, re.M)
        assert re.search(r"^Global_10_0_0_254_port_1790 BGP +master +start", shown, re.M)
        assert re.search(r"^kernel1 +Kernel +master +start", shown, re.M)
        details = await birdc(ctl, "show", "protocols", "all", "Mesh_10_0_0_2")
        assert "BGP state:          Established" in details
        assert "Routes:         1 imported, 0 filtered, 0 exported" in details
        assert "Global" not in details
        routes = await birdc(ctl, "show", "route")
        assert re.search(r"^10.65.1.0/26 +blackhole \[static1 \S+\] \* \(200\)$", routes, re.M)
        learned = r"^10.65.2.0/26 +unicast \[Mesh_10_0_0_2 \S+\] \* \(100\) \[i\]\n\tvia 10.0.0.2$"
        assert re.search(learned, routes, re.M)
        routes = await birdc(ctl6, "show", "route", "all")
        assert re.search(r"^fd65::/122 +unicast \[Mesh_fd00__2 ", routes, re.M)
        assert "BGP.next_hop: fd00::2" in routes
        status = await birdc(ctl, "show", "status")
        assert "Router ID is 10.0.0.1" in status
        assert "Daemon is up and running" in status
        assert "Graceful restart recovery in progress" in status
        cluster.agents["n1"].gate.passed = True
        assert "recovery" not in await birdc(ctl, "show", "status")
        assert "Access denied" in await birdc(ctl, "configure")


@pytest.mark.promise("M-130")
@pytest.mark.asyncio
async def test_routes_are_chosen_as_asked(tmp_path: Path) -> None:
    async with sockets(tmp_path) as cluster:
        agent, ctl = cluster.agents["n1"], tmp_path / "bird.ctl"
        attributes = Attributes(
            origin=Origin.INCOMPLETE, as_path=(64600, 64700), as_path_length=2, med=7,
            local_pref=200, communities=("64512:7",), large_communities=("1:2:3",),
        )  # fmt: skip
        agent.on_event(
            PathsReceived(TOR, attributes, (Announced(ip_network("10.65.0.0/16"), TOR),))
        )

        async def shown(words: str) -> list[str]:
            return await ask(ctl, f"show route {words}")

        assert (await shown("for 10.65.2.9"))[1].startswith(" 10.65.2.0/26 ")
        assert (await shown("for 10.65.99.9"))[1].startswith(" 10.65.0.0/16 ")
        assert (await shown("for 192.0.2.1")) == ["8001 Network not found"]
        assert (await shown("for fd65::1")) == ["8001 Network not found"]
        assert (await shown("10.65.2.0/26"))[1].startswith(" 10.65.2.0/26 ")
        assert (await shown("10.65.2.0/27")) == ["8001 Network not found"]
        assert len(await shown("protocol static1")) == 3
        assert (await shown("protocol Node_10_0_0_253 count")) == [
            "1007-1 of 3 routes for 3 networks in table master4",
            "0014 Total: 1 of 3 routes for 3 networks in 1 tables",
        ]
        assert (await shown("table master6")) == ["0000 "]
        exported = await shown("export Mesh_10_0_0_2")
        assert [line.split()[0] for line in exported[1:-1]] == [
            "10.65.1.0/26",
            "10.65.0.0/16",
            "via",
        ]
        assert (await shown("all 10.65.0.0/16"))[1:] == [
            re.sub(r"X", (await shown("10.65.0.0/16"))[1].split()[3], line)
            for line in (
                " 10.65.0.0/16         unicast [Node_10_0_0_253 X * (100) [AS64700?]",
                " \tvia 10.0.0.253",
                "1008-\tType: BGP univ",
                "1012-\tBGP.origin: Incomplete",
                " \tBGP.as_path: 64600 64700",
                " \tBGP.next_hop: 10.0.0.253",
                " \tBGP.med: 7",
                " \tBGP.community: (64512,7)",
                " \tBGP.large_community: (1, 2, 3)",
                "0000 ",
            )
        ]
        for wrong in (
            "protocol nosuch",
            "for nothing",
            "10.65.0.1/16",
            "where 1",
            "table x",
            "for",
        ):
            assert (await shown(wrong))[0].startswith("9001 "), wrong
        for denied in ("configure", "disable all", "restart Mesh_10_0_0_2", "down"):
            assert (await ask(ctl, denied))[0].startswith("8007 "), denied
        assert await ask(ctl, "restrict") == ["0016 Access restricted"]
        assert (await ask(ctl, 'show protocols "Nothing*"')) == ["8003 No protocols match"]
        assert len(await ask(ctl, 'show protocols "Mesh*"')) == 3


@pytest.mark.asyncio
async def test_readers_that_do_not_read_and_writers_that_only_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 routes: no client holds the loop for long; the bad ones are cut off."""
    monkeypatch.setattr(birdctl, "STALLED", HANG)
    async with sockets(tmp_path) as cluster:
        agent, ctl = cluster.agents["n1"], tmp_path / "bird.ctl"
        nets = [ip_network((0x14000000 + 256 * number, 24)) for number in range(5_000)]
        agent.on_event(PathsReceived(TOR, Attributes(), tuple(Announced(net, TOR) for net in nets)))
        agent.routing.take_changed()
        stalled = [await asyncio.open_unix_connection(str(ctl)) for _ in range(4)]
        for _, writer in stalled:
            writer.write(b"show route all\n")
        reader, writer = await asyncio.open_unix_connection(str(ctl))
        writer.write(b"x" * 100_000)
        longest, before = 0.0, time.thread_time()
        asking = asyncio.create_task(ask(ctl, "show route"))
        while not asking.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now
        assert len(await asking) == 2 * 5_000 + 3 + 2
        count = await ask(ctl, "show route count")
        assert count[0].startswith("1007-5002 of 5002 routes")
        assert longest < 0.1, f"one turn of the loop cost {longest:.3f} s of processor"
        assert b"9001 the line is too long" in await reader.read()
        for _, other in (*stalled, (reader, writer)):
            other.close()
            with contextlib.suppress(ConnectionError):
                await other.wait_closed()
        assert agent.control is not None
        clients = agent.control._clients
        await until(lambda: not clients, "they left")
        # Now that nobody else is there whom a slow machine could cut off:
        monkeypatch.setattr(birdctl, "STALLED", 0.2)
        _, other = await asyncio.open_unix_connection(str(ctl))
        other.write(b"show route all\n")
        await until(lambda: clients, "it is there")
        await until(lambda: not clients, "cut off")
        other.close()
        with contextlib.suppress(ConnectionError):
            await other.wait_closed()


async def room(path: Path) -> bool:
    """Whether one more client is answered."""
    try:
        return bool(await peers(path, "."))
    except (AssertionError, OSError):
        return False


@pytest.mark.asyncio
async def test_more_clients_than_there_is_room_for(tmp_path: Path) -> None:
    async with sockets(tmp_path):
        ctl = tmp_path / "bird.ctl"
        held = [await asyncio.open_unix_connection(str(ctl)) for _ in range(birdctl.CLIENTS)]
        for reader, _ in held:
            await reader.readline()
        reader, writer = await asyncio.open_unix_connection(str(ctl))
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        for _, other in (*held, (reader, writer)):
            other.close()
        # There is room again when the server has heard of the ends.
        async with asyncio.timeout(HANG):
            while not await room(ctl):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_a_bird_that_runs_is_left_alone(tmp_path: Path) -> None:
    """BCT-1; and the socket of one that is dead is taken over."""
    path = tmp_path / "bird.ctl"
    (tmp_path / "bird6.ctl").touch()
    other = await asyncio.start_unix_server(lambda reader, writer: None, path)
    inode = path.stat().st_ino
    async with sockets(tmp_path) as cluster:
        control = cluster.agents["n1"].control
        assert control is not None
        await until(lambda: 4 in control.trouble, "said")
        assert path.stat().st_ino == inode
        conditions: Any = describe(cluster.agents["n1"])["conditions"]
        assert any("is a BIRD running?" in each["reason"] for each in conditions)
        assert await peers(tmp_path / "bird6.ctl", ":")
        other.close()
        await other.wait_closed()
        await until(lambda: not control.trouble, "taken over")
        assert await peers(path, ".")
    assert json.dumps(control.conditions()) == "[]"


def test_where_the_sockets_are() -> None:
    assert birdctl.directory({}) == Path("/var/run/calico")
    assert birdctl.directory({"CALICO_BIRD_CTL_DIR": "/x"}) == Path("/x")
    assert birdctl.directory({"CALICO_BIRD_CTL_DIR": "none"}) is None


@given(st.lists(st.tuples(st.sampled_from([1007, 1008, 2002]), st.text(max_size=40))), st.text())
def test_no_text_ends_an_answer_early(pairs: list[tuple[int, str]], ending: str) -> None:
    lines = [Line(code, text) for code, text in pairs]
    raw = b"".join(encode([*lines, last(0, ending)])).decode()
    assert raw.count("\n") == len(lines) + 1
    *body, end = raw.split("\n")[:-1]
    assert end.startswith("0000 ")
    assert not any(re.match(r"\d{4} ", line) for line in body)


@given(st.text(max_size=60))
def test_any_command_gets_one_answer(command: str) -> None:
    class Empty:
        version, family = "x", 4

        def __getattr__(self, name: str) -> Any:
            return lambda *_: []

    world: Any = Empty()
    lines = [line for line in answer(command, world) if line is not None]
    assert [line.last for line in lines] == [False] * (len(lines) - 1) + [True]
