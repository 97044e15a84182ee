"""A list that stays true while its API server is killed, stopped, compacted and put back."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from libcalico.kubernetes.changes import Changes
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.decoding import Page, Query
from libcalico.kubernetes.objects import Object, Resource
from libcalico.kubernetes.reflector import Reflector
from libcalico.process.backoff import Backoff
from tests.apiserver.view import View
from tests.support.apiserver import ApiServer
from tests.support.patience import until

pytestmark = pytest.mark.asyncio
MAPS = Resource("v1", "configmaps", Object)


def put(api: ApiServer, space: str, name: str, value: str = "") -> None:
    api.ensure(
        f"/api/v1/namespaces/{space}/configmaps", {"metadata": {"name": name}, "data": {"v": value}}
    )


def remove(api: ApiServer, space: str, name: str) -> None:
    api.delete(f"/api/v1/namespaces/{space}/configmaps/{name}")


def stored(api: ApiServer, space: str) -> dict[str, str]:
    """What the API has: names and revisions."""
    answer = api.call("GET", f"/api/v1/namespaces/{space}/configmaps")
    return {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in answer["items"]}


def agrees(api: ApiServer, space: str, view: View) -> bool:
    return {name.name: revision for name, revision in view.objects.items()} == stored(api, space)


def follower(api: ApiServer, space: str, view: View, **options: Any) -> Reflector[Object]:
    client = api.client(timeout=options.pop("timeout", 120.0), silence=options.pop("silence", 60.0))
    backoff = Backoff(0.05, 0.3)
    return Reflector(client, MAPS, view, Query(space), backoff=backoff, **options)


@asynccontextmanager
async def running(reflector: Reflector[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()


async def test_the_whole_first_then_every_change(api: ApiServer, space: str) -> None:
    for number in range(7):
        put(api, space, f"m{number}")
    view = View()
    async with running(follower(api, space, view, page=3)):
        await until(lambda: view.lists)
        assert agrees(api, space, view)
        put(api, space, "m0", "changed")
        put(api, space, "new")
        remove(api, space, "m1")
        await until(lambda: agrees(api, space, view))
    assert [name.name for name, _ in view.told[7:]] == ["m0", "new", "m1"]
    assert (view.faults, view.lists) == ([], 1)


async def test_a_watch_that_ends_goes_on_where_it_was(api: ApiServer, space: str) -> None:
    view = View()
    async with running(follower(api, space, view, watch_seconds=(1, 1))):
        for number in range(40):
            put(api, space, f"m{number}")
            await asyncio.sleep(0.1)
        await until(lambda: agrees(api, space, view))
    assert (len(view.told), view.lists, view.faults) == (40, 1, [])


async def test_killed_in_the_middle_nothing_is_told_twice_or_lost(
    api: ApiServer, space: str
) -> None:
    put(api, space, "kept")
    put(api, space, "deleted")
    view = View()
    reflector = follower(api, space, view)
    async with running(reflector):
        await until(lambda: view.lists)
        api.kill()
        await until(lambda: not reflector.connected)
        assert "kept" in view.names
        assert len(view.told) == 2
        # Back, and changed before the follower can know.
        await asyncio.to_thread(api.start)
        remove(api, space, "deleted")
        put(api, space, "later")
        await until(lambda: agrees(api, space, view))
        assert reflector.connected
    assert sorted(name.name for name, _ in view.told[2:]) == ["deleted", "later"]
    assert not view.faults


async def test_a_history_that_was_compacted_is_listed_anew_and_only_differences_told(
    api: ApiServer, space: str
) -> None:
    for name in ("same", "changed", "deleted"):
        put(api, space, name)
    view = View()
    reflector = follower(api, space, view)
    async with running(reflector):
        await until(lambda: view.lists)
    put(api, space, "changed", "x")
    remove(api, space, "deleted")
    put(api, space, "new")
    api.forget_history()
    await asyncio.to_thread(api.restart)
    async with running(reflector):
        await until(lambda: agrees(api, space, view))
    assert view.lists == 2
    assert sorted(name.name for name, _ in view.told[3:]) == ["changed", "deleted", "new"]
    assert not view.faults


class Interrupting(Client):
    """Something happens between the first two pages."""

    between: Callable[[], None] | None = None

    async def page(
        self, resource: Any, query: Query | None = None, *, limit: int = 500, token: str = ""
    ) -> Page[Any]:
        if token and self.between is not None:
            between, self.between = self.between, None
            await asyncio.to_thread(between)
        return await super().page(resource, query, limit=limit, token=token)


async def test_a_list_that_is_forgotten_half_read_is_begun_again(
    api: ApiServer, space: str
) -> None:
    for number in range(6):
        put(api, space, f"m{number}")

    def happens() -> None:
        remove(api, space, "m0")
        put(api, space, "m9")
        api.forget_history()
        api.restart()

    client = Interrupting(api.source())
    client.between = happens
    view = View()
    async with running(Reflector(client, MAPS, view, Query(space), page=2)):
        await until(lambda: view.lists)
        assert client.between is None
        assert agrees(api, space, view)
    assert (view.faults, view.lists) == ([], 1)


async def test_a_server_that_says_nothing_is_left_and_found_again(
    api: ApiServer, space: str
) -> None:
    put(api, space, "one")
    view = View()
    reflector = follower(api, space, view, silence=0.5, timeout=10.0)
    async with running(reflector):
        await until(lambda: view.lists)
        api.pause()
        await until(lambda: not reflector.connected)
        assert view.names == {"one"}
        api.resume()
        put(api, space, "two")
        await until(lambda: view.names == {"one", "two"})
        assert view.lists == 1
    assert not view.faults


async def test_a_store_that_was_put_back_is_listed_anew(
    api: ApiServer, space: str, tmp_path: Path
) -> None:
    put(api, space, "before", "old")
    api.stop()
    shutil.copytree(api.etcd.folder / "data", tmp_path / "data")
    await asyncio.to_thread(api.start)
    view = View(may_go_back=True)
    reflector = follower(api, space, view)
    async with running(reflector):
        await until(lambda: view.lists)
        put(api, space, "before", "new")
        put(api, space, "lost")
        await until(lambda: agrees(api, space, view))
        api.stop()
        shutil.rmtree(api.etcd.folder / "data")
        shutil.copytree(tmp_path / "data", api.etcd.folder / "data")
        await asyncio.to_thread(api.start)
        await until(lambda: agrees(api, space, view))
        assert view.names >= {"before"}
        assert "lost" not in view.names


async def test_whatever_happens_the_view_comes_to_what_is_there(api: ApiServer, space: str) -> None:
    chance = random.Random(20)
    view = View()
    reflector = follower(api, space, view, page=5, watch_seconds=(1, 2), silence=2.0, timeout=2.0)
    async with running(reflector):
        for step in range(120):
            name = f"m{chance.randrange(15)}"
            if chance.random() < 0.3:
                remove(api, space, name)
            else:
                put(api, space, name, str(step))
            if step % 30 == 15:
                if chance.random() < 0.5:
                    api.forget_history()
                await asyncio.to_thread(api.restart)
            elif step % 30 == 29:
                api.pause()
                await asyncio.sleep(chance.random() * 3)
                api.resume()
            await asyncio.sleep(chance.random() * 0.05)
        await until(lambda: agrees(api, space, view))
    assert not view.faults


class Numbers(Object, kw_only=True):
    """What reads a map whose value is a number."""

    data: dict[str, Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]] | None = None


async def test_what_cannot_be_decoded_is_named_and_its_last_version_stays(
    api: ApiServer, space: str
) -> None:
    put(api, space, "kept", "1")
    put(api, space, "never", "x")
    view = View()
    heard: list[set[str]] = []
    reflector = Reflector(
        api.client(),
        Resource("v1", "configmaps", Numbers),
        view,
        Query(space),
        on_status=lambda: heard.append({name.name for name in reflector.broken}),
    )
    async with running(reflector):
        await until(lambda: view.lists)
        assert (view.names, heard[-1]) == ({"kept"}, {"never"})
        put(api, space, "kept", "y")
        await until(lambda: heard[-1] == {"kept", "never"})
        assert view.names == {"kept"}
    # Nor does it go by a new list.
    put(api, space, "other", "3")
    api.forget_history()
    await asyncio.to_thread(api.restart)
    async with running(reflector):
        await until(lambda: view.lists == 2)
        assert (view.names, len(view.told)) == ({"kept", "other"}, 2)
        put(api, space, "never", "2")
        await until(lambda: heard[-1] == {"kept"})
        assert view.names == {"kept", "never", "other"}
        remove(api, space, "kept")
        await until(lambda: heard[-1] == set())
        assert (view.names, view.faults) == ({"never", "other"}, [])


async def test_changes_are_iterated_and_coalesced(api: ApiServer, space: str) -> None:
    put(api, space, "one")
    changes: Changes[Object] = Changes()
    async with running(Reflector(api.client(), MAPS, changes, Query(space))):
        batches = changes.batches()
        first = await anext(batches)
        while not first.complete:
            first = await anext(batches)
        for number in range(5):
            put(api, space, "two", str(number))
        remove(api, space, "one")
        revision = stored(api, space)["two"]
        seen: dict[str, Object | None] = {}
        # Nobody takes what comes until all of it is there.
        await until(lambda: None in changes._waiting.values())
        batch = await anext(batches)
        seen = {name.name: value for name, value in batch.changes.items()}
        assert seen["one"] is None
        assert seen["two"] is not None
        assert seen["two"].metadata.resourceVersion == revision
        assert batch.complete


async def test_a_server_of_before_is_asked_in_the_version_it_knows(
    api: ApiServer, space: str
) -> None:
    """As with EndpointSlices on Kubernetes 1.20 (tests/k8s/test_versions.py)."""
    put(api, space, "one")
    view = View()
    later = Resource("v3", MAPS.plural, Object, before=("v2", "v1"))
    reflector = Reflector(api.client(timeout=120.0), later, view, Query(space))
    async with running(reflector):
        await until(lambda: view.lists)
        put(api, space, "two")
        await until(lambda: agrees(api, space, view))
    assert (reflector.connected, reflector.error) == (True, "")
    nowhere = Reflector(
        api.client(timeout=120.0), Resource("v3", MAPS.plural, Object, before=("v2",)), View()
    )
    async with running(nowhere):
        await until(lambda: "404" in nowhere.error or "not find" in nowhere.error)
    assert not nowhere.has_listed
