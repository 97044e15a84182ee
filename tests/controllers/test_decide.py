"""What a mirror writes, as a function of both sides (MIR-1, MIR-3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.mirror.mirror import Kept, Mirror, decide
from controllers.mirror.mirrored_kinds import NAMESPACE_PROFILES
from libcalico.datastore.interface import ABSENT, Delete, Entry, Put
from libcalico.kubernetes.decoding import NAMELESS
from libcalico.kubernetes.names import Name
from libcalico.model import Metadata, Profile, ProfileSpec, codec
from libcalico.model.keys import ResourceKey

KEY = ResourceKey("Profile", "kns.a")
labels = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), max_size=2)


def profile(applied: dict[str, str], noted: dict[str, str]) -> Profile:
    return Profile(
        metadata=Metadata(name="kns.a", annotations=noted), spec=ProfileSpec(labelsToApply=applied)
    )


def entry(value: Profile, broken: str = "") -> Entry:
    return Entry(KEY, value, 7, codec.encode_value(KEY, value), broken)


@given(labels, st.none() | labels, labels)
def test_the_stored_spec_becomes_the_wanted_one_and_what_others_noted_stays(
    wanted: dict[str, str], there: dict[str, str] | None, noted: dict[str, str]
) -> None:
    stored = None if there is None else entry(profile(there, noted))
    change: Any = decide(KEY, profile(wanted, {}), stored)
    if there == wanted:
        assert change is None, "MIR-1"
        return
    assert isinstance(change, Put)
    assert change.value.spec.labelsToApply == wanted
    assert change.guard == (ABSENT if stored is None else 7)
    assert change.value.metadata.annotations == ({} if stored is None else noted), "MIR-3"


@given(labels)
def test_what_is_gone_is_deleted_as_it_was_seen_and_what_is_kept_is_not(there: Any) -> None:
    stored = entry(profile(there, {}))
    assert decide(KEY, None, stored) == Delete(KEY, 7)
    assert decide(KEY, None, None) is None
    assert decide(KEY, Kept("its source cannot be read"), stored) is None
    assert decide(KEY, Kept("its source cannot be read"), None) is None


def test_what_could_be_read_in_part_only_is_written_anew() -> None:
    assert isinstance(decide(KEY, profile({}, {}), entry(profile({}, {}), "cut short")), Put)


@pytest.mark.parametrize(
    ("broken", "deleted"),
    [(None, True), (Name("", "b"), True), (Name("", "a"), False), (NAMELESS, False)],
    ids=["all can be read", "another cannot", "its source cannot", "some cannot be named"],
)
def test_nothing_goes_while_its_source_may_be_there_unread(
    broken: Name | None, deleted: bool
) -> None:
    nothing: Any = None
    mirror = Mirror(NAMESPACE_PROFILES, nothing, nothing)
    mirror._stored[KEY] = profile({}, {}).spec
    mirror._stored_whole = mirror.reflector.has_listed = True
    if broken is not None:
        mirror.reflector.broken[broken] = "not JSON"
    mirror.listed()
    assert (len(mirror.queue) == 1) == deleted, "MIR-2"
