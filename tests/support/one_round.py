"""The time of a call to etcd is over once each endpoint was tried, however fast the machine is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from libcalico.datastore.etcd import connection
from tests.support.patience import HANG


class _Clock:
    """The running loop for `time` alone, with what was slept added."""

    def __init__(self) -> None:
        self.slept = 0.0

    def time(self) -> float:
        return asyncio.get_running_loop().time() + self.slept

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        await asyncio.sleep(0)


def end_after_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pause after the first round last until the call's deadline, and take no time."""
    clock = _Clock()
    given = {"get_running_loop": lambda: clock, "sleep": clock.sleep}
    monkeypatch.setattr(connection, "asyncio", SimpleNamespace(**vars(asyncio) | given))
    monkeypatch.setattr(connection, "ROUND_PAUSE", HANG)


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls to etcd end after one round."""
    end_after_one_round(monkeypatch)
