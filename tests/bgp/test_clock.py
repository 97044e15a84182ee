"""The wall clock jumps under the speaker: sessions stand, and peers are dialled as ever."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bgp.speaker.exabgp import child_command
from bgp.speaker.interface import PeerDown
from tests.bgp.session_lab import BIRD, RAW, Lab, RawPeer, peer, session, static, story
from tests.support.patience import until
from tests.support.wall_clock import WallClock

HOUR = 3600
NET = "10.65.1.0/26"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[WallClock]:
    """ExaBGP's clock, in a directory that its user can read."""
    folder = Path(tempfile.mkdtemp(prefix=f"clock{os.getpid()}"))
    folder.chmod(0o755)
    made = WallClock(folder)
    given = child_command.environment()
    monkeypatch.setattr(child_command, "environment", lambda: given | made.environment)
    yield made
    shutil.rmtree(folder)


def beats(one: RawPeer) -> int:
    return sum(1 for kind, _ in one.messages if kind == 4)


@pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "forward"])
def test_keepalives_and_dialling_go_on_when_the_clock_jumps(clock: WallClock, jump: int) -> None:
    async def body(lab: Lab) -> None:
        raw = RawPeer(RAW[0])
        await lab.speaker.configure([peer(BIRD), peer(raw.local, passive=True, keepalive=1)])
        await raw.dial()
        await raw.open()
        await until(lambda: lab.heard.up(raw.local), "up")
        await until(lambda: beats(raw) > 1, "a keepalive")
        clock.jump(jump)
        before = beats(raw)
        await until(lambda: beats(raw) > before + 2, "keepalives after the jump")
        clock.jump(0)
        before = beats(raw)
        await until(lambda: beats(raw) > before + 2, "keepalives after the way back")
        # BIRD was not there so far; it waits to be dialled.
        clock.jump(jump)
        lab.start_bird(session(more="passive;"), static(NET))
        await until(lambda: lab.heard.up(BIRD), "BIRD is dialled")
        assert lab.heard.of(PeerDown, raw.local) == []
        await raw.close()

    story(body)
