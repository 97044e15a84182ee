"""CMT-1 to CMT-3: comments go where packets do not meet them, and nobody sees that they went."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linux.iptables import Desired, HashScheme, Table, comments
from linux.iptables.comments import Comments, moved
from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.connection import Connection
from tests.linux.test_iptables_packed import Family
from tests.support.netns import Namespace, network_namespace

SCHEME = HashScheme("our:", ("our-",))
HASH = "0123456789abcdef"
LONG = "x" * 255
PING = ("ping", "-c", "3", "-i", "0.01", "127.0.0.1")
OURS = f"-m comment --comment our:{HASH}"
PLAIN = (
    f"-A FORWARD {OURS} -j our-way",
    f"-A FORWARD -m mark --mark 0x1/0x1 {OURS} -m comment --comment accepted -j ACCEPT",
    f"-A our-way -i pod+ {OURS} -g our-pod",
    f"-A our-way {OURS} -m comment --comment one -m comment --comment two -j DROP",
    f"-A our-pod -m conntrack --ctstate RELATED,ESTABLISHED {OURS} -j ACCEPT",
    f"-A our-pod {OURS} -j MARK --set-xmark 0x0/0x3",
    f"-A our-pod -p tcp {OURS} -m comment --comment {LONG} -j RETURN",
    f"-A our-pod {OURS} -m comment --comment Profile -j MARK --set-xmark 0x1/0x1",
    f"-A our-pod {OURS}",
)
LEFT_ALONE = (
    "-A FORWARD -m comment --comment theirs -j ACCEPT",
    '-A FORWARD -m comment --comment "not our:" -j ACCEPT',
    f"-A our-pod -p tcp -m multiport --dports 80 {OURS} -j ACCEPT",
    f"-A our-pod {OURS} -j LOG",
)


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("comments") as space, space.entered():
        space.run("ip", "link", "set", "lo", "up")
        yield space


def restore(space: Namespace, family: Family, rules: Sequence[str]) -> None:
    program = "iptables-nft-restore" if family == 4 else "ip6tables-nft-restore"
    chains = ("our-way", "our-pod")
    lines = ("*filter", *(f":{chain} - [0:0]" for chain in chains), *rules, "COMMIT", "")
    space.run(program, "--noflush", input="\n".join(lines))


def listed(space: Namespace, family: Family = 4) -> list[str]:
    """What people see, with counters."""
    program = "iptables-nft-save" if family == 4 else "ip6tables-nft-save"
    text = space.run(program, "-t", "filter", "-c")
    return [line for line in text.splitlines() if not line.startswith("#")]


def rules(family: Family = 4) -> list[m.Attributes]:
    with closing(Connection()) as connection:
        return connection.objects(messages.GETRULE, family, "filter")


def met(rule: m.Attributes) -> int:
    """How many comments the kernel asks on its way to the rule's verdict."""
    kinds = []
    for _, element in m.iterate_attributes(rule.get(messages.RULE_EXPRESSIONS, b"")):
        expression = m.parse_attributes(element)
        named = m.parse_attributes(expression.get(comments.DATA, b"")).get(1)
        kinds.append("said" if named == b"comment\0" else expression[comments.NAME].decode())
    end = kinds.index("immediate\0") if "immediate\0" in kinds else len(kinds)
    return kinds[:end].count("said")


def move(family: Family = 4) -> Comments:
    made = Comments("filter", family, SCHEME)
    asyncio.run(made.move())
    return made


