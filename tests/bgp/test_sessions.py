"""What a session can be told to be, against BIRD: keys, hops, ports, attributes, AS numbers."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from bgp.speaker.interface import Family, Origin, PeerDown, PeerOpen, PeerUp
from tests.bgp.session_lab import (
    BIRD,
    ME,
    MY_AS,
    RAW,
    Lab,
    RawPeer,
    peer,
    route,
    session,
    static,
    story,
)
from tests.support import bgp_wire as wire
from tests.support.patience import until

CANARY = 'canary-7f3a-$"};'
NET = "10.65.1.0/26"


def processes(lab: Lab) -> list[Path]:
    """The speaker's processes, and this one."""
    pids = lab.space.run("ip", "netns", "pids", lab.space.name).split()
    return [Path("/proc") / pid for pid in {*pids, str(os.getpid())}]


@pytest.mark.promise("F-41")
def test_keys(caplog: pytest.LogCaptureFixture) -> None:
    """TCP-MD5 (RFC 2385): right key up, wrong key not; a key that goes takes none with it.

    A canary: the key is in no log at any level, in no process list or environment, and in no
    file that another user may read. ExaBGP sets it without more than CAP_NET_BIND_SERVICE.
    """
    caplog.set_level(logging.DEBUG)

    async def body(lab: Lab) -> None:
        word = CANARY.replace('"', "").replace("$", "")
        mine = peer(BIRD, password=word)
        lab.start_bird(session(more=f'password "{word}";'), static(NET))
        plain = RawPeer(RAW[0])
        await lab.speaker.configure([mine, peer(plain.local, passive=True)])
        await plain.dial()
        await plain.open()
        await until(lambda: lab.heard.up(BIRD, plain.local), "with its key")
        # Our last word of the opening may still be on its way to BIRD.
        await until(lab.bird_up, "BIRD's side of it")
        status = (Path("/proc") / str(lab.speaker.child_pid) / "status").read_text()
        assert f"CapEff:\t{1 << 10:016x}" in status
        leaks(lab, word, caplog.text)
        # Another key resets this session and no other.
        await lab.speaker.configure(
            [replace(mine, password="wrong"), peer(plain.local, passive=True)]
        )
        await until(lambda: not lab.heard.up(BIRD), "down")
        await asyncio.sleep(3)
        assert not lab.heard.up(BIRD)
        assert lab.heard.of(PeerDown, plain.local) == []
        assert "defined anew: password" in caplog.text
        # Gone, and back without a key: the key did not stay on the socket.
        await lab.speaker.configure([peer(plain.local, passive=True)])
        lab.start_bird(session(), static(NET))
        await until(lambda: set(lab.speaker._applied) == {plain.local}, "gone")
        await lab.speaker.configure([peer(BIRD, passive=True), peer(plain.local, passive=True)])
        await until(lambda: lab.heard.up(BIRD), "without a key")
        assert lab.heard.of(PeerDown, plain.local) == []
        leaks(lab, word, caplog.text)
        await plain.close()

    story(body)


def leaks(lab: Lab, word: str, logged: str) -> None:
    """The canary sings nowhere."""
    import base64

    forms = [word.encode(), base64.b64encode(word.encode()), word.encode().hex().encode()]
    for process in processes(lab):
        try:
            parts = [(process / part).read_bytes() for part in ("comm", "cmdline", "environ")]
        except OSError:
            continue  # gone by now
        assert not any(form in part for form in forms for part in parts), parts[0]
    assert not any(form.decode() in logged for form in forms)
    for path in (lab.directory / "run").rglob("*"):
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            assert mode & 0o077 == 0, path
    assert (lab.directory / "run").stat().st_mode & 0o007 == 0


@pytest.mark.promise("F-49")
def test_hops() -> None:
    """TTL security (RFC 5082) for one peer, any number of hops for another, on one socket."""

    async def body(lab: Lab) -> None:
        lab.start_bird(session(more="ttl security on;").replace("multihop;", "multihop 1;"))
        near, far = RawPeer(RAW[0]), RawPeer(RAW[1])
        await lab.speaker.configure(
            [
                peer(BIRD, ttl_security=1, passive=True),
                peer(near.local, ttl_security=2, passive=True),
                peer(far.local, passive=True),
            ]
        )
        await far.dial(ttl=3)
        await far.open()
        await until(lambda: lab.heard.up(BIRD, far.local), "BIRD and the distant peer")
        await near.dial(ttl=253)  # as from three routers away: one too many
        await near.open()
        await asyncio.sleep(1.5)
        assert not lab.heard.up(near.local)
        await near.close()
        await near.dial(ttl=254, least=255)  # it holds our very first packet to the rule, too
        await near.open()
        await until(lambda: lab.heard.up(near.local), "from the nearest routers")
        await near.close()
        await far.close()

    story(body)


