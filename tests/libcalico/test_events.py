"""Events wait, are counted and are given up as EVT-1 and EVT-2 say; no API is needed for that."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico.kubernetes import events
from libcalico.kubernetes.access import Access
from libcalico.kubernetes.allowance import Allowance
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import Forbidden, Unreachable
from libcalico.kubernetes.event_objects import name_of, node, pod
from libcalico.kubernetes.events import Recorder
from tests.support.patience import until


class Refusing(Client):
    """A client whose every request fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__(lambda: Access("http://127.0.0.1:1"))
        self.error, self.asked = error, 0

    async def request(self, *_: Any, **__: Any) -> bytes:
        self.asked += 1
        raise self.error


def recorder(client: Client) -> Recorder:
    return Recorder(client, "calico-cni", "n1", clock=lambda: 0.0)


WORDS = st.text(max_size=20)


@settings(max_examples=40)
@given(st.text(alphabet="abc-.", min_size=1, max_size=300), WORDS, WORDS)
def test_a_name_is_one_of_kubernetes_and_of_what_is_said(name: str, reason: str, more: str) -> None:
    made = name_of(pod("space", "a" + name, "uid"), "calico-cni", reason, more)
    assert len(made) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", made)
    assert made == name_of(pod("space", "a" + name, "uid"), "calico-cni", reason, more)
    others = {
        name_of(pod("space", "a" + name, "other"), "calico-cni", reason, more),
        name_of(pod("space", "a" + name, "uid"), "calico-node", reason, more),
        name_of(pod("space", "a" + name, "uid"), "calico-cni", reason + "x", more),
        name_of(pod("space", "a" + name, "uid"), "calico-cni", reason, more + "x"),
    }
    assert len({made, *others}) == 5


def test_so_many_at_once_then_one_now_and_then() -> None:
    allowance = Allowance(3, 2.0, 0.0)
    for _ in range(3):
        assert not allowance.wait(0.0)
        allowance.spend(0.0)
    assert allowance.wait(0.0) == 2.0
    assert allowance.wait(1.5) == 0.5
    assert not allowance.wait(2.0)
    assert not allowance.wait(1000.0)
    for _ in range(3):
        allowance.spend(1000.0)
    assert allowance.wait(1000.0), "what was not used is not gathered for ever"


def test_what_waits_is_bounded_and_the_eldest_goes() -> None:
    told = recorder(Refusing(Unreachable("away")))
    for number in range(events.WAITING + 7):
        told.tell(pod("default", f"p{number}", "uid"), "Why", "text")
    for _ in range(50):
        told.tell(node("n1"), "Why", "text")
    assert told.dropped == 8
    assert len(told._waiting) == events.WAITING
    (last,) = [one for key, one in told._known.items() if key[0] == node("n1")]
    assert last.fresh == 50


@pytest.mark.asyncio
async def test_without_the_right_nobody_asks_for_long_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PAUSE", 0.001)
    client = Refusing(Forbidden("POST: 403; does RBAC allow it?", 403))
    told = recorder(client)
    for number in range(10):
        told.tell(node(f"n{number}"), "Why", "text")
    task = asyncio.create_task(told.run())
    await until(lambda: bool(told.dropped))
    told.tell(node("later"), "Why", "text")
    await asyncio.sleep(0.2)
    assert (client.asked, told.dropped, task.done()) == (events.TRIES, 10, False)
    assert caplog.text.count("Events are left out") == 1
    task.cancel()


class Closed(Client):
    """A client of an API that refuses what is of one namespace, by quota or webhook."""

    def __init__(self, closed: str) -> None:
        super().__init__(lambda: Access("http://127.0.0.1:1"))
        self.closed, self.refused = f"/namespaces/{closed}/", 0

    async def request(self, *args: Any, **_: Any) -> bytes:
        if self.closed in args[1]:
            self.refused += 1
            raise Forbidden("POST: 403 exceeded quota", 403)
        return b'{"metadata": {"name": "one"}, "count": 1}'


@pytest.mark.asyncio
async def test_a_namespace_that_takes_none_rests_and_the_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "PAUSE", 0.001)
    client = Closed("closed")
    told = Recorder(client, "calico-cni", "n1")
    task = asyncio.create_task(told.run())
    told.tell(pod("closed", "a", "uid"), "Why", "text")
    told.tell(pod("open", "a", "uid"), "Why", "text")
    await until(lambda: bool(told.dropped))
    assert (client.refused, told.holds(pod("closed", "a", "uid"), "Why")) == (events.TRIES, False)
    told.tell(pod("closed", "b", "uid"), "Why", "text")
    told.tell(pod("open", "b", "uid"), "Why", "text")
    told.tell(node("n1"), "Why", "text")
    await until(lambda: told.written == 3)
    assert (client.refused, len(told._waiting)) == (events.TRIES, 1), "it rests"
    task.cancel()


@pytest.mark.asyncio
async def test_what_cannot_be_written_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAUSE", 0.001)
    client = Refusing(Unreachable("away"))
    told = recorder(client)
    told.tell(node("n1"), "Why", "text")
    task = asyncio.create_task(told.run())
    await until(lambda: bool(told.dropped))
    assert (client.asked, task.done()) == (events.TRIES, False)
    client.error = RuntimeError("a fault of ours")
    told.tell(node("n1"), "Why", "text")
    await until(lambda: told.dropped == 2)
    assert not task.done(), "the work goes on"
    task.cancel()
