"""The check finds every planted disagreement, names it, and is silent about sound records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address, ip_network

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipam.admin.check import Kind, check, confirmed
from ipam.records import blocks
from ipam.records.pools import Pool
from ipam.records.snapshot import Snapshot, User
from libcalico.model import Attribute, Block, BlockAffinity, Handle
from libcalico.model.keys import AffinityKey
from libcalico.model.resources.ipam import PENDING

CIDR = ip_network("10.0.0.0/29")
KEY = AffinityKey("n1", CIDR)
POOL = Pool("p", ip_network("10.0.0.0/24"), 29)
ADDRESS = ip_address("10.0.0.0")
POD = {"node": "n1", "namespace": "ns", "pod": "web"}
USER = User("Workload(ns/n1-k8s-web-eth0)", "n1", "ns/web")


def block_with(handle: str = "net.c1", attributes: dict[str, str] | None = None) -> Block:
    empty = blocks.create(CIDR, "host:n1", None, 100)
    full, _ = blocks.assign(empty, 1, handle, POD if attributes is None else attributes)
    return blocks.written(full, empty)


SOUND = Snapshot(
    blocks=(block_with(),),
    affinities={KEY: BlockAffinity()},
    handles={"net.c1": Handle(block={str(CIDR): 1})},
    users={ADDRESS: (USER,)},
    nodes=frozenset({"n1"}),
    pools=(POOL,),
)


def changed(**fields: object) -> Snapshot:
    return replace(SOUND, **fields)  # type: ignore[arg-type]


def with_block(**fields: object) -> Snapshot:
    return changed(blocks=(msgspec.structs.replace(block_with(), **fields),))


def test_sound_records_give_no_finding() -> None:
    report = check(SOUND)
    assert (report.problems, report.notes) == ((), ())
    record = report.records[0]
    assert record.in_use
    assert record.owners == (USER.name,)
    assert record.sequence == 100
    assert not record.borrowed


SECOND = User("Workload(ns/n2-k8s-other-eth0)", "n2", "ns/other")
OTHER = ip_network("10.0.0.0/30")
FAR = ip_address("10.9.9.9")
NEAR = ip_address("10.0.0.5")
PLANTED: list[tuple[Kind, str, Snapshot]] = [
    (Kind.LEAKED, "10.0.0.0", changed(users={})),
    (Kind.NOT_IN_POOL, "10.9.9.9", changed(users={**SOUND.users} | {FAR: (USER,)})),
    (Kind.NOT_ALLOCATED, "10.0.0.5", changed(users={**SOUND.users} | {NEAR: (USER,)})),
    (Kind.DOUBLE_OWNER, "10.0.0.0", changed(users={ADDRESS: (USER, SECOND)})),
    (Kind.DOUBLE_OWNER, "10.0.0.0", changed(users={ADDRESS: (SECOND,)})),
    (Kind.DOUBLE_OWNER, "10.0.0.0", changed(users={ADDRESS: (User("Node(n1)", "n1", "", True),)})),
    (
        Kind.DOUBLE_OWNER,
        "10.0.0.0",
        changed(blocks=(block_with("net.c1", {"node": "n1", "type": "ipipTunnelAddress"}),)),
    ),
    (
        Kind.DOUBLE_OWNER,
        str(CIDR),
        changed(affinities={KEY: BlockAffinity(), AffinityKey("n2", CIDR): BlockAffinity()}),
    ),
    (Kind.HANDLE_UNUSED, "old", changed(handles={**SOUND.handles} | {"old": Handle()})),
    (Kind.HANDLE_MISSING, "net.c1", changed(handles={})),
    (Kind.HANDLE_COUNT, "net.c1", changed(handles={"net.c1": Handle(block={str(CIDR): 2})})),
    (
        Kind.HANDLE_COUNT,
        "net.c1",
        changed(handles={"net.c1": Handle(block={str(CIDR): 1, "10.0.0.8/29": 1})}),
    ),
    (
        Kind.BLOCKS_OVERLAP,
        "10.0.0.0/30",
        changed(blocks=(*SOUND.blocks, blocks.create(OTHER, None, None, 1))),
    ),
    (Kind.BLOCK_INVALID, str(CIDR), with_block(unallocated=[1, 1, 2, 3, 4, 5, 6])),
    (Kind.BLOCK_INVALID, str(CIDR), with_block(unallocated=[0, 1, 2, 3, 4, 5, 6, 7])),
    (Kind.BLOCK_INVALID, str(CIDR), with_block(unallocated=[2, 3, 4, 5, 6, 7])),
    (Kind.BLOCK_INVALID, str(CIDR), with_block(attributes=[])),
    (Kind.BLOCK_INVALID, str(CIDR), with_block(allocations=[0])),
    (Kind.BLOCK_INVALID, "nonsense", with_block(cidr="nonsense")),
    (Kind.BLOCK_INVALID, str(CIDR), with_block(sequenceNumber=99)),
    (Kind.BLOCK_SIZE, str(CIDR), changed(pools=(replace(POOL, block_size=28),))),
    (Kind.BLOCK_UNCLAIMED, str(CIDR), changed(affinities={})),
    (
        Kind.AFFINITY_STALE,
        "10.0.0.8/29",
        changed(
            affinities={**SOUND.affinities}
            | {AffinityKey("n1", ip_network("10.0.0.8/29")): BlockAffinity()}
        ),
    ),
    (Kind.AFFINITY_STALE, str(CIDR), with_block(affinity=None)),
    (Kind.UNREADABLE, "Block(x)", changed(unreadable=(("Block(x)", "no JSON"),))),
]
NOTED: list[tuple[Kind, str, Snapshot]] = [
    (Kind.CLAIM_UNSETTLED, str(CIDR), changed(affinities={KEY: BlockAffinity(state=PENDING)})),
    (Kind.BLOCK_ORPHANED, str(CIDR), changed(pools=())),
    (
        Kind.COOLING,
        "10.0.0.0",
        changed(
            blocks=(
                msgspec.structs.replace(
                    block_with(), attributes=[Attribute(releasedAt="2026-01-01T00:00:00Z")]
                ),
            ),
            handles={},
            users={},
        ),
    ),
    (Kind.RESERVED, "10.0.0.0", changed(reservations=(ip_network("10.0.0.0/31"),))),
]


def test_what_a_node_without_a_node_resource_holds_is_a_note_each() -> None:
    report = check(changed(nodes=frozenset({"n2"})))
    assert report.problems == ()
    assert [(one.kind, one.subject, one.text) for one in report.notes] == [
        (Kind.NODE_MISSING, subject, text)
        for subject, text in (
            (str(ADDRESS), "is allocated on n1, which is no Node"),
            (str(ADDRESS), f"is used by {USER.name} on n1, which is no Node"),
            (str(CIDR), "is claimed by n1, which is no Node"),
            (str(CIDR), "belongs to n1, which is no Node"),
        )
    ]
    assert check(changed(nodes=frozenset())).notes == (), "no Node at all was read"


@pytest.mark.promise("PAIN-1")
@pytest.mark.promise("F-32")
@pytest.mark.parametrize(("kind", "subject", "snapshot"), PLANTED)
def test_every_class_of_problem_is_found(kind: Kind, subject: str, snapshot: Snapshot) -> None:
    report = check(snapshot)
    assert (kind, subject) in [(one.kind, one.subject) for one in report.problems]


@pytest.mark.parametrize(("kind", "subject", "snapshot"), NOTED)
def test_what_needs_no_action_is_a_note(kind: Kind, subject: str, snapshot: Snapshot) -> None:
    report = check(snapshot)
    assert [(one.kind, one.subject) for one in report.notes] == [(kind, subject)]
    assert report.problems == ()


def test_who_cannot_be_asked_counts_as_in_use() -> None:
    service = block_with("lb-x", {"type": "LoadBalancer", "namespace": "ns", "service": "web"})
    unasked = changed(blocks=(service,), users={}, handles={"lb-x": Handle(block={str(CIDR): 1})})
    assert check(unasked).problems == ()
    assert [one.kind for one in check(replace(unasked, services=frozenset())).problems] == [
        Kind.LEAKED
    ]
    assert check(replace(unasked, services=frozenset({ADDRESS}))).problems == ()


def test_windows_reservations_are_in_use_and_have_no_handle() -> None:
    windows = block_with("windows-reserved-ipam-handle", {"note": "windows host rsvd"})
    assert check(changed(blocks=(windows,), users={}, handles={})).problems == ()


def test_a_machine_that_moves_may_have_two_endpoints() -> None:
    machine = block_with("net.c1", {**POD, "vmi-name": "vm"})
    assert check(changed(blocks=(machine,), users={ADDRESS: (USER, SECOND)})).problems == ()


def test_what_changes_between_two_looks_is_no_problem() -> None:
    leaking = check(changed(users={}))
    assert confirmed(leaking, leaking).leaked() == list(leaking.records)
    settled = confirmed(check(SOUND), leaking)
    assert settled.problems == ()
    assert settled.leaked() == []
    # Given out anew between the two looks: the same address, but another allocation.
    again = block_with("net.c2")
    anew = check(changed(blocks=(again,), users={}, handles={}))
    assert confirmed(leaking, anew).leaked() == []


@given(
    st.lists(
        st.sampled_from([28, 29, 30, 31]).flatmap(
            lambda size: st.integers(0, (1 << (size - 24)) - 1).map(
                lambda index: ip_network(
                    (int(ip_address("10.0.0.0")) + (index << (32 - size)), size)
                )
            )
        ),
        unique=True,
        max_size=8,
    )
)
def test_overlap_is_found_exactly_when_two_networks_overlap(networks: list[object]) -> None:
    made = [blocks.create(net, None, None, 1) for net in networks]  # type: ignore[arg-type]
    report = check(Snapshot(blocks=tuple(made)))
    pairs = [(a, b) for a in networks for b in networks if a is not b]
    overlapping: Callable[..., bool] = lambda a, b: bool(a.overlaps(b))  # noqa: E731
    assert bool(report.of(Kind.BLOCKS_OVERLAP)) == any(overlapping(a, b) for a, b in pairs)