@pytest.mark.promise("F-45")
def test_attributes_out() -> None:
    """All attributes of a route arrive at an internal peer; an external one gets its share."""

    async def body(lab: Lab) -> None:
        lab.start_bird(
            session(more="passive;"),
            session("outside", asn=64500, more="passive;")
            .replace(f"{BIRD}", str(RAW[0]))
            .replace(f"{ME}", str(RAW[1])),
        )
        hop = IPv4Address("10.9.0.6")
        full = route(
            NET,
            next_hop=hop,
            local_pref=321,
            med=77,
            communities=("64512:5", "65535:0"),
            large_communities=("64512:1:2",),
            extended_communities=("0x0002fc0000000007",),
            as_path=(65001, 65002),
            origin=Origin.INCOMPLETE,
            originator_id=IPv4Address("9.9.9.9"),
            cluster_list=("1.1.1.1", "2.2.2.2"),
        )
        mine = replace(full, peers=frozenset({BIRD}))
        theirs = replace(
            full,
            peers=frozenset({RAW[0]}),
            originator_id=None,
            cluster_list=(),
        )
        await lab.speaker.announce([mine, theirs, route("10.65.2.0/26")])
        outer = peer(RAW[0], remote_as=64500, local_address=RAW[1])
        await lab.speaker.configure([peer(BIRD), outer])
        await until(lambda: lab.heard.up(BIRD, RAW[0]), "both")

        def shown(name: str, prefix: str = NET) -> str:
            return lab.birdc("show", "route", "all", prefix, "protocol", name)

        await until(lambda: "BGP.cluster_list" in shown("node1"), "inside")
        inside = shown("node1")
        for line in (
            "BGP.origin: Incomplete",
            "BGP.as_path: 65001 65002",
            f"BGP.next_hop: {hop}",
            "BGP.local_pref: 321",
            "BGP.med: 77",
            "BGP.community: (64512,5) (65535,0)",
            "BGP.originator_id: 9.9.9.9",
            "BGP.cluster_list: 1.1.1.1 2.2.2.2",
            "BGP.ext_community: (rt, 64512, 7)",
            "BGP.large_community: (64512, 1, 2)",
        ):
            assert line in inside, inside
        await until(lambda: "BGP.as_path" in shown("outside"), "outside")
        outside = shown("outside")
        assert f"BGP.as_path: {MY_AS} 65001 65002" in outside
        assert f"BGP.next_hop: {hop}" in outside
        assert "local_pref: 321" not in outside
        # Other attributes are another UPDATE, which may come later.
        other = "10.65.2.0/26"
        await until(lambda: "BGP.as_path" in shown("outside", other), "the other, too")
        plain = shown("outside", other)
        assert f"BGP.as_path: {MY_AS}\n" in plain
        assert f"BGP.next_hop: {RAW[1]}" in plain
        # One attribute changes: replaced in place, never withdrawn.
        await lab.speaker.announce([replace(mine, med=78), theirs, route("10.65.2.0/26")])
        await until(lambda: "BGP.med: 78" in shown("node1"), "the new MED")
        assert lab.speaker.sent(BIRD) == 2
        assert lab.speaker.command_errors == 0

    story(body)


