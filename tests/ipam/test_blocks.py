"""Block arithmetic: the queue invariant under random use, and Calico's own bytes."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipam.records import blocks, handles
from ipam.records.errors import AddressInUse, SequenceMismatch
from ipam.records.naming import go_timestamp, pod_attributes, rfc3339
from libcalico.model import Block, Handle
from libcalico.model.codec import decode_value, encode_value
from libcalico.model.keys import BlockKey, HandleKey
from tests.ipam.blocks import assign_address

CLAIMED = 1795273157 * 10**9
FIRST = "net1.0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
SECOND = "net1.fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
# What a real Calico stored after two ADDs in a block whose first fifteen addresses had been
# used and freed before.
GOLDEN = (
    '{"cidr":"10.65.166.128/26","affinity":"host:node1",'
    '"affinity_claim_time":"2026-11-21T14:59:17Z","allocations":['
    + ",".join(["null"] * 15 + ["0", "1"] + ["null"] * 47)
    + '],"unallocated":['
    + ",".join(str(ordinal) for ordinal in [*range(17, 64), *range(15)])
    + '],"attributes":[{"handle_id":"'
    + FIRST
    + '","secondary":{"namespace":"default","node":"node1","pod":"web-1",'
    '"timestamp":"2026-11-21 15:05:36.162412993 +0000 UTC"}},{"handle_id":"'
    + SECOND
    + '","secondary":{"node":"node1","timestamp":"2026-11-21 15:05:36.411439949 +0000 UTC"}}],'
    '"sequenceNumber":1795273157750155220,"sequenceNumberForAllocation":'
    '{"15":1795273157750155218,"16":1795273157750155219},"deleted":false}'
)


def write(block: Block, before: Block) -> Block:
    return blocks.written(block, before)


def test_two_adds_give_calicos_bytes() -> None:
    """From an empty block with the same history to the golden bytes, byte for byte."""
    cidr = ip_network("10.65.166.128/26")
    block = blocks.create(cidr, "host:node1", rfc3339(CLAIMED), 1795273157750155216)
    earlier, given_first = blocks.assign(block, 15, "old", {})
    block = write(earlier, block)
    earlier, _ = blocks.release(block, given_first)
    block = write(earlier, block)
    for handle, pod, nanoseconds in (
        (FIRST, "web-1", 162412993),
        (SECOND, "", 411439949),
    ):
        attributes = pod_attributes("node1", "default", pod, 1795273536 * 10**9 + nanoseconds)
        after, _ = blocks.assign(block, 1, handle, attributes)
        block = write(after, block)
    assert encode_value(BlockKey(cidr), block, None).decode() == GOLDEN
    assert decode_value(BlockKey(cidr), GOLDEN.encode()) == block
    key = HandleKey(FIRST)
    assert encode_value(key, handles.add(None, str(cidr), 1), None) == (
        b'{"block":{"10.65.166.128/26":1},"deleted":false}'
    )


def test_go_times() -> None:
    assert go_timestamp(1795273536_162412993) == "2026-11-21 15:05:36.162412993 +0000 UTC"
    assert go_timestamp(1795273536_120000000) == "2026-11-21 15:05:36.12 +0000 UTC"
    assert go_timestamp(1795273536_000000000) == "2026-11-21 15:05:36 +0000 UTC"


@pytest.mark.parametrize("cidr", ["10.0.0.0/28", "10.0.0.4/30", "fd00::/124", "10.0.0.1/32"])
@given(data=st.data())
def test_the_queue_is_kept_under_random_use(cidr: str, data: st.DataObject) -> None:
    """IPAM-1, IPAM-3, IPAM-4, and freed ordinals go to the tail."""
    block = blocks.create(ip_network(cidr), "host:n", None, 1000)
    owners: dict[Any, str] = {}
    for _ in range(data.draw(st.integers(1, 40))):
        before = block
        handle = data.draw(st.sampled_from(["a", "b", "c"]))
        match data.draw(st.sampled_from(["assign", "release", "handle", "named"])):
            case "assign":
                queue = list(block.unallocated)
                count = data.draw(st.integers(1, 4))
                block, got = blocks.assign(block, count, handle, {"pod": handle})
                assert [blocks.ordinal_of(block, a) for a in got] == queue[:count]
                owners.update(dict.fromkeys(got, handle))
            case "named":
                address = blocks.address_at(
                    block, data.draw(st.integers(0, len(block.allocations) - 1))
                )
                if address in owners:
                    with pytest.raises(AddressInUse):
                        assign_address(block, address, handle, {})
                else:
                    block = assign_address(block, address, handle, {})
                    owners[address] = handle
            case "release":
                address = blocks.address_at(
                    block, data.draw(st.integers(0, len(block.allocations) - 1))
                )
                block, freed = blocks.release(block, [address], handle)
                assert freed == ([address] if owners.get(address) == handle else [])
                if freed:
                    assert blocks.address_at(block, block.unallocated[-1]) == address
                    del owners[address]
            case _:
                held = [a for a, owner in owners.items() if owner == handle]
                block, freed = blocks.release(block, held, handle)
                assert set(freed) == {a for a, owner in owners.items() if owner == handle}
                for address in freed:
                    del owners[address]
        assert blocks.problem(block) == ""
        assert {a.address: a.handle_id for a in blocks.allocations(block)} == owners
        assert blocks.used_count(block) + blocks.free_count(block) == len(block.allocations)
        assert len(block.attributes) == len({i for i in block.allocations if i is not None})
        block = blocks.written(block, before)
        assert block.sequenceNumber == before.sequenceNumber + 1


def test_a_release_needs_the_matching_sequence() -> None:
    block = blocks.create(ip_network("10.0.0.0/30"), "host:n", None, 7)
    after, (address,) = blocks.assign(block, 1, "a", {})
    with pytest.raises(SequenceMismatch):
        blocks.release(after, [address], "a", sequence=6)
    freed, released = blocks.release(after, [address], "a", sequence=7)
    assert released == [address]
    assert blocks.free_count(freed) == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"unallocated": [0, 1, 2]}, "ordinal 3 is both free and allocated, or neither"),
        ({"unallocated": [0, 1, 2, 3, 3]}, "an ordinal stands twice in the queue"),
        ({"allocations": [None]}, "1 allocations instead of 4"),
        (
            {"allocations": [5, None, None, None], "unallocated": [1, 2, 3]},
            "ordinal 0 refers to attribute 5, which does not exist",
        ),
    ],
)
def test_a_leaked_or_torn_block_is_recognised(change: dict[str, Any], reason: str) -> None:
    import msgspec

    block = blocks.create(ip_network("10.0.0.0/30"), "host:n", None, 7)
    assert blocks.problem(msgspec.structs.replace(block, **change)) == reason


def test_handles_count_per_block() -> None:
    handle = handles.add(handles.add(None, "10.0.0.0/26", 1), "fd00::/122", 2)
    assert handle == Handle(block={"10.0.0.0/26": 1, "fd00::/122": 2})
    left = handles.subtract(handle, "fd00::/122", 2)
    assert left == Handle(block={"10.0.0.0/26": 1})
    assert handles.subtract(left, "10.0.0.0/26", 5) is None


def test_addresses_of_other_blocks_are_refused() -> None:
    block = blocks.create(ip_network("10.0.0.0/30"), "host:n", None, 7)
    for text in ("10.0.0.4", "::a00:1"):
        with pytest.raises(ValueError, match="is not in block"):
            blocks.ordinal_of(block, ip_address(text))
