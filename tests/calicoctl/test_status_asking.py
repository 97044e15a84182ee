"""Nodes are asked through the datastore, and nothing of it stays."""

from __future__ import annotations

import asyncio

import pytest

from calicoctl.status import asking
from libcalico.datastore.interface import ABSENT, Datastore, Put, Selection
from libcalico.errors import InvalidValue
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.nodestatus import CalicoNodeStatus, CalicoNodeStatusSpec
from tests.calicoctl.status_world import report
from tests.support.etcd import Etcd


async def stored(store: Datastore) -> list[CalicoNodeStatus]:
    return [entry.value for entry in (await store.list(Selection(asking.KIND))).entries]


async def answer(store: Datastore, node: str) -> None:
    """Answer the request for a node, as its agent does."""
    while True:
        for entry in (await store.list(Selection(asking.KIND))).entries:
            if entry.value.spec.node == node:
                told = CalicoNodeStatus(
                    metadata=entry.value.metadata,
                    spec=entry.value.spec,
                    status=report(node, {"10.0.0.2": "Established"}).status,
                )
                await store.commit([Put(entry.key, told, entry.revision, entry)])
                return
        await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_answers_come_and_requests_go(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        questions = asking.Asking(store, ["Agent", "BGP"])
        await questions.ask(["n1", "n2"])
        await answer(store, "n1")
        reports, silent = await questions.reports(0.5)
        assert [one.spec.node for one in reports] == ["n1"]
        assert silent == ["n2"]
        await questions.close()
        assert await stored(store) == []


@pytest.mark.asyncio
async def test_leftovers_of_a_killed_command_go_and_others_stay(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        asked = asking._request("muslin-asked-aa-0", "n1", ["BGP"])
        live = asking._request("muslin-asked-bb-0", "n1", ["BGP"])
        old = Metadata(
            name="muslin-asked-aa-0",
            labels=asked.metadata.labels,
            annotations={asking.UNTIL: "2026-01-01T00:00:00Z"},
        )
        left = CalicoNodeStatus(metadata=old, spec=asked.spec)
        own = CalicoNodeStatus(
            metadata=Metadata(name="muslin-asked-own"), spec=CalicoNodeStatusSpec("n1", ["BGP"], 9)
        )
        for one in (left, live, own):
            await store.commit([Put(ResourceKey(asking.KIND, one.metadata.name), one, ABSENT)])
        questions = asking.Asking(store, ["BGP"])
        await questions.ask([])
        names = [one.metadata.name for one in await stored(store)]
        assert names == ["muslin-asked-bb-0", "muslin-asked-own"]


def test_a_request_expires_by_its_own_time() -> None:
    fresh = asking._request("x", "n1", ["BGP"])
    assert not asking.expired(fresh)


def test_too_many_nodes_are_refused() -> None:
    asking.checked(["n"] * asking.MOST)
    with pytest.raises(InvalidValue, match="201 nodes"):
        asking.checked(["n"] * (asking.MOST + 1))
