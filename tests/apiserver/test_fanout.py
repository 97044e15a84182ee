"""`./run bench fanout --store kubernetes` at a small size.

Each watcher is told of each change once, and what is listed is what felix lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from felix.calc.graph import selections
from libcalico.kubernetes.client import Client
from tests.apiserver import kdd
from tests.bench import _fanout_api as fanout
from tests.bench import _fanout_api_parts as parts
from tests.bench import _fanout_lists as lists
from tests.support.patience import HANG

NODES, PODS_A_NODE, CHANGES = 6, 4, 2
"""The API server ends a watch that has not taken ten events (the least watch channel of its cache),
and a watcher's turn comes late on a loaded machine. So no watcher is ever owed more than that: a
start and an end are told as 10 events to the watch of a node's own pods.
Source:
https://github.com/kubernetes/apiserver/blob/master/pkg/storage/cacher/watch_cache.go."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fanout.ApiWorld]:
    with fanout.api_world(tmp_path_factory.mktemp("fanout"), NODES, PODS_A_NODE) as made:
        yield made


@pytest.mark.promise("F-114")
def test_each_watcher_of_the_api_gets_each_change_once(place: fanout.ApiWorld) -> None:
    sizes = {}
    for name, mode in fanout.MODES.items():
        nodes = place.nodes([fanout.watch(fanout.POD_PATH, place.revision(), mode)])
        nodes.open(NODES, jitter_ms=0)
        nodes.ask("mark")
        wanted = 0
        for events in mode.told * 2:
            place.write(1)
            wanted += events
            nodes.until(wanted, HANG)
        came = nodes.report()
        place.end()
        assert (came["events"], came["lost"]) == (NODES * wanted, 0), name
        assert came["stamped"] > 0, name
        sizes[name] = came["bytes"]
    assert sizes["metadata protobuf"] < sizes["metadata"] < sizes["whole"]
    assert sizes["metadata, placed, running"] < sizes["metadata, placed"] < sizes["metadata"]


def test_the_copies_are_objects_of_their_own(place: fanout.ApiWorld) -> None:
    for path, count in (
        ("/api/v1/nodes", NODES),
        (f"{kdd.CRD}/blockaffinities", NODES),
        (fanout.POD_PATH, NODES * PODS_A_NODE + fanout.WRITERS),
    ):
        found = [one["metadata"] for one in place.api.call("GET", path)["items"]]
        assert len({one["uid"] for one in found}) == len(found) == count, path
        assert len({one["name"] for one in found}) == count, path


def test_all_that_felix_lists_is_asked_for(place: fanout.ApiWorld) -> None:
    asked: list[tuple[str, dict[str, str]]] = []

    class Heard(Client):
        async def request(
            self,
            method: str,
            path: str,
            query: Mapping[str, str] | None = None,
            *rest: Any,
            **named: Any,
        ) -> bytes:
            asked.append((path, {**(query or {})}))
            return await super().request(method, path, query, *rest, **named)

    async def read() -> None:
        async with kdd.opened(place.api, Heard(place.api.source(), timeout=HANG)) as store:
            for selection in selections():
                await store.list(selection)

    asyncio.run(read())
    wanted = [(path, {**query, "limit": str(lists.PAGE)}) for path, query in fanout.followed()]
    assert sorted(map(str, asked)) == sorted(map(str, wanted))


@pytest.mark.parametrize("name", ["whole", "metadata protobuf"])
def test_a_list_is_read_to_its_end(place: fanout.ApiWorld, name: str) -> None:
    whole = lists.Way(fanout.MODES[name], gzip=False, page=0)
    pages = lists.Way(fanout.MODES[name], gzip=False, page=5)
    once = lists.read(place, whole, fanout.POD_PATH, {})
    # Each page says the list's kind and where the next one begins.
    assert once < lists.read(place, pages, fanout.POD_PATH, {}) < 1.1 * once


def test_each_part_has_its_figures(place: fanout.ApiWorld) -> None:
    found = lists.cold(place)
    assert found["all but pods"]["mib"] > 0
    assert found["streaming"]["mib"] > found["metadata protobuf, not packed"]["mib"] > 0
    whole, metadata = (
        parts.heartbeats(place, fanout.MODES[name])["bytes_per_event"]
        for name in ("whole", "metadata")
    )
    assert whole > 3 * metadata > 0
    own = parts.own(place, CHANGES, 0.0, {"server_ms_per_change": 0.0})
    assert (own["lost"], own["events"]) == (0, CHANGES // 2 * 10)
    assert parts.connections(place, NODES)["watches_of_a_node"] > 10
    assert lists.of_all(2.0, 0.5, 5000, 1000)["minutes_by_two_cores"] == 104
    assert parts.saturation({"us_per_change": 100.0}, 1000, 2, 0.0) == 20.0
