"""What the Kubernetes datastore never writes is refused before anything else is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ipam import node_removal
from libcalico.datastore.interface import Delete
from libcalico.datastore.kubernetes.store import KubernetesDatastore
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
