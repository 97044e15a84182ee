"""A version of an object that counts only for a while, unless it is confirmed.

An operator who writes a policy for the hosts themselves may shut himself out. `calicoctl apply
--confirm-within 60s` stores the new version with an annotation that holds the version before
it and a deadline. Felix takes the earlier version once the deadline has passed;
`calicoctl confirm` removes the annotation in time. Nothing has to be written, or
reached, for the way back (docs/design/0008-confirm-within.md).

Invariants:
  CNF-1  An annotation holds the last version that was confirmed, however many unconfirmed ones
         followed each other.
  CNF-2  An annotation that cannot be read changes nothing: the stored version counts.
Tested in tests/libcalico/test_commit_confirmed.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from libcalico.errors import NO_DOCUMENT, InvalidValue, MuslinError
from libcalico.model.base.meta import now_text
from libcalico.model.codec import decode_value, encode_value
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.kinds import Resource, key_of

ANNOTATION = "muslin/unconfirmed"
KINDS = frozenset(
    {
        "GlobalNetworkPolicy",
        "NetworkPolicy",
        "HostEndpoint",
        "GlobalNetworkSet",
        "NetworkSet",
        "Profile",
        "Tier",
    }
)
"""The kinds that felix alone acts on, so that felix alone can go back."""

LEAST, MOST = 5.0, 86400.0
R = TypeVar("R", bound=Resource)


class Unconfirmed(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the annotation. `within` in seconds; `previous` None: there was no object."""

    deadline: str
    within: float
    previous: dict[str, object] | None

    @property
    def ends(self) -> datetime:
        """The deadline as a time."""
        return datetime.fromisoformat(self.deadline)

    def passed(self, now: datetime) -> bool:
        """Whether the deadline has passed by this clock."""
        return now >= self.ends


def read(resource: Resource) -> Unconfirmed | None:
    """The annotation of an object, None where there is none. Raises `InvalidValue`."""
    text = resource.metadata.annotations.get(ANNOTATION)
    if text is None:
        return None
    try:
        unconfirmed = msgspec.json.decode(text, type=Unconfirmed)
        if unconfirmed.ends.tzinfo is None:
            raise ValueError("the deadline has no time zone")
    except (*NO_DOCUMENT, ValueError) as error:
        where = f"metadata.annotations[{ANNOTATION}]"
        raise InvalidValue(
            where, text[:60], f"cannot be read: {error}", str(key_of(resource))
        ) from (None)
    return unconfirmed


def previous(key: ResourceKey, unconfirmed: Unconfirmed) -> Any:
    """The version before, None where there was no object. Raises `InvalidValue`."""
    if unconfirmed.previous is None:
        return None
    return decode_value(key, msgspec.json.encode(unconfirmed.previous))


def effective(key: Key, resource: Any, now: datetime) -> Any:
    """The version of a stored object that counts now: itself or the one before (None: none)."""
    if resource is None or not isinstance(key, ResourceKey) or key.kind not in KINDS:
        return resource
    try:
        unconfirmed = read(resource)
        if unconfirmed is None or not unconfirmed.passed(now):
            return resource
        return previous(key, unconfirmed)
    except InvalidValue:
        return resource


def unconfirmed(
    resource: R, stored: Resource | None, within: float, now: datetime | None = None
) -> R:
    """The resource as it is to be written over `stored` (None: nothing), to be confirmed.

    Raises `MuslinError` for a kind or a time that is not allowed.
    """
    key = key_of(resource)
    if key.kind not in KINDS:
        raise MuslinError(
            f"{key} cannot be applied until it is confirmed: only {', '.join(sorted(KINDS))} can"
        )
    if not LEAST <= within <= MOST:
        raise MuslinError(f"the time to confirm must be between {LEAST:g} s and {MOST:g} s")
    begun = now or datetime.now(UTC)
    annotation = Unconfirmed(
        deadline=now_text(begun + timedelta(seconds=within)),
        within=within,
        previous=_last_confirmed(key, stored),
    )
    return _annotated(resource, msgspec.json.encode(annotation).decode())


def _last_confirmed(key: ResourceKey, stored: Resource | None) -> dict[str, object] | None:
    if stored is None:
        return None
    try:
        earlier = read(stored)
    except InvalidValue:
        earlier = None
    if earlier is not None:
        return earlier.previous
    tree: dict[str, object] = msgspec.json.decode(encode_value(key, confirmed(stored)))
    return tree


def confirmed(resource: R) -> R:
    """The resource without the annotation."""
    return _annotated(resource, None)


def _annotated(resource: R, text: str | None) -> R:
    metadata = resource.metadata
    annotations = {name: v for name, v in metadata.annotations.items() if name != ANNOTATION}
    if text is not None:
        annotations[ANNOTATION] = text
    return replace(resource, metadata=replace(metadata, annotations=annotations))
