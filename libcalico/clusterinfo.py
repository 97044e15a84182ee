"""Objects that must exist before anything else: cluster information and the three tiers.

Source: docs/reference/data-model.md#readiness-and-initialisation. `ensure_initialized` is safe to
run on many nodes at once.
"""

from __future__ import annotations

import msgspec

from libcalico.datastore.interface import ABSENT, CommitConflict, Datastore, Put
from libcalico.errors import DatastoreError
from libcalico.model import (
    ClusterInformation,
    ClusterInformationSpec,
    Metadata,
    ResourceKey,
    Tier,
    TierSpec,
)
from libcalico.model.resources.cluster import FIXED_TIERS

CALICO_VERSION = "v3.33.1"
"""The release whose bytes we write; Calico's own calicoctl compares it with its own."""

VERSION = "0.1.0"
"""Written down, as the metadata of the distribution would say it: reading those imports more than a
command of calicoctl does."""

VERSION_ANNOTATION = "muslin/version"
KEY = ResourceKey.to(ClusterInformation, "default")
ATTEMPTS = 10


def _new_guid() -> str:
    import uuid  # few who ask for the version make a cluster

    return uuid.uuid4().hex


def our_version() -> str:
    """The version of this distribution."""
    return VERSION


def merge_cluster_type(existing: str, added: str) -> str:
    """The comma-separated list of the existing words, then the new ones."""
    words = [word.strip() for word in f"{existing},{added}".split(",")]
    return ",".join(dict.fromkeys(word for word in words if word))


def merged(
    current: ClusterInformation | None, cluster_type: str, version: str = CALICO_VERSION
) -> ClusterInformation:
    """The desired cluster information, given what is stored. Pure but for a new GUID."""
    if current is None:
        current = ClusterInformation(metadata=Metadata(name="default"))
    spec = current.spec
    marks = {VERSION_ANNOTATION: our_version()} if version else {}
    return msgspec.structs.replace(
        current,
        metadata=msgspec.structs.replace(
            current.metadata,
            annotations={**current.metadata.annotations, **marks},
        ),
        spec=ClusterInformationSpec(
            clusterGUID=spec.clusterGUID or _new_guid(),
            clusterType=merge_cluster_type(spec.clusterType, cluster_type),
            calicoVersion=version or spec.calicoVersion,
            datastoreReady=True if spec.datastoreReady is None else spec.datastoreReady,
            variant=spec.variant,
        ),
    )


async def ensure_initialized(
    store: Datastore, cluster_type: str, version: str = CALICO_VERSION
) -> None:
    """Make sure that cluster information and tiers exist; merges `cluster_type` (`k8s,bgp`).

    A node says which `version` the cluster runs; a command line does not know it, and passes none.
    Raises DatastoreError.
    """
    for _ in range(ATTEMPTS):
        entry = await store.get(KEY)
        desired = merged(entry.value if entry else None, cluster_type, version)
        if entry is not None and entry.value == desired:
            break
        guard = entry.revision if entry else ABSENT
        try:
            await store.commit([Put(KEY, desired, guard, entry)])
            break
        except CommitConflict:
            continue
    else:
        raise DatastoreError(f"{KEY} kept changing while it was initialised")
    for name, (order, action) in FIXED_TIERS.items():
        key = ResourceKey("Tier", name)
        if await store.get(key) is None:
            tier = Tier(
                metadata=Metadata(name=name), spec=TierSpec(order=order, defaultAction=action)
            )
            try:
                await store.commit([Put(key, tier, ABSENT)])
            except CommitConflict:
                pass