def test_attributes_in_and_several_paths() -> None:
    """ADD-PATH (RFC 7911): two paths of BIRD's for one prefix, each with its attributes."""

    async def body(lab: Lab) -> None:
        lab.start_bird(
            session(channel="add paths tx;").replace(
                "export all", "export where source = RTS_STATIC"
            ),
            "ipv4 table master4;",
            f"""protocol static a {{ ipv4 {{ import filter {{
                bgp_med = 5; bgp_community.add((64500,1)); bgp_large_community.add((1,2,3));
                bgp_ext_community.add((rt,64500,9)); accept; }}; preference 200; }};
                route {NET} unreachable; }}""",
            f"""protocol static b {{ ipv4 {{ import filter {{ bgp_med = 6; accept; }};
                preference 200; }}; route {NET} unreachable; }}""",
        )
        await lab.speaker.configure([peer(BIRD, passive=True)])
        await until(lambda: len(lab.heard.table(BIRD)) == 2, "two paths")
        found = sorted(
            (each.attributes for each in lab.heard.table(BIRD).values()), key=lambda a: a.med or 0
        )
        assert [each.med for each in found] == [5, 6]
        assert found[0].communities == ("64500:1",)
        assert found[0].large_communities == ("1:2:3",)
        assert found[0].extended_communities == ("0x0002fbf400000009",)
        opened = lab.heard.of(PeerOpen, BIRD)[-1]
        assert isinstance(opened, PeerOpen)
        assert opened.add_path == {Family.IPV4}
        # Without the wish there is one path.
        await lab.speaker.configure([peer(BIRD, passive=True, add_path=False)])
        await until(lambda: len(lab.heard.of(PeerUp, BIRD)) == 2, "again")
        await until(lambda: len(lab.heard.table(BIRD)) == 1, "one path")

    story(body)


@pytest.mark.promise("F-57")
def test_ports_addresses_and_keepalives() -> None:
    """listenPort, the peer's port, bindMode, sourceAddress None, keepaliveTime, wide AS numbers."""

    async def body(lab: Lab) -> None:
        wide = 4200000001
        lab.start_bird(
            session(asn=wide, more="passive;")
            .replace(f"local {BIRD} as", f"local {BIRD} port 1790 as")
            .replace(f"neighbor {ME} as", f"neighbor range {ME}/32 as"),
        )
        first = RawPeer(RAW[0])
        small = RawPeer(RAW[1])
        await lab.speaker.configure(
            [
                peer(BIRD, remote_as=wide, port=1790),
                peer(first.local, listen_port=1791, passive=True, keepalive=1),
                peer(small.local, listen_port=1792, listen_any=True, passive=True),
            ]
        )
        await first.dial(port=1791)
        await first.open()
        await small.dial(port=1792, to=IPv4Address("10.9.0.6"))
        await small.open()
        everybody = (BIRD, first.local, small.local)
        await until(lambda: lab.heard.up(*everybody), "all three")
        listening = lab.space.run("ss", "-Hltn", "sport", ">=", ":1", "src", "10.9.0.1")
        everywhere = lab.space.run("ss", "-Hltn")
        assert "10.9.0.1:179 " in listening
        assert "10.9.0.1:1791" in listening
        assert "0.0.0.0:1792" in everywhere
        assert "0.0.0.0:179 " not in everywhere
        beats = [kind for kind, _ in first.messages].count(wire.KEEPALIVE)
        await until(
            lambda: [kind for kind, _ in first.messages].count(wire.KEEPALIVE) >= beats + 2,
            "a KEEPALIVE each second",
        )
        # The others are not disturbed when one moves from the wildcard to the address.
        await lab.speaker.configure(
            [
                peer(BIRD, remote_as=wide, port=1790),
                peer(first.local, listen_port=1791, passive=True, keepalive=1),
                peer(small.local, listen_port=1792, passive=True),
            ]
        )
        await until(lambda: "10.9.0.1:1792" in lab.space.run("ss", "-Hltn"), "moved")
        assert lab.heard.of(PeerDown, BIRD) == []
        assert lab.heard.of(PeerDown, first.local) == []
        await first.close()
        await small.close()

    story(body)


@pytest.mark.promise("F-50", "F-57")
def test_a_peer_on_all_addresses_beside_others_of_the_same_port() -> None:
    """One socket serves both; a peer of the node's address is still refused elsewhere."""

    async def body(lab: Lab) -> None:
        strict, anywhere = RawPeer(RAW[0]), RawPeer(RAW[1])
        own = peer(strict.local, passive=True)
        await lab.speaker.configure([own, peer(anywhere.local, listen_any=True, passive=True)])
        await anywhere.dial(to=IPv4Address("10.9.0.6"))
        await anywhere.open()
        await strict.dial(to=IPv4Address("10.9.0.6"))
        await until(strict.closed.is_set, "refused")
        await strict.close()
        await strict.dial()
        await strict.open()
        await until(lambda: lab.heard.up(strict.local, anywhere.local), "both")
        await lab.speaker.configure([own])
        await until(lambda: "0.0.0.0:179 " not in lab.space.run("ss", "-Hltn"), "the address alone")
        assert lab.heard.of(PeerDown, strict.local) == []
        await strict.close()
        await anywhere.close()

    story(body)


