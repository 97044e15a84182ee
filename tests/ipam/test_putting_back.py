"""A block that is made anew has what is in use of it, and takes nothing from anybody (IPAM-31)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address, ip_network

import msgspec
import pytest

from ipam.allocator.adoption import plan_adopt
from ipam.allocator.committer import settle
from ipam.allocator.restoration import Use, filled, in_use, put_back
from ipam.allocator.view import View
from ipam.records import blocks, handles
from ipam.records.errors import BlockInDoubt
from libcalico.datastore.interface import Check, Delete, Entry, Put
from libcalico.model import (
    Block,
    Handle,
    Metadata,
    Node,
    NodeSpec,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from libcalico.model.keys import BlockKey, HandleKey, Key, ResourceKey
from tests.ipam.blocks import assign_address
from tests.ipam.memory import MemoryStore

CIDR = ip_network("10.0.0.0/29")
BLOCK = BlockKey(CIDR)
ATTRIBUTES = {"node": "n1", "pod": "web"}
ONE, TWO = ip_address("10.0.0.1"), ip_address("10.0.0.2")


def block_of(holders: Mapping[int, tuple[str | None, Mapping[str, str]]], owner: str) -> Block:
    block = blocks.create(CIDR, owner, None, 50)
    for ordinal, (handle, attributes) in holders.items():
        block = assign_address(block, CIDR[ordinal], handle, attributes)
    return block


def held(block: Block) -> dict[str, str]:
    return {str(one.address): one.handle_id for one in blocks.allocations(block)}


def test_what_stands_for_no_handle_becomes_the_attachments_and_nothing_else_does() -> None:
    there = block_of(
        {
            1: (None, {"node": "n1"}),
            2: (None, {}),
            3: (None, {"node": "n2"}),
            4: ("net.other", {"node": "n1"}),
            6: (None, {"node": "n1"}),
        },
        "host:n1",
    )
    view = View()
    view.learn({BLOCK: Entry(BLOCK, there, 7, b""), HandleKey("net.web"): None})
    asked = [CIDR[ordinal] for ordinal in (1, 2, 3, 4, 5)]
    made = plan_adopt(view, "net.web", ATTRIBUTES, {BLOCK: asked})
    (put, handle) = made.changes
    assert isinstance(put, Put)
    assert (put.key, put.guard) == (BLOCK, 7)
    assert held(put.value) == {
        "10.0.0.1": "net.web",
        "10.0.0.2": "net.web",
        "10.0.0.3": "",
        "10.0.0.4": "net.other",
        "10.0.0.6": "",
    }
    assert blocks.problem(put.value) == ""
    assert isinstance(handle, Put)
    assert (handle.guard, handle.value) == (0, Handle(block={str(CIDR): 2}))


@pytest.mark.parametrize("there", ["torn", "gone"])
def test_nothing_is_taken_out_of_a_block_that_is_torn_or_gone(there: str) -> None:
    torn = msgspec.structs.replace(block_of({1: (None, {})}, "host:n1"), unallocated=[1])
    view = View()
    view.learn({BLOCK: Entry(BLOCK, torn, 7, b"") if there == "torn" else None})
    view.learn({HandleKey("net.web"): None})
    made = plan_adopt(view, "net.web", ATTRIBUTES, {BLOCK: [ONE]})
    assert (made.outcome, list(made.changes), made.missing) == (False, [], frozenset())


@pytest.mark.parametrize("count", [None, 1, 3])
def test_a_handle_that_says_otherwise_than_its_block_is_written_and_an_equal_one_is_not(
    count: int | None,
) -> None:
    there = block_of({1: ("net.web", ATTRIBUTES)}, "host:n1")
    stored = handles.add(None, "10.0.9.0/29", 2)
    stored = stored if count is None else handles.add(stored, str(CIDR), count)
    key = HandleKey("net.web")
    view = View()
    view.learn({BLOCK: Entry(BLOCK, there, 7, b""), key: Entry(key, stored, 8, b"")})
    made = plan_adopt(view, "net.web", ATTRIBUTES, {BLOCK: [ONE]})
    if count == 1:
        assert (made.outcome, list(made.changes)) == (False, [])
    else:
        (put, check) = made.changes
        assert isinstance(put, Put)
        assert (put.key, put.guard) == (key, 8)
        assert check == Check(BLOCK, 7), "IPAM-15"
        assert put.value.block == {str(CIDR): 1, "10.0.9.0/29": 2}, "the other block's stays"


def test_no_handle_is_left_of_an_address_that_is_given_back_meanwhile() -> None:
    """IPAM-15: what the block says counts only where the transaction compares it."""
    store = MemoryStore()
    there = block_of({1: ("net.web", ATTRIBUTES)}, "host:n1")
    asyncio.run(store.commit([Put(BLOCK, there)]))

    def rival(_: object) -> None:
        store.entries[BLOCK] = Entry(BLOCK, block_of({}, "host:n1"), 99, b"")

    store.before_commit = rival
    plan = partial(plan_adopt, handle_id="net.web", attributes=ATTRIBUTES, by_block={BLOCK: [ONE]})
    assert not asyncio.run(settle(store, View(), plan))
    assert store.handles() == {}


def test_an_address_in_use_is_given_to_nobody_else() -> None:
    before = block_of({1: ("net.first", {"node": "n1"})}, "host:n1")
    made = filled(
        before, [Use(ONE, "net.second", {}), Use(TWO, "net.second", {}), Use(TWO, "", {})]
    )
    assert held(made) == {"10.0.0.1": "net.first", "10.0.0.2": "net.second"}
    assert blocks.problem(made) == ""


@pytest.mark.parametrize("known", ["ours", "another's", "torn", "none"])
def test_what_was_known_of_a_block_counts_if_it_was_sound_and_its_owners(known: str) -> None:
    fresh = blocks.create(CIDR, "host:n1", None, 100)
    there: Block | None = block_of(
        {1: ("net.web", ATTRIBUTES)}, "host:n2" if known == "another's" else "host:n1"
    )
    assert there is not None
    there = msgspec.structs.replace(there, sequenceNumber=500)
    if known == "torn":
        there = msgspec.structs.replace(there, unallocated=[0])
    made = put_back(None if known == "none" else there, fresh, [Use(TWO, "net.two", {})])
    known_before = {"10.0.0.1": "net.web"} if known == "ours" else {}
    assert held(made) == known_before | {"10.0.0.2": "net.two"}
    assert made.owner == "host:n1"
    # An allocation remembers its number: none may come twice.
    assert made.sequenceNumber == (501 if known == "ours" else 100)
    older = msgspec.structs.replace(there, sequenceNumber=5)
    if known == "ours":
        assert put_back(older, fresh, []).sequenceNumber == 100


def endpoint(name: str, node: str, container: str, *addresses: str) -> tuple[Key, object]:
    spec = WorkloadEndpointSpec(
        node=node, pod=name, containerID=container, orchestrator="k8s", endpoint="eth0",
        ipNetworks=[f"{one}/32" for one in addresses],
    )  # fmt: skip
    full = f"{node}-k8s-{name}-eth0"
    value = WorkloadEndpoint(metadata=Metadata(name=full, namespace="default"), spec=spec)
    return ResourceKey("WorkloadEndpoint", full, "default"), value


async def cluster() -> MemoryStore:
    store = MemoryStore()
    things = dict(
        [
            endpoint("web", "n1", "c1", "10.0.0.1", "10.0.0.9"),
            endpoint("old", "n1", "c3", "10.0.0.3"),
            endpoint("far", "n2", "c2", "10.0.0.2"),
            endpoint("near", "n10", "c4", "10.0.0.5"),
            (HandleKey("net.c1"), handles.add(None, str(CIDR), 1)),
            (HandleKey("net.c2"), handles.add(None, str(CIDR), 1)),
            (HandleKey("net.c3"), handles.add(None, "10.0.9.0/29", 1)),
        ]
    )
    for node, address in (("n1", "10.0.0.4"), ("n2", "10.0.0.6")):
        spec = NodeSpec(ipv4VXLANTunnelAddr=address)
        things[ResourceKey("Node", node)] = Node(metadata=Metadata(name=node), spec=spec)
    for key, value in things.items():
        await store.commit([Put(key, value)])
    return store


def uses(store: MemoryStore, host: str = "") -> dict[str, str]:
    found = asyncio.run(in_use(store, CIDR, host))
    assert len({use.address for use in found}) == len(found)
    return {str(use.address): use.handle_id for use in found}


def test_endpoints_and_tunnels_say_what_is_in_use() -> None:
    store = asyncio.run(cluster())
    mine = {"10.0.0.1": "net.c1", "10.0.0.3": "", "10.0.0.4": "vxlan-tunnel-addr-n1"}
    assert uses(store, "n1") == mine
    theirs = {"10.0.0.2": "net.c2", "10.0.0.5": "", "10.0.0.6": "vxlan-tunnel-addr-n2"}
    assert uses(store) == mine | theirs


def broken(store: MemoryStore, key: Key, text: bytes) -> None:
    store.revision += 1
    store.entries[key] = Entry(key, None, store.revision, text)


def test_what_cannot_be_decoded_has_the_addresses_in_its_text() -> None:
    """IPAM-32."""
    store = asyncio.run(cluster())
    key, _ = endpoint("web", "n1", "c1")
    broken(store, key, b'{"spec":[],"containerID":"c1","is":"10.0.0.1/32 and 10.0.0.7, 10.0.0.9"}')
    found = uses(store, "n1")
    assert found["10.0.0.1"] == found["10.0.0.7"] == "net.c1"
    assert "10.0.0.9" not in found


@pytest.mark.parametrize("explained", [False, True])
def test_a_text_without_addresses_is_a_doubt_while_a_handle_is_unexplained(
    explained: bool,
) -> None:
    store = asyncio.run(cluster())
    key, _ = endpoint("lost", "n1", "c9")
    broken(store, key, b"{")
    if explained:
        assert uses(store) == uses(asyncio.run(cluster()))
        return
    asyncio.run(store.commit([Put(HandleKey("net.c9"), handles.add(None, str(CIDR), 1))]))
    with pytest.raises(BlockInDoubt, match=r"net\.c9"):
        asyncio.run(in_use(store, CIDR))
    asyncio.run(store.commit([Delete(HandleKey("net.c9"))]))
    # One address of it is explained, and the handle has two.
    two = handles.add(None, str(CIDR), 2)
    asyncio.run(store.commit([Put(HandleKey("net.c1"), two)]))
    with pytest.raises(BlockInDoubt, match=r"net\.c1"):
        asyncio.run(in_use(store, CIDR))
