"""The queue of commands: nothing for a peer that is gone, and what is refused has a name."""

from __future__ import annotations

from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.exabgp import protocol
from bgp.speaker.exabgp.commands import Commands
from bgp.speaker.interface import Family
from tests.bgp.session_lab import BIRD, RAW, Lab, RawPeer, peer, route, session, story, until

PEERS = [peer(address) for address in (BIRD, *RAW)]
NET = ip_network("10.65.1.0/26")


def words(commands: Commands) -> list[str]:
    """All that is said, in order."""
    said = []
    while (line := commands.take()) is not None:
        said.append(line)
        commands.answered(refused=False)
    return said


def for_whom(line: str) -> set[str]:
    """The peers of a command, read word by word."""
    parts = line.split()
    return {parts[at + 1] for at, word in enumerate(parts) if word == "neighbor"}


@given(
    wanted=st.lists(st.sets(st.sampled_from(PEERS), min_size=1), max_size=8),
    gone=st.sets(st.sampled_from(PEERS)),
)
def test_nothing_waits_for_a_peer_that_is_gone(
    wanted: list[set[object]], gone: set[object]
) -> None:
    """CMD-1: every other peer still hears every command, in order."""
    commands, lines = Commands(), []
    for number, some in enumerate(wanted):
        routes = [route(f"10.65.{number}.0/24")]
        lines += list(protocol.announce(routes, some))  # type: ignore[arg-type]
    commands.add(lines)
    for each in gone:
        commands.gone(str(each.address))  # type: ignore[attr-defined]
    left = {str(each.address) for each in gone}  # type: ignore[attr-defined]
    expected = [(for_whom(line) - left, line.partition(" announce ")[2]) for line in lines]
    said = [(for_whom(line), line.partition(" announce ")[2]) for line in words(commands)]
    assert said == [each for each in expected if each[0]]


def test_a_flapping_peer_costs_no_memory_while_exabgp_is_busy() -> None:
    """One command is under way and never answered; a session comes and goes a hundred times."""
    commands = Commands()
    commands.add(["version"])
    assert commands.take() == "version"
    table = [route(f"10.65.{number}.0/24") for number in range(200)]
    for _ in range(100):
        commands.add(protocol.announce(table, [PEERS[1]]))
        commands.add([protocol.end_of_rib(RAW[0], Family.IPV4)])
        commands.gone(str(RAW[0]))
    assert len(commands) == 0


def test_a_refusal_names_route_and_peer_until_it_is_told() -> None:
    """CMD-2; the answer for a peer that went meanwhile blames nobody."""
    commands = Commands()
    lines = list(protocol.announce([route(str(NET), communities=("70000:1",))], PEERS[:2]))
    commands.add(lines)
    commands.take()
    commands.gone(str(RAW[0]))
    commands.answered(refused=True)
    ((subject, why),) = commands.conditions()
    assert subject == f"BGP peer {BIRD}"
    assert str(NET) in why
    assert "70000:1" in why
    commands.add(lines)
    commands.take()
    commands.answered(refused=False)
    assert commands.conditions() == []
    commands.add(lines[:1])
    commands.take()
    commands.answered(refused=True)
    commands.gone(str(BIRD))
    commands.gone(str(RAW[0]))
    assert commands.conditions() == []


def test_what_exabgp_refuses_is_a_condition() -> None:
    """With a real ExaBGP: the other routes arrive; the condition goes when the route is mended."""

    async def body(lab: Lab) -> None:
        lab.start_bird(session())
        raw = RawPeer(RAW[0])
        good, bad = route("10.65.2.0/26"), route(str(NET), communities=("70000:1",))
        await lab.speaker.announce([good, bad])
        await lab.speaker.configure([peer(BIRD), peer(raw.local, passive=True)])
        await until("BIRD", lambda: lab.heard.up(BIRD))
        await until("refused", lab.speaker.conditions)
        ((subject, why),) = lab.speaker.conditions()
        assert subject == f"BGP peer {BIRD}"
        assert str(NET) in why
        await until("the good one", lambda: "10.65.2.0/26" in lab.birdc("show", "route"))
        await lab.speaker.announce([good, route(str(NET), communities=("7000:1",))])
        await until("mended", lambda: not lab.speaker.conditions())
        await until("told", lambda: str(NET) in lab.birdc("show", "route"))
        await raw.close()

    story(body)
