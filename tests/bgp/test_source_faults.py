"""A task of a source that ends, by a fault of ours: logged, told, and begun anew; nothing is lost.

The fault is put into the reflector: no API server makes it fail in this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bgp.cluster import kubernetes
from bgp.cluster.kubernetes import KubernetesServices
from bgp.peering import kubernetes_passwords
from bgp.peering.kubernetes_passwords import KubernetesPasswords
from bgp.peering.passwords import Passwords, SecretRef
from libcalico.kubernetes import objects, service_objects
from libcalico.kubernetes.names import Name
from tests.bgp.test_kubernetes import WEB, piece, web
from tests.support.patience import until

pytestmark = pytest.mark.asyncio
REF = SecretRef("tor", "key")


class Fault(Exception):
    """Nobody expects it."""


class Client:
    """A connection that is never used."""

    async def close(self) -> None:
        pass


class Lists:
    """In place of `Reflector`: tells what there is, and fails when it is told to."""

    broken = False
    secret = b"first"
    services: tuple[Name, ...] = (WEB,)
    living: list[Lists] = []

    def __init__(self, client: Any, resource: Any, sink: Any, *_: Any, **__: Any) -> None:
        self.resource, self.sink, self.error = resource, sink, ""
        self.fail = asyncio.Event()

    async def run(self) -> None:
        if type(self).broken:
            raise Fault("at once")
        self.living.append(self)
        if self.resource is objects.SECRETS:
            self.sink.put(Name("kube-system", "tor"), objects.Secret(data={"key": self.secret}))
        elif self.resource is service_objects.SERVICES:
            for name in type(self).services:
                self.sink.put(name, web(clusterIPs=["10.96.0.7"]))
        else:
            self.sink.put(Name("ns", "s1"), piece(("n1", True)))
        self.sink.listed()
        await self.fail.wait()
        raise Fault("in the middle")


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> type[Lists]:
    """A fresh one for each test, in both modules."""

    class Fresh(Lists):
        living: list[Lists] = []

    async def connect(_: Any) -> Client:
        return Client()

    for module in (kubernetes, kubernetes_passwords):
        monkeypatch.setattr(module, "Reflector", Fresh)
        monkeypatch.setattr(module, "connect", connect)
    return Fresh


def fails(lists: type[Lists]) -> None:
    """What runs now ends by a fault; what follows fails at once, until it is mended."""
    lists.broken = True
    living, lists.living = lists.living, []
    living[0].fail.set()


async def test_services(lists: type[Lists], caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is withdrawn by the fault; what went meanwhile is told as gone."""
    source, told = KubernetesServices({}, retry=0.02), list[Any]()

    async def follow() -> None:
        async for batch in source.batches():
            told.extend(batch.changes)

    source.require()
    task = asyncio.create_task(follow())
    await until(lambda: told, "the service")
    assert [key for key, view in told if view] == [WEB]
    assert source.problem == ""
    fails(lists)
    await until(lambda: "at once" in source.problem, "the fault")
    assert "Fault: in the middle" in caplog.text
    assert len(told) == 1
    lists.broken, lists.services = False, ()
    await until(lambda: source.problem == "", "all is well")
    assert told[1:] == [(WEB, None)]
    await ended(task)


async def test_passwords(lists: type[Lists], caplog: pytest.LogCaptureFixture) -> None:
    """A password that is known stays; one that changed meanwhile is told."""
    source, told = KubernetesPasswords({}, retry=0.02), list[Passwords]()

    async def follow() -> None:
        async for known in source.changes():
            told.append(known)

    source.require(frozenset({REF}))
    task = asyncio.create_task(follow())

    def has(value: str) -> Callable[[], bool]:
        return lambda: bool(told) and told[-1].values == {REF: value}

    await until(has("first"), "the password")
    fails(lists)
    await until(lambda: "at once" in source.problem, "the fault")
    assert "in the middle" in caplog.text
    assert has("first")()
    lists.secret, lists.broken = b"second", False
    await until(has("second"), "the change")
    assert source.problem == ""
    assert "first" not in caplog.text
    assert "second" not in caplog.text
    await ended(task)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
