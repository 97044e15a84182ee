"""Object metadata, as Kubernetes defines it and Calico stores it.

Stored bytes never hold `resourceVersion` or `selfLink`: the codec blanks them. The code that
shows an object fills `resourceVersion` from `Entry.revision`.
Tested in tests/libcalico/test_codec.py and tests/libcalico/test_etcd_store.py.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec

from libcalico.model.base.base import Struct, always

API_VERSION = "projectcalico.org/v3"
LEGACY_VERSION = "v1"
"""Of documents of the first generation, which `libcalico.legacy` reads."""
Duration = Annotated[str, msgspec.Meta(extra={"go": "duration"})]
"""Go's text of a duration, `1m30s`; `defaults` makes it canonical (`90s` is `1m30s`)."""

R = TypeVar("R", bound="APIObject")


class OwnerReference(Struct, frozen=True):
    """An owner of an object (metav1.OwnerReference)."""

    apiVersion: str = always("")
    kind: str = always("")
    name: str = always("")
    uid: str = always("")
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class ManagedFieldsEntry(Struct, frozen=True):
    """The fields that a manager set last (metav1.ManagedFieldsEntry)."""

    manager: str = ""
    operation: str = ""
    apiVersion: str = ""
    time: str | None = None
    fieldsType: str = ""
    fieldsV1: dict[str, Any] | None = None
    subresource: str = ""


class Condition(Struct, frozen=True, kw_only=True):
    """One condition of an object's status (metav1.Condition)."""

    type: str = always("")
    status: str = always("")
    observedGeneration: int = 0
    lastTransitionTime: str | None = always(None)
    reason: str = always("")
    message: str = always("")


class Metadata(Struct, frozen=True):
    """metav1.ObjectMeta. Times are RFC 3339 text, in UTC, to the second."""

    name: str = ""
    generateName: str = ""
    namespace: str = ""
    selfLink: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    creationTimestamp: str = ""
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    ownerReferences: list[OwnerReference] = []
    finalizers: list[str] = []
    managedFields: list[ManagedFieldsEntry] = []


class APIObject(Struct, frozen=True, kw_only=True):
    """The members of every resource; each kind sets `kind` and adds its spec and status."""

    kind: str = always("")
    apiVersion: str = always(API_VERSION)
    metadata: Metadata


def now_text(now: datetime | None = None) -> str:
    """A time as Calico writes it: `2026-08-22T10:11:12Z`; the current time by default."""
    return (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_at(text: str) -> float | None:
    """A time as `now_text` writes it, or another of RFC 3339, in seconds since the epoch.

    One without a zone is of UTC; None for what is no time.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def stamp(resource: R, now: datetime | None = None) -> R:
    """The resource with `uid` and `creationTimestamp` set where they are missing.

    A stored v3 object always has both (docs/reference/data-model.md#resource-values, Create). The
    datastore stamps what it creates; stamp first where the exact bytes are needed before the write.
    """
    metadata = resource.metadata
    if metadata.uid and metadata.creationTimestamp:
        return resource
    fresh = msgspec.structs.replace(
        metadata,
        uid=metadata.uid or str(uuid.uuid4()),
        creationTimestamp=metadata.creationTimestamp or now_text(now),
    )
    return msgspec.structs.replace(resource, metadata=fresh)
