"""Whether a node is gone: each answer of store and API (LEAK-5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controllers.leadership.fence import FencedStore
from controllers.nodes.node_existence import GRACE, NodeExistence, is_gone
from libcalico.datastore.interface import Entry, Put
from libcalico.errors import DatastoreUnavailable, InvalidValue
from libcalico.kubernetes.errors import Busy, ObjectNotFound, Unreachable
from libcalico.model import Metadata, Node
from libcalico.model.keys import LifeSignKey, ResourceKey
from libcalico.model.resources.node import NodeSpec, OrchRef
from libcalico.model.resources.status import LifeSign
from tests.support.etcd import SMALL_QUOTA, Etcd

KEY = ResourceKey("Node", "n1")


def node(own: str) -> Entry:
    refs = [OrchRef(nodeName=own, orchestrator="k8s")] if own else []
    return Entry(KEY, Node(metadata=Metadata(name="n1"), spec=NodeSpec(orchRefs=refs)), 1, b"")


class Says:
    """A store and an API that give one answer each."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def get(self, *_: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("stored", "api", "gone"),
    [
        (None, None, True),
        (InvalidValue("$", "{", "must be JSON"), None, False),
        (DatastoreUnavailable("away"), None, False),
        (node(""), None, False),
        (node("k1"), object(), False),
        (node("k1"), ObjectNotFound("GET k1", 404, "NotFound"), True),
        (node("k1"), Unreachable("away"), False),
        (node("k1"), Busy("GET k1", 429), False),
    ],
)
def test_who_is_gone(stored: object, api: object, gone: bool) -> None:
    assert asyncio.run(is_gone(Says(stored), Says(api), "n1")) is gone  # type: ignore[arg-type]


class Store:
    """A node that is there or not, and its life sign."""

    def __init__(self) -> None:
        self.node: object = None
        self.sign: object = None

    async def get(self, key: Any) -> Any:
        found = self.sign if isinstance(key, LifeSignKey) else self.node
        if isinstance(found, Exception):
            raise found
        return found


def test_gone_for_good_is_gone_for_a_while_without_a_life_sign() -> None:
    now, store = 0.0, Store()
    presence = NodeExistence(store, Says(object()), clock=lambda: now)  # type: ignore[arg-type]

    def gone(at: float) -> bool:
        nonlocal now
        now = at
        return asyncio.run(presence.gone_for_good("n1"))

    assert not gone(0)
    assert presence.waiting == {"n1": "it is not gone for long"}
    assert not gone(GRACE - 1)
    assert gone(GRACE)
    assert presence.waiting == {}
    store.node = node("")
    assert not gone(GRACE + 1), "it came back"
    store.node = None
    assert not gone(GRACE + 2), "its time begins anew"
    store.sign = object()
    assert not gone(10 * GRACE)
    assert "signs of life" in presence.waiting["n1"]
    store.sign = DatastoreUnavailable("away")
    assert not gone(11 * GRACE)
    store.sign = None
    assert gone(12 * GRACE)
    presence.is_back("n1")
    assert not gone(13 * GRACE)
    assert gone(14 * GRACE)
    presence.forget_others(["n1"])
    assert gone(15 * GRACE), "it holds something still"
    presence.forget_others([])
    assert not gone(16 * GRACE), "all was taken away: who has its name now is another node"


class Api:
    """Kubernetes knows no node."""

    async def get(self, *_: Any) -> Any:
        raise AssertionError("there is no Node to ask for")


@pytest.mark.asyncio
async def test_nothing_of_a_living_node_is_taken_away_because_its_signs_cannot_be_written(
    private_etcd: Etcd,
) -> None:
    """LEAK-6: life signs have a lease and run out, and deletions are carried out all the same."""
    private_etcd.restart_with(SMALL_QUOTA)
    now = 0.0
    async with private_etcd.connect() as store:
        fenced = FencedStore(store, lambda: None)
        presence = NodeExistence(fenced, Api(), clock=lambda: now)  # type: ignore[arg-type]
        await store.commit([Put(LifeSignKey("n1"), LifeSign(bootID="a"), ttl=60)])
        assert not await presence.gone_for_good("n1")
        private_etcd.fill()
        private_etcd.delete("/calico/felix/")  # as if its lease had run out
        now = 2 * GRACE
        assert not await presence.gone_for_good("n1")
        assert "alarm NOSPACE" in presence.waiting["n1"]
        private_etcd.make_room()
        now += GRACE - 1
        assert not await presence.gone_for_good("n1"), "its calico-node has had no time yet"
        await store.commit([Put(LifeSignKey("n1"), LifeSign(bootID="a"), ttl=60)])
        now += GRACE
        assert not await presence.gone_for_good("n1")
        assert "signs of life" in presence.waiting["n1"]
        private_etcd.delete("/calico/felix/")
        assert await presence.gone_for_good("n1")
