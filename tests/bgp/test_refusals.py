"""A definition that ExaBGP refuses harms no other session, and is a condition (BGP-8)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.exabgp.refusals import RETRY, Refusals
from bgp.speaker.interface import IPAddress, Peer, PeerDown, SpeakerDown
from tests.bgp.session_lab import BIRD, RAW, Lab, RawPeer, peer, session, static, story
from tests.support.patience import until

FORBIDDEN = 2
"""A hold time that RFC 4271 4.2 forbids: ExaBGP refuses it, as the stand-in below does."""


async def stand_in(peers: Collection[Peer]) -> str:
    """ExaBGP's rule in little: no hold time of 2, and not more than one peer on port 1."""
    if any(each.hold_time == FORBIDDEN for each in peers):
        return "holdtime must be zero or at least 3 seconds"
    return "port 1 twice" if sum(each.port == 1 for each in peers) > 1 else ""


def made(choices: dict[int, int]) -> dict[IPAddress, Peer]:
    """Peers by number, with their hold times."""
    return {RAW[number]: peer(RAW[number], hold_time=hold) for number, hold in choices.items()}


@given(
    wish=st.dictionaries(st.integers(0, 3), st.sampled_from([FORBIDDEN, 9, 90])),
    held=st.dictionaries(st.integers(0, 3), st.sampled_from([9, 90])),
)
def test_only_what_is_refused_is_held_otherwise(wish: dict[int, int], held: dict[int, int]) -> None:
    """Everything else is as wished; a refused peer is as it was, or is not; each is named."""
    wanted, before = made(wish), made(held)
    refusals = Refusals()
    found = asyncio.run(refusals.usable(wanted, before, stand_in, 0.0))
    bad = {address for address, each in wanted.items() if each.hold_time == FORBIDDEN}
    instead = {
        address: before[address] if address in bad else each
        for address, each in wanted.items()
        if address not in bad or address in before
    }
    assert found == (instead if instead or not before or not bad else before)
    named = {subject for subject, _ in refusals.conditions(wanted)}
    assert named == {f"BGP peer {address}" for address in bad}


def test_what_is_nobodys_fault_leaves_everything_as_it_was() -> None:
    one, two = peer(RAW[0], port=1), peer(RAW[1], port=1)
    held: dict[IPAddress, Peer] = {RAW[0]: one}
    wish: dict[IPAddress, Peer] = {RAW[0]: one, RAW[1]: two}
    wish[RAW[0]] = replace(one, hold_time=9)
    refusals = Refusals()
    assert asyncio.run(refusals.usable(wish, held, stand_in, 0.0)) == held
    ((subject, why),) = refusals.conditions(wish)
    assert subject == "BGP speaker"
    assert "port 1 twice" in why
    # The same wish is tried again after a pause, another one at once.
    assert refusals.instead_of(wish, 1.0) == held
    assert refusals.instead_of(wish, RETRY) == wish
    assert refusals.instead_of(held, 1.0) == held
    assert refusals.conditions(held) == []


@pytest.mark.promise("F-43")
def test_a_refused_definition_ends_no_session() -> None:
    """ExaBGP refuses one peer's new hold time: it and the others stay up, a new one comes up.

    The condition names the peer, the field and ExaBGP's words; it goes with its reason.
    """

    async def body(lab: Lab) -> None:
        lab.start_bird(session(), static("10.50.0.0/24"))
        raw, late = RawPeer(RAW[0]), RawPeer(RAW[1])
        bird, mine = peer(BIRD), peer(raw.local, passive=True)
        await lab.speaker.configure([bird, mine])
        await raw.dial()
        await raw.open()
        await until(lambda: lab.heard.up(BIRD, raw.local), "both")
        pid = lab.speaker.child_pid
        refused = replace(mine, hold_time=FORBIDDEN)
        never = peer(RAW[2], passive=True, ttl_security=300)
        await lab.speaker.configure([bird, refused, never, peer(late.local, passive=True)])
        await until(lambda: late.local in lab.speaker._applied, "applied")
        await late.dial()
        await late.open()
        await until(lambda: lab.heard.up(late.local), "the new one")
        found = dict(lab.speaker.conditions())
        assert set(found) == {f"BGP peer {raw.local}", f"BGP peer {RAW[2]}"}
        assert "hold_time" in found[f"BGP peer {raw.local}"]
        assert "holdtime must be zero or at least 3 seconds" in found[f"BGP peer {raw.local}"]
        assert "incoming-ttl" in found[f"BGP peer {RAW[2]}"]
        assert "no session" in found[f"BGP peer {RAW[2]}"]
        assert lab.speaker.child_pid == pid
        assert lab.heard.of(PeerDown) == []
        await lab.speaker.configure([bird, mine, peer(late.local, passive=True)])
        await until(lambda: not lab.speaker.conditions(), "the reason is gone")
        # A speaker that starts with such a definition holds all other sessions.
        await lab.speaker.configure([])
        await until(lambda: not lab.speaker.running, "stopped")
        lab.heard.events.clear()
        await lab.speaker.configure([bird, refused])
        await until(lambda: lab.heard.up(BIRD), "BIRD")
        assert [what for what, _ in lab.speaker.conditions()] == [f"BGP peer {raw.local}"]
        assert len([each for each in lab.heard.events if isinstance(each, SpeakerDown)]) == 1
        await raw.close()
        await late.close()

    story(body, 240)
