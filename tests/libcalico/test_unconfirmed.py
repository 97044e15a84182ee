"""The annotation of a version that counts for a while only (CNF-1, CNF-2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from libcalico import unconfirmed
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import ResourceKey
from libcalico.model.codec import decode_value, encode_value, resource_from_tree
from libcalico.model.kinds import key_of

NOW = datetime(2026, 8, 22, 10, 0, 0, tzinfo=UTC)
KEY = ResourceKey("GlobalNetworkPolicy", "p")


def policy(order: int, **annotations: str) -> Any:
    metadata = {"name": "p", "labels": {"order": str(order)}, "annotations": annotations}
    tree = {
        "kind": "GlobalNetworkPolicy",
        "metadata": metadata,
        "spec": {"order": order, "selector": "all()"},
    }
    return resource_from_tree(tree)


def stored(resource: Any) -> Any:
    """What comes back from the datastore."""
    return decode_value(KEY, encode_value(KEY, resource))


def test_before_the_deadline_the_new_version_counts_after_it_the_old_one() -> None:
    old = policy(1, why="kept")
    new = stored(unconfirmed.unconfirmed(policy(2), old, 60, NOW))
    late = NOW + timedelta(seconds=60)
    assert unconfirmed.effective(KEY, new, late - timedelta(seconds=1)) is new
    back = unconfirmed.effective(KEY, new, late)
    assert (back.spec, back.metadata.labels["order"]) == (stored(old).spec, "1")
    assert back.metadata.annotations == {"why": "kept"}


def test_an_object_that_was_not_there_is_none_again() -> None:
    new = stored(unconfirmed.unconfirmed(policy(2), None, 60, NOW))
    assert unconfirmed.effective(KEY, new, NOW + timedelta(minutes=2)) is None


def test_confirming_takes_the_annotation_away_only() -> None:
    new = unconfirmed.unconfirmed(policy(2, why="kept"), policy(1), 60, NOW)
    assert unconfirmed.confirmed(new) == policy(2, why="kept")
    assert unconfirmed.read(unconfirmed.confirmed(new)) is None


def test_one_unconfirmed_version_after_another_goes_back_to_the_last_confirmed() -> None:
    first = stored(unconfirmed.unconfirmed(policy(2), policy(1), 60, NOW))
    second = stored(unconfirmed.unconfirmed(policy(3), first, 60, NOW + timedelta(minutes=5)))
    found = unconfirmed.read(second)
    assert found is not None
    assert unconfirmed.previous(KEY, found).spec == policy(1).spec


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"deadline":"soon","within":1,"previous":null}', "null",
     '{"deadline":"2026-08-22T10:00:00","within":1,"previous":null}'],
)  # fmt: skip
def test_an_annotation_that_cannot_be_read_changes_nothing(text: str) -> None:
    broken = policy(2, **{unconfirmed.ANNOTATION: text})
    with pytest.raises(InvalidValue, match="muslin/unconfirmed"):
        unconfirmed.read(broken)
    assert unconfirmed.effective(KEY, broken, NOW + timedelta(days=999)) is broken
    anew = unconfirmed.unconfirmed(policy(3), broken, 60, NOW)
    found = unconfirmed.read(anew)
    assert found is not None
    assert unconfirmed.previous(KEY, found).spec == policy(2).spec


def test_only_kinds_that_felix_alone_acts_on_and_sensible_times() -> None:
    pool = resource_from_tree(
        {"kind": "IPPool", "metadata": {"name": "x"}, "spec": {"cidr": "10.0.0.0/16"}}
    )
    with pytest.raises(MuslinError, match="IPPool"):
        unconfirmed.unconfirmed(pool, None, 60, NOW)
    for within in (0, 4.9, 86401):
        with pytest.raises(MuslinError, match="between 5 s and 86400 s"):
            unconfirmed.unconfirmed(policy(1), None, within, NOW)
    annotated = replace(
        pool, metadata=replace(pool.metadata, annotations={unconfirmed.ANNOTATION: "{}"})
    )
    assert unconfirmed.effective(key_of(pool), annotated, NOW) is annotated