@pytest.mark.promise("F-50")
def test_source_address() -> None:
    """sourceAddress UseNodeIP dials from the node's address; None lets the kernel choose."""

    async def body(lab: Lab) -> None:
        loop = asyncio.get_running_loop()
        dialled: list[str] = []
        server = await asyncio.start_server(
            lambda _, writer: dialled.append(writer.get_extra_info("peername")[0]),
            "10.9.0.5",
            179,
        )
        assert loop.is_running()
        await lab.speaker.configure([peer(RAW[2])])
        await until(lambda: dialled[-1:] == [str(ME)], "from the node's address")
        await lab.speaker.configure([peer(RAW[2], any_source=True)])
        await until(lambda: dialled[-1:] == ["10.9.0.5"], "the kernel's choice")
        server.close()
        await server.wait_closed()
        # That address is the next hop, too: on the peer's network no other is valid.
        await lab.speaker.announce([route("10.65.1.0/26")])
        raw = RawPeer(RAW[2])
        await lab.speaker.configure([peer(RAW[2], any_source=True, listen_any=True, passive=True)])
        await raw.dial(to=RAW[2])
        await raw.open()
        wanted = wire.attribute(0x40, 3, RAW[2].packed)
        await until(lambda: any(wanted in body for body in raw.updates()), "the next hop")
        await raw.close()

    story(body)


def test_what_went_while_a_session_was_down_does_not_come_back() -> None:
    """A new session is told what there is now, and not what an earlier one was told."""
    gone, kept = wire.nlri("10.65.2.0/26"), wire.nlri("10.65.1.0/26")

    async def body(lab: Lab) -> None:
        await lab.speaker.announce([route("10.65.1.0/26"), route("10.65.2.0/26")])
        await lab.speaker.configure([peer(RAW[0], passive=True)])
        raw = RawPeer(RAW[0])
        await raw.dial()
        await raw.open()
        await until(lambda: any(gone in body for body in raw.updates()), "both")
        await raw.close()
        await until(lambda: lab.heard.of(PeerDown), "down")
        await lab.speaker.announce([route("10.65.1.0/26")])
        await raw.dial()
        await raw.open()
        await until(lambda: b"\0\0\0\0" in raw.updates(), "End-of-RIB")
        told = raw.updates()
        assert any(body.endswith(kept) for body in told)
        # Named to be withdrawn at most: the first field of an UPDATE (RFC 4271 4.3).
        assert not any(gone in body[2 + int.from_bytes(body[:2], "big") :] for body in told)
        await raw.close()

    story(body)


def test_a_new_peer_while_routes_are_on_their_way_restarts_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reload that meets routes not sent yet is done all the same, at once."""
    caplog.set_level(logging.INFO)

    async def body(lab: Lab) -> None:
        first, second = RawPeer(RAW[0]), RawPeer(RAW[1])
        both = [peer(first.local, passive=True), peer(second.local, passive=True)]
        await lab.speaker.configure(both[:1])
        await first.dial()
        await first.open()
        await until(lambda: lab.heard.up(first.local), "the first")
        for turn in range(6):
            base = int(IPv4Address("10.66.0.0")) + 4096 * turn
            nets = [f"{IPv4Address(base + number)}/32" for number in range(2000)]
            await lab.speaker.announce([route(net) for net in nets])
            await asyncio.sleep(0.05)
            await lab.speaker.configure(both if turn % 2 == 0 else both[:1])
            reloads = turn + 1
            await until(lambda n=reloads: caplog.text.count("exabgp reloaded") >= n, "done")  # type: ignore[misc]
        await lab.speaker.configure(both)
        await until(lambda: caplog.text.count("exabgp reloaded") >= 7, "with both")
        await second.dial()
        await second.open()
        await until(lambda: lab.heard.up(first.local, second.local), "the second")
        assert lab.speaker.restarts == 0
        assert lab.heard.of(PeerDown, first.local) == []
        await first.close()
        await second.close()

    story(body)
