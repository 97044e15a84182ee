"""A block under a cool-down: what is released rests, and then goes to the tail of the queue."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ipam.records import blocks
from ipam.records.block_editor import BlockEditor, cooling, is_expired, release_stamp
from libcalico.model import Block

SECOND = 10**9
NOW = 1795273157 * SECOND


@given(data=st.data())
def test_an_address_rests_for_the_cool_down_and_never_has_two_owners(data: st.DataObject) -> None:
    """IPAM-1 holds with cooling addresses in it, and none is given out before its time."""
    block: Block = blocks.create(ip_network("10.0.0.0/29"), "host:n", None, 1)
    now, held, rested = NOW, dict[int, str](), dict[int, int]()
    for step in range(data.draw(st.integers(1, 40))):
        before, edit = block, BlockEditor(block)
        edit.collect(now, 10)
        match data.draw(st.sampled_from(["give", "free", "wait"])):
            case "give":
                ordinals = edit.free(data.draw(st.integers(1, 3)), {0})
                edit.give(ordinals, f"h{step}", {})
                for ordinal in ordinals:
                    assert ordinal not in held
                    # Counted in whole microseconds, as far as a stored time is read.
                    assert now // 1000 - rested.get(ordinal, 0) // 1000 >= 10_000_000
                    held[ordinal] = f"h{step}"
            case "free" if held:
                ordinal = data.draw(st.sampled_from(sorted(held)))
                assert ordinal in edit.ordinals_of(held.pop(ordinal))
                edit.give_back([ordinal], release_stamp(now, 10))
                rested[ordinal] = now
            case _:
                now += data.draw(st.integers(1, 12 * SECOND))
        assert 0 not in held, "reserved"
        block = edit.result()
        assert blocks.problem(block) == ""
        owners = {
            blocks.ordinal_of(block, a.address): a.handle_id for a in blocks.allocations(block)
        }
        assert owners == held
        assert not {ordinal for ordinal, _ in cooling(block)} & set(held)
        assert len(block.attributes) == len({i for i in block.allocations if i is not None})
        block = blocks.written(block, before)


@given(data=st.data())
def test_one_editor_answers_as_a_new_one_would_after_each_change(data: st.DataObject) -> None:
    """Requests of one group share an editor: what the first changed, the next one must find."""
    edit = BlockEditor(blocks.create(ip_network("10.0.0.0/29"), "host:n", None, 1))
    handles = ("a", "b", "c")
    for _ in range(data.draw(st.integers(1, 12))):
        handle, cools = data.draw(st.sampled_from(handles)), data.draw(st.booleans())
        if data.draw(st.booleans()):
            edit.give(edit.free(data.draw(st.integers(1, 3))), handle, {})
        elif ordinals := edit.ordinals_of(handle):
            edit.give_back(ordinals[: data.draw(st.integers(1, 3))], release_stamp(NOW, int(cools)))
        else:
            edit.collect(NOW + SECOND, 1)
        fresh = BlockEditor(edit.result())
        assert [edit.ordinals_of(one) for one in handles] == [
            fresh.ordinals_of(one) for one in handles
        ]
        for ordinal in range(8):
            assert edit.holder(ordinal) == fresh.holder(ordinal)
            assert edit.is_free(ordinal) == fresh.is_free(ordinal)
            assert edit.sequence(ordinal) == fresh.sequence(ordinal)
        assert edit.free(8) == fresh.free(8)


@pytest.mark.parametrize(
    ("stamp", "cooldown", "expired"),
    [
        ("2026-11-21T14:59:17Z", 0, True),
        ("2026-11-21T14:59:07Z", 10, True),
        ("2026-11-21T14:59:07.000001Z", 10, False),
        ("2026-11-21T14:59:07.5Z", 10, False),
        ("2026-11-21T15:59:07+01:00", 10, True),
        ("2026-11-21T14:59:06.999999999Z", 10, True),
        ("0001-01-01T00:00:00+14:00", 10, True),
        ("9999-12-31T23:59:59-14:00", 10, False),
        ("yesterday", 10, False),
        ("yesterday", 0, True),
    ],
)
def test_when_the_rest_is_over(stamp: str, cooldown: int, expired: bool) -> None:
    assert is_expired(stamp, NOW, cooldown) is expired


def test_what_windows_sets_aside_leaves_a_block_empty() -> None:
    block = blocks.create(ip_network("10.0.0.0/29"), None, None, 1)
    block, _ = blocks.assign(
        block, 4, "windows-reserved-ipam-handle", {"note": "windows host rsvd"}
    )
    assert blocks.is_empty(block)
    assert blocks.is_abandoned(block)
    block, _ = blocks.assign(block, 1, "pod", {})
    assert not blocks.is_empty(block)


def test_a_block_whose_queue_names_a_held_address_is_not_empty() -> None:
    """Two words about one ordinal: whoever took it for empty would give a pod's address again."""
    block, _ = blocks.assign(blocks.create(ip_network("10.0.0.0/29"), None, None, 1), 1, "pod", {})
    (held,) = (n for n, index in enumerate(block.allocations) if index is not None)
    doubtful = structs.replace(block, unallocated=[*(block.unallocated or []), held])
    assert blocks.problem(doubtful)
    assert not blocks.is_empty(doubtful)
    assert not blocks.is_abandoned(doubtful)


@pytest.mark.parametrize("cidr", ["10.0.0.0/20", "10.0.0.0/32", "fd00::/116", "fd00::/128"])
def test_every_size_of_block_is_used_up_and_given_back(cidr: str) -> None:
    block = blocks.create(ip_network(cidr), "host:n", None, 1)
    count = blocks.size(ip_network(cidr))
    edit = BlockEditor(block)
    for number in range(count):
        edit.give(edit.free(1), f"h{number}", {"pod": f"p{number}"})
    assert edit.free(1) == []
    full = edit.result()
    assert blocks.problem(full) == ""
    edit = BlockEditor(full)
    for number in range(count):
        edit.give_back(edit.ordinals_of(f"h{number}"))
    empty = edit.result()
    assert (blocks.used_count(empty), empty.attributes, empty.unallocated) == (
        0, [], list(range(count)),
    )  # fmt: skip
