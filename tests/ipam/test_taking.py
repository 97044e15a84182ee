"""Where a request may take its addresses from, which it keeps, and which it gives back."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import msgspec
import pytest

from ipam.allocator.committer import Plan
from ipam.allocator.planner import Sources, plan
from ipam.allocator.requests import (
    Allocate,
    Answer,
    Granted,
    Refused,
    Release,
    Request,
    Short,
    Unclaimed,
)
from ipam.allocator.view import View
from ipam.records import blocks, handles
from ipam.records.blocks import IPAddress
from ipam.records.errors import AddressInUse, BlockCorrupt, NotInPool, NotOwner
from ipam.records.pools import Pool
from libcalico.datastore.interface import Change, Delete, Put
from libcalico.model import Block, Handle
from libcalico.model.keys import BlockKey, HandleKey, IPNetwork
from tests.ipam.world import allocate, endpoint_companion

OWN, OTHERS = ip_network("10.0.0.0/30"), ip_network("10.0.0.4/30")
POOLS = [Pool("p", ip_network("10.0.0.0/28"), 30), Pool("q", ip_network("fd00::/64"), 126)]
FAR = ip_network("10.9.0.0/30")
MINE = "net.web"


def block_of(cidr: IPNetwork, owner: str | None, *holders: str) -> Block:
    block = blocks.create(cidr, owner, None, 5)
    for holder in holders:
        block, _ = blocks.assign(block, 1, holder, {})
    return block


def view_of(*found: Block, **held: Handle) -> View:
    """A view of these blocks, and of handles `net.NAME`."""
    view = View()
    puts: list[Change] = [Put(BlockKey(ip_network(one.cidr)), one, 0) for one in found]
    puts += [Put(HandleKey(f"net.{name}"), one, 0) for name, one in held.items()]
    view.wrote(puts, 7)
    return view


def served(view: View, request: Request, sources: Sources) -> tuple[Answer, Plan[list[Answer]]]:
    """The answer, once all is read; what is not in the view is absent."""
    made = plan(view, [request], [POOLS], sources)
    while made.missing:
        view.learn(dict.fromkeys(made.missing))
        made = plan(view, [request], [POOLS], sources)
    return made.outcome[0], made


def error_of(answer: Answer) -> type[Exception]:
    assert isinstance(answer, Refused)
    return type(answer.error)


def texts(answer: Answer) -> list[str]:
    assert isinstance(answer, Granted), answer
    return [str(each) for each in answer.addresses]


def held_in(made: Plan[list[Answer]], cidr: IPNetwork) -> dict[IPAddress, str]:
    """Who holds what in a block that the plan writes."""
    (block,) = [c.value for c in made.changes if isinstance(c, Put) and c.key == BlockKey(cidr)]
    return {one.address: one.handle_id for one in blocks.allocations(block)}


def test_own_blocks_come_first_and_others_only_where_borrowing_is_allowed() -> None:
    own, others = block_of(OWN, "host:n"), block_of(OTHERS, "host:m")
    full = block_of(OWN, "host:n", "a", "b", "c", "d")
    lent = Sources("n", [OWN], [OTHERS])
    assert texts(served(view_of(own, others), allocate("web"), lent)[0]) == ["10.0.0.0"]
    assert texts(served(view_of(full, others), allocate("web"), lent)[0]) == ["10.0.0.4"]
    for affine, borrowable in (([OWN], [OTHERS]), ([OWN, OTHERS], [])):
        strict = Sources("n", affine, borrowable, strict=True)
        answer, made = served(view_of(full, others), allocate("web"), strict)
        assert isinstance(answer, Short), "strict affinity, whatever the view believes to be ours"
        assert not made.changes
    assert isinstance(
        served(view_of(block_of(FAR, "host:n")), allocate("w"), Sources("n", [FAR]))[0], Short
    )


def test_what_is_reserved_is_given_by_name_alone() -> None:
    reserved = [ip_network("10.0.0.0/31"), ip_network("10.0.0.3")]
    sources = Sources("n", [OWN], reserved=reserved)
    answer, made = served(view_of(block_of(OWN, "host:n")), allocate("web"), sources)
    assert texts(answer) == ["10.0.0.2"]
    assert list(held_in(made, OWN)) == [ip_address("10.0.0.2")]
    more = allocate("web", counts={4: 2})
    assert isinstance(served(view_of(block_of(OWN, "host:n")), more, sources)[0], Short)
    named = allocate("web", fixed=(ip_address("10.0.0.3"),))
    assert texts(served(view_of(block_of(OWN, "host:n")), named, sources)[0]) == ["10.0.0.3"]


@pytest.mark.parametrize(
    ("block", "strict", "error"),
    [
        (block_of(OWN, "host:n", "net.other"), False, AddressInUse),
        (block_of(OWN, "host:m"), True, NotOwner),
        (block_of(OWN, None), True, NotOwner),
        (msgspec.structs.replace(block_of(OWN, "host:n"), unallocated=[0]), False, BlockCorrupt),
    ],
    ids=["in use", "another's", "nobody's", "torn"],
)
def test_a_named_address_is_refused(block: Block, strict: bool, error: type[Exception]) -> None:
    sources = Sources("n", [OWN], strict=strict)
    request = allocate("web", fixed=(ip_address("10.0.0.0"),))
    answer, made = served(view_of(block), request, sources)
    assert error_of(answer) is error
    assert not made.changes


def test_a_named_address_lies_in_a_pool_and_in_a_block() -> None:
    sources = Sources("n", [OWN])
    far = allocate("web", fixed=(ip_address("10.9.0.1"),))
    assert error_of(served(view_of(block_of(FAR, "host:n")), far, sources)[0]) is NotInPool
    near = allocate("web", fixed=(ip_address("10.0.0.5"),))
    assert served(view_of(), near, sources)[0] == Unclaimed(OTHERS)


def test_an_address_that_is_named_twice_is_taken_once() -> None:
    twice = (ip_address("10.0.0.1"), ip_address("10.0.0.1"))
    view = view_of(block_of(OWN, "host:m"))
    answer, made = served(view, allocate("web", fixed=twice), Sources("n"))
    assert texts(answer) == ["10.0.0.1", "10.0.0.1"]
    assert held_in(made, OWN) == {ip_address("10.0.0.1"): MINE}
    (handle,) = [c.value for c in made.changes if isinstance(c, Put) and c.key == HandleKey(MINE)]
    assert handle == handles.add(None, str(OWN), 1)


def standing(view: View, *addresses: str) -> None:
    """The endpoint of `web` records these addresses."""
    companion = endpoint_companion("web", "web")
    put = companion.change(None, [ip_address(one) for one in addresses])
    assert put is not None
    view.wrote([put], 9)


@pytest.mark.parametrize(
    ("holders", "recorded", "options", "kept"),
    [
        ([MINE], ["10.0.0.0"], {}, True),
        ([MINE], ["10.0.0.0"], {"fixed": (ip_address("10.0.0.0"),)}, True),
        (["net.other"], ["10.0.0.0"], {}, False),
        ([MINE], ["10.0.0.0", "10.0.0.2"], {}, False),
        ([MINE], ["10.0.0.0"], {"fixed": (ip_address("10.0.0.3"),)}, False),
        ([MINE], [], {}, False),
    ],
    ids=["held", "held and named", "another's", "one was lost", "another named", "not recorded"],
)
def test_an_attachment_keeps_its_addresses_if_they_are_all_still_its_own(
    holders: list[str], recorded: list[str], options: dict[str, object], kept: bool
) -> None:
    view = view_of(block_of(OWN, "host:n", *holders), web=handles.add(None, str(OWN), 1))
    standing(view, *recorded)
    request = allocate("web", **options)
    assert isinstance(request, Allocate)
    answer, made = served(view, request, Sources("n", [OWN]))
    assert isinstance(answer, Granted)
    assert answer.fresh != kept
    if kept:
        assert texts(answer) == recorded
        assert not [c for c in made.changes if isinstance(c, Put) and c.key == BlockKey(OWN)]
    else:
        before = {OWN[n]: holder for n, holder in enumerate(holders)}
        assert held_in(made, OWN) == before | dict.fromkeys(answer.addresses, MINE)
        assert not before.keys() & set(answer.addresses)


def test_one_family_of_two_is_not_what_a_dual_stack_pod_has() -> None:
    six = ip_network("fd00::/126")
    view = view_of(
        block_of(OWN, "host:n", MINE), block_of(six, "host:n"), web=handles.add(None, str(OWN), 1)
    )
    standing(view, "10.0.0.0")
    answer, _ = served(view, allocate("web", families=(4, 6)), Sources("n", [OWN, six]))
    assert texts(answer) == ["10.0.0.1", "fd00::"]


@pytest.mark.parametrize(
    ("spared", "only", "left"),
    [
        ((), None, []),
        (("10.0.0.0",), None, ["10.0.0.0"]),
        ((), ("10.0.0.0",), ["10.0.0.1"]),
        (("10.0.0.0",), ("10.0.0.0",), ["10.0.0.0", "10.0.0.1"]),
    ],
)
def test_what_is_spared_or_not_named_stays_and_so_does_what_others_hold(
    spared: tuple[str, ...], only: tuple[str, ...] | None, left: list[str]
) -> None:
    there = block_of(OWN, "host:n", MINE, MINE, "net.other")
    view = view_of(there, web=handles.add(None, str(OWN), 2))
    named = None if only is None else frozenset(map(ip_address, only))
    request = Release(MINE, frozenset(map(ip_address, spared)), only=named)
    answer, made = served(view, request, Sources("n"))
    assert texts(answer) == [one for one in ("10.0.0.0", "10.0.0.1") if one not in left]
    if len(left) < 2:
        assert held_in(made, OWN) == {
            **dict.fromkeys(map(ip_address, left), MINE),
            ip_address("10.0.0.2"): "net.other",
        }
    handles_of = [c for c in made.changes if c.key == HandleKey(MINE)]
    if not left:
        assert isinstance(handles_of[0], Delete)
    elif len(left) == 1:
        assert isinstance(handles_of[0], Put)
        assert handles_of[0].value.block == {str(OWN): 1}
    else:
        assert not handles_of
