"""The annotation of a version that counts for a while only (CNF-1, CNF-2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from libcalico import commit_confirmed
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
    new = stored(commit_confirmed.unconfirmed(policy(2), old, 60, NOW))
    late = NOW + timedelta(seconds=60)
    assert commit_confirmed.effective(KEY, new, late - timedelta(seconds=1)) is new
    back = commit_confirmed.effective(KEY, new, late)
    assert (back.spec, back.metadata.labels["order"]) == (stored(old).spec, "1")
    assert back.metadata.annotations == {"why": "kept"}


def test_an_object_that_was_not_there_is_none_again() -> None:
    new = stored(commit_confirmed.unconfirmed(policy(2), None, 60, NOW))
    assert commit_confirmed.effective(KEY, new, NOW + timedelta(minutes=2)) is None


def test_confirming_takes_the_annotation_away_only() -> None:
    new = commit_confirmed.unconfirmed(policy(2, why="kept"), policy(1), 60, NOW)
    assert commit_confirmed.confirmed(new) == policy(2, why="kept")
    assert commit_confirmed.read(commit_confirmed.confirmed(new)) is None


def test_one_unconfirmed_version_after_another_goes_back_to_the_last_confirmed() -> None:
    first = stored(commit_confirmed.unconfirmed(policy(2), policy(1), 60, NOW))
    second = stored(commit_confirmed.unconfirmed(policy(3), first, 60, NOW + timedelta(minutes=5)))
    found = commit_confirmed.read(second)
    assert found is not None
    assert commit_confirmed.previous(KEY, found).spec == policy(1).spec


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"deadline":"soon","within":1,"previous":null}', "null",
     '{"deadline":"2026-08-22T10:00:00","within":1,"previous":null}'],
)  # fmt: skip
def test_an_annotation_that_cannot_be_read_changes_nothing(text: str) -> None:
    broken = policy(2, **{commit_confirmed.ANNOTATION: text})
    with pytest.raises(InvalidValue, match="muslin/unconfirmed"):
        commit_confirmed.read(broken)
    assert commit_confirmed.effective(KEY, broken, NOW + timedelta(days=999)) is broken
    anew = commit_confirmed.unconfirmed(policy(3), broken, 60, NOW)
    found = commit_confirmed.read(anew)
    assert found is not None
    assert commit_confirmed.previous(KEY, found).spec == policy(2).spec


def test_only_kinds_that_felix_alone_acts_on_and_sensible_times() -> None:
    pool = resource_from_tree(
        {"kind": "IPPool", "metadata": {"name": "x"}, "spec": {"cidr": "10.0.0.0/16"}}
    )
    with pytest.raises(MuslinError, match="IPPool"):
        commit_confirmed.unconfirmed(pool, None, 60, NOW)
    for within in (0, 4.9, 86401):
        with pytest.raises(MuslinError, match="between 5 s and 86400 s"):
            commit_confirmed.unconfirmed(policy(1), None, within, NOW)
    annotated = replace(
        pool, metadata=replace(pool.metadata, annotations={commit_confirmed.ANNOTATION: "{}"})
    )
    assert commit_confirmed.effective(key_of(pool), annotated, NOW) is annotated
