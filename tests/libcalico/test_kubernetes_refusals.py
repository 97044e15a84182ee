"""What the Kubernetes datastore never writes is refused before anything else is."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from ipam.admin import node_removal
from libcalico.datastore.interface import Delete
from libcalico.datastore.kubernetes.store import TOGETHER, KubernetesDatastore
from libcalico.errors import DatastoreError
from libcalico.model.keys import ResourceKey


class Untouched:
    """A client that nobody may use: what is refused costs no request."""

    async def request(self, *asked: Any) -> bytes:
        raise AssertionError(f"asked: {asked}")


def test_a_node_is_refused_before_its_addresses_are_freed() -> None:
    store = KubernetesDatastore(Untouched())  # type: ignore[arg-type]
    with pytest.raises(DatastoreError, match="kubectl delete node"):
        asyncio.run(node_removal.clean_up(store, "n1"))


class Hanging:
    """A client whose server never answers; `asked` counts."""

    asked = 0

    async def request(self, *_: Any, **__: Any) -> bytes:
        self.asked += 1
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


@pytest.mark.parametrize("writing", [False, True])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_is_cancelled_leaves_nothing_that_was_begun_and_not_awaited(
    writing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, unraised = Hanging(), list[BaseException | None]()
    # A coroutine that was never awaited is heard of as it is freed.
    with warnings.catch_warnings(action="ignore"):
        gc.collect()
    monkeypatch.setattr("sys.unraisablehook", lambda one: unraised.append(one.exc_value))
    keys = [ResourceKey("GlobalNetworkSet", f"s{number}") for number in range(3 * TOGETHER)]

    async def story() -> None:
        store = KubernetesDatastore(client)  # type: ignore[arg-type]
        call = store.commit([Delete(key) for key in keys]) if writing else store.get_many(keys)
        task = asyncio.ensure_future(call)
        while not client.asked:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    gc.collect()
    # Sockets that another test left may be freed just now: their warnings are of another kind.
    assert [str(one) for one in unraised if isinstance(one, RuntimeWarning)] == []


@pytest.mark.parametrize(
    ("kind", "name", "refused"),
    [
        ("Node", "n1", True),
        ("Profile", "kns.prod", True),
        ("NetworkPolicy", "knp.default.a", True),
        ("GlobalNetworkPolicy", "kcnp.a", True),
        ("NetworkPolicy", "default.a", False),
        ("WorkloadEndpoint", "n1-k8s-web-eth0", False),
        ("IPPool", "a", False),
    ],
)
def test_whose_deletion_is_refused(kind: str, name: str, refused: bool) -> None:
    store = KubernetesDatastore(Untouched())  # type: ignore[arg-type]
    change = Delete(ResourceKey(kind, name, "prod" if kind.startswith(("Net", "Work")) else ""))
    if not refused:
        store.refuse(change)
        return
    with pytest.raises(DatastoreError, match="Kubernetes"):
        store.refuse(change)