@pytest.mark.parametrize("family", [4, 6])
def test_a_rule_is_listed_as_before_and_packets_meet_its_comments_no_more(
    space: Namespace, family: Family
) -> None:
    restore(space, family, PLAIN)
    before = listed(space, family)
    assert [met(rule) for rule in rules(family)].count(0) == 0
    assert not move(family).due
    assert listed(space, family) == before
    # Where there is no verdict to stand behind, the first of two comments is met.
    chain = b"our-pod\0"
    of_pod = [met(rule) for rule in rules(family) if rule[messages.RULE_CHAIN] == chain]
    assert of_pod == [0, 0, 0, 1, 0]
    assert {met(rule) for rule in rules(family) if rule[messages.RULE_CHAIN] != chain} == {0}


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rules each batch replaced."""
    seen: list[int] = []
    commit = Connection.commit

    def counted(self: Connection, requests: Sequence[bytes]) -> None:
        seen.append(len(requests))
        commit(self, requests)

    monkeypatch.setattr(Connection, "commit", counted)
    return seen


def test_what_was_moved_is_not_written_again(space: Namespace, batches: list[int]) -> None:
    restore(space, 4, PLAIN)
    move()
    move()
    assert batches == [len(PLAIN), 0]


def test_foreign_rules_and_those_that_are_not_plain_are_left_alone(space: Namespace) -> None:
    restore(space, 4, LEFT_ALONE)
    before = rules()
    move()
    assert rules() == before


def test_a_rule_counts_on(space: Namespace) -> None:
    restore(space, 4, (f"-A INPUT -p icmp {OURS} -j our-way", f"-A our-way {OURS} -j RETURN"))
    space.run(*PING)
    before = listed(space)
    assert [int(count) for count in re.findall(r"^\[(\d+):", "\n".join(before), re.M)] == [6, 6]
    move()
    assert listed(space) == before


def test_a_rule_of_a_set_is_of_the_same_set_afterwards(space: Namespace) -> None:
    sets = "create one hash:net\ncreate two hash:net\nadd two 127.0.0.0/8\n"
    space.run("ipset", "restore", input=sets)
    match = "-m set ! --match-set one src -m set --match-set two src"
    restore(space, 4, (f"-A INPUT -p icmp {match} {OURS} -j DROP",))
    before = listed(space)
    move()
    assert {met(rule) for rule in rules()} == {0}
    assert listed(space) == before
    space.run("ipset", "destroy", "one", check=False)
    assert "one" in space.run("ipset", "list", "-n").split()
    assert "0 received" in space.run("ping", "-c", "1", "-W", "0.2", "127.0.0.1", check=False)


def test_many_are_moved_in_parts(
    space: Namespace, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comments, "_AT_ONCE", 4)
    restore(space, 4, PLAIN)
    made = Comments("filter", 4, SCHEME)
    while made.due:
        asyncio.run(made.move())
    assert batches == [4, 4, 1]
    # The one that has two comments and no verdict.
    assert sum(1 for rule in rules() if met(rule)) == 1


def test_a_refusal_leaves_the_rules_as_they_were(
    space: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore(space, 4, PLAIN)
    before = listed(space)
    commit = Connection.commit

    def late(self: Connection, requests: Sequence[bytes]) -> None:
        space.run("iptables-nft", "-D", "our-pod", "1")
        commit(self, requests)

    monkeypatch.setattr(Connection, "commit", late)
    made = move()
    assert not made.due
    gone = [line for line in before if "ESTABLISHED" in line]
    assert [line for line in before if line not in gone] == listed(space)
    assert {met(rule) for rule in rules()} >= {1, 2, 3}


def test_what_a_program_writes_later_is_looked_at_alone(space: Namespace) -> None:
    made = Comments("filter", 4, SCHEME)
    made.restored({"our-way"})
    asyncio.run(made.move())
    assert not made.due
    restore(space, 4, PLAIN)
    made.restored({"our-pod"})
    assert made.due
    asyncio.run(made.move())
    assert {met(rule) for rule in rules() if rule[messages.RULE_CHAIN] == b"our-way\0"} == {1, 3}


def desired(mark: int) -> Desired:
    """A table with rules of ours in a kernel's chain."""
    accepted = f'-m comment --comment "accepted" -m mark --mark {mark:#x}/{mark:#x} --jump ACCEPT'
    return Desired(
        chains={"our-way": ('-m comment --comment "nobody" --jump DROP',)},
        inserts={"FORWARD": ("--jump our-way",)},
        appends={"FORWARD": (accepted,)},
    )


def test_a_polished_table_is_edited_as_any_other(space: Namespace) -> None:
    async def story() -> None:
        table = Table("filter", 4, "nft", SCHEME)
        assert not table.polishable, "before the first commit there is nothing to be known"
        await table.commit(desired(1))
        assert table.polishable
        await table.polish()
        assert not table.polishable
        assert {met(rule) for rule in rules()} == {0}
        assert await table.refresh() == ()
        report = await table.commit(desired(2))
        assert (report.saves, report.restores) == (0, 1)
        assert table.polishable, "a program wrote again"
        text = "\n".join(listed(space))
        assert "0x2/0x2" in text
        assert "0x1/0x1" not in text

    asyncio.run(story())


def test_legacy_has_no_other_place_for_a_comment(space: Namespace) -> None:
    async def story() -> None:
        table = Table("filter", 4, "legacy", SCHEME)
        await table.commit(desired(1))
        assert not table.polishable
        await table.polish()
        assert await table.refresh() == ()

    asyncio.run(story())


def comment(text: str) -> bytes:
    """An expression as iptables makes it."""
    told = text.encode() + bytes(256 - len(text))
    inner = m.attribute(1, b"comment\0") + m.attribute(2, bytes(4)) + m.attribute(3, told)
    return m.attribute(comments.NAME, b"match\0") + m.nest(comments.DATA, inner)


TEXTS = st.text(st.sampled_from("ab comment"), min_size=1, max_size=255)
OTHERS = st.sampled_from([b"counter", comment("x").replace(b"comment\0", b"comments")])


@given(st.lists(TEXTS | OTHERS, max_size=6), st.sampled_from([b"", b"\0\2a\0"]))
def test_comments_keep_their_order_and_the_rest_its_own(
    parts: list[str | bytes], userdata: bytes
) -> None:
    given_ = [comment(part) if isinstance(part, str) else part for part in parts]
    said = [part for part in parts if isinstance(part, str)]
    others = [part for part in parts if isinstance(part, bytes)]
    elements, data = moved(given_, userdata)
    assert elements[: len(others)] == others
    behind = elements[len(others) :]
    if said and not userdata and len(said[-1]) <= 253:
        assert data == messages.comment_bytes(said[-1].encode())
        said = said[:-1]
    else:
        assert data == userdata
    assert behind == [comment(text) for text in said]
    assert moved(elements, data) == (elements, data)
