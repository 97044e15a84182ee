"""NFT-1 to NFT-3 and NFC-1 in the kernel: one batch for a change, drift found, others untouched."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from linux.errors import KernelError
from linux.netlink.wire import iterate_attributes
from linux.nftables import Code, Hook, Packed, Ruleset, pack
from linux.nftables import expressions as x
from linux.nftables import statements as st
from linux.nftables.connection import Connection, Refused
from linux.nftables.messages import comment_data, new_chain, new_table, read_comment
from tests.support.netns import Namespace, network_namespace

INPUT = Hook("filter", 1, 0)
FOREIGN = """
add table ip kube-proxy
add chain ip kube-proxy services { type nat hook prerouting priority -100; }
add rule ip kube-proxy services accept
add table ip filter
add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }
add rule ip filter FORWARD drop
add table inet theirs
add set inet theirs s { type ipv4_addr; }
add element inet theirs s { 10.0.0.1 }
"""


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("nft") as space, space.entered():
        yield space


def story(told: Callable[[Ruleset], Awaitable[None]]) -> None:
    async def run() -> None:
        with Ruleset((4, 6), "mine") as rules:
            await told(rules)

    asyncio.run(run())


def chain(*actions: bytes, comment: str = "") -> Packed:
    return pack([Code((st.counter() + action,), comment) for action in actions])


def want_both(rules: Ruleset) -> None:
    for family in (4, 6):
        rules.want_map(family, "where")
        rules.want(family, "INPUT", chain(st.verdict(st.JUMP, "one")), INPUT)
        rules.want(family, "one", chain(st.verdict(st.JUMP, "two"), b"", comment="hello"))
        rules.want(family, "two", chain(b""))
        rules.want(family, "pod", chain(st.verdict(st.DROP)))
        rules.want_element(family, "where", "cali1", "pod")


def test_everything_is_one_batch_and_nothing_is_none(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        want_both(rules)
        report = await rules.commit()
        assert (rules.commits, rules.dumps) == (1, 1)
        assert report.drift == ()
        assert not rules.dirty
        want_both(rules)
        assert not rules.dirty
        assert (await rules.commit()).messages == 0
        assert await rules.refresh() == ()
        assert not rules.dirty
        assert rules.commits == 1
        assert (rules.chains, rules.rules, rules.maps) == (8, 10, 2)

    story(told)
    listed = space.run("nft", "list", "table", "ip6", "mine")
    assert '"cali1" : goto pod' in listed
    assert re.search(r'jump two comment "cali:.{16}; hello"', listed)


def test_only_what_changes_is_written_and_other_counters_stay(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        want_both(rules)
        await rules.commit()
        space.run("ip", "link", "set", "lo", "up")
        space.run("ping", "-c", "1", "-W", "1", "127.0.0.1")
        before = (await rules.counters(4, ["one", "two"]))["two"]
        assert before[0][0] > 0
        rules.want(4, "pod", chain(st.verdict(st.ACCEPT)))
        rules.unwant_element(4, "where", "cali1")
        rules.want_element(4, "where", "cali2", "pod")
        report = await rules.commit()
        assert report.chains_written == ("pod",)
        # Empty and fill the chain, two changes of the map.
        assert report.messages == 4
        after = await rules.counters(4, ["two", "nowhere"])
        assert after["two"][0][0] >= before[0][0]
        assert after["two"][0][2].startswith("cali:")
        assert "nowhere" not in after

    story(told)
    assert '"cali2" : goto pod' in space.run("nft", "list", "map", "ip", "mine", "where")


def test_a_chain_goes_with_all_that_names_it(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        want_both(rules)
        await rules.commit()
        for family in (4, 6):
            rules.unwant(family, "pod")
            rules.unwant_element(family, "where", "cali1")
            rules.want(family, "one", chain(b""))
            rules.unwant(family, "two")
        report = await rules.commit()
        assert sorted(report.chains_deleted) == ["pod", "pod", "two", "two"]
        assert await rules.refresh() == ()

    story(told)
    assert "pod" not in space.run("nft", "list", "ruleset")


DAMAGE = [
    "flush chain ip mine one",
    "add rule ip mine two accept",
    "insert rule ip mine one drop",
    "delete element ip mine where { cali1 }",
    "add element ip mine where { cali7 : accept }",
    "add chain ip mine INPUT { policy drop; }",
    "add table ip mine { flags dormant; }",
    "add chain ip mine stray",
    "add map ip mine stray { type mark : verdict; }",
    "delete table ip mine",
    "flush ruleset",
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_drift_is_found_told_and_repaired(space: Namespace, damage: str) -> None:
    async def told(rules: Ruleset) -> None:
        want_both(rules)
        await rules.commit()
        before = _listed(space)
        space.run("nft", *damage.split(" ", maxsplit=3))
        assert _listed(space) != before
        assert await rules.refresh()
        assert rules.dirty
        await rules.commit()
        assert _listed(space) == before
        assert await rules.refresh() == ()

    story(told)


def _listed(space: Namespace) -> str:
    listed = space.run("nft", "-s", "list", "ruleset")
    # In what order chains and rules stand in a listing depends on when each was made.
    return "\n".join(sorted(listed.splitlines()))


def test_a_write_beside_drift_is_repaired_by_the_write(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        want_both(rules)
        await rules.commit()
        space.run("nft", "flush", "ruleset")
        rules.want(4, "two", chain(st.verdict(st.ACCEPT)))
        report = await rules.commit()
        assert rules.dumps == 2, "the first attempt was refused"
        assert "pod" in report.drift
        assert await rules.refresh() == ()

    story(told)


@pytest.mark.promise("PAIN-20")
def test_nothing_of_others_is_touched(space: Namespace) -> None:
    space.run("nft", "-f", "-", input=FOREIGN)
    before = space.run("nft", "list", "ruleset")

    async def told(rules: Ruleset) -> None:
        want_both(rules)
        await rules.commit()
        await rules.refresh()
        rules.unwant(4, "pod")
        rules.unwant_element(4, "where", "cali1")
        await rules.commit()
        assert rules.remove()
        assert not rules.remove()

    story(told)
    assert space.run("nft", "list", "ruleset") == before


@pytest.fixture
def batches(space: Namespace, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What stands in the kernel after each batch."""
    stands: list[str] = []
    commit = Connection.commit

    def recorded(*args: Any, **keywords: Any) -> None:
        commit(*args, **keywords)
        stands.append(_listed(space))

    monkeypatch.setattr(Connection, "commit", recorded)
    return stands


def test_a_map_outlives_the_rules_that_ask_it(space: Namespace, batches: list[str]) -> None:
    """A packet that is inside the rules asks the map of the newest generation (nft_lookup).

    Were both gone in one batch, it would find no answer, and the rule behind the map drops it.
    """

    async def told(rules: Ruleset) -> None:
        want_both(rules)
        for family in (4, 6):
            asked = chain(x.interface_map("where", incoming=True), st.verdict(st.DROP))
            rules.want(family, "two", asked)
        await rules.commit()
        batches.clear()
        assert rules.remove()

    story(told)
    emptied, removed = batches
    assert "vmap" not in emptied
    assert "drop" not in emptied
    assert emptied.count('"cali1" : goto pod') == 2
    assert removed == ""


def test_an_unused_map_outlives_the_rules_that_ask_it(space: Namespace, batches: list[str]) -> None:
    """As after an upgrade from a version that had another map."""

    async def older(rules: Ruleset) -> None:
        want_both(rules)
        rules.want(4, "two", chain(x.interface_map("where", incoming=True), st.verdict(st.DROP)))
        await rules.commit()

    async def newer(rules: Ruleset) -> None:
        rules.want(4, "new", chain(st.verdict(st.ACCEPT)), INPUT)
        await rules.commit()

    story(older)
    batches.clear()
    story(newer)
    emptied, *_, removed = batches
    assert "vmap" not in emptied
    assert emptied.count('"cali1" : goto pod') == 2
    assert "cali1" not in removed
    assert "chain new" in removed


def test_a_refused_chain_is_named_and_nothing_is_written(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        want_both(rules)
        await rules.commit()
        before = _listed(space)
        bad = chain(x.lookup("no such set"))
        rules.want(4, "two", chain(st.verdict(st.ACCEPT)))
        rules.want(6, "one", bad)
        with pytest.raises(Refused, match="write chain one"):
            await rules.commit()
        assert rules.blamed.keys() == {(6, "one")}
        assert _listed(space) == before
        assert not await rules.accepts(6, bad)
        assert await rules.accepts(6, chain(st.verdict(st.ACCEPT)))
        assert _listed(space) == before, "asking leaves nothing"
        rules.want(6, "one", chain(st.verdict(st.ACCEPT)))
        await rules.commit()
        assert rules.blamed == {}
        assert await rules.refresh() == ()

    story(told)


def test_what_a_restarted_owner_finds_equal_it_does_not_write(space: Namespace) -> None:
    async def first(rules: Ruleset) -> None:
        want_both(rules)
        await rules.commit()

    async def second(rules: Ruleset) -> None:
        want_both(rules)
        assert rules.differs(4, "one"), "unknown until read"
        assert (await rules.commit()).messages == 0
        rules.want(4, "one", chain(b""))
        assert rules.differs(4, "one")
        assert not rules.differs(4, "two")
        assert not rules.differs(4, "never seen")

    story(first)
    story(second)


def test_a_batch_of_many_chains(space: Namespace) -> None:
    """Some megabytes in one datagram."""

    async def told(rules: Ruleset) -> None:
        body = chain(*[x.mark(n, 0xFFFF) + st.verdict(st.DROP) for n in range(20)])
        for number in range(1000):
            rules.want(4, f"chain{number}", body)
        report = await rules.commit()
        assert report.bytes > 4 << 20
        assert await rules.refresh() == ()

    story(told)


def test_a_large_rule_set_without_rights_on_the_host(space: Namespace) -> None:
    """In a user namespace, where older kernels limit the size of a datagram."""
    code = (
        "import asyncio\n"
        "from linux.nftables import Code, Hook, Ruleset, pack\n"
        "from linux.nftables import expressions as x\n"
        "from linux.nftables import statements as st\n"
        "body = [Code((x.mark(n, 0xFFFF) + st.verdict(st.DROP),)) for n in range(20)]\n"
        "async def told():\n"
        "    with Ruleset((4, 6), 'mine') as rules:\n"
        "        for family in (4, 6):\n"
        "            rules.want_map(family, 'where')\n"
        "            jump = Code((x.interface_map('where', incoming=True),))\n"
        "            rules.want(family, 'INPUT', pack([jump]), Hook('filter', 1, 0))\n"
        "            for n in range(500):\n"
        "                rules.want(family, f'c{n}', pack(body))\n"
        "                rules.want_element(family, 'where', f'cali{n}', f'c{n}')\n"
        "        report = await rules.commit()\n"
        "        print(report.bytes > 1 << 20, await rules.refresh())\n"
        "asyncio.run(told())\n"
    )
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "True ()\n", done.stderr


def test_parts_are_cut_between_chains_and_blame_the_right_one(
    space: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told(rules: Ruleset) -> None:
        want_both(rules)
        for number in range(50):
            rules.want(6, f"c{number}", chain(*[st.verdict(st.DROP)] * 5))
        rules.want(6, "c49", chain(x.lookup("no such set")))
        monkeypatch.setattr(Connection, "room", 3000)
        with pytest.raises(Refused, match="write chain c49"):
            await rules.commit()
        assert rules.blamed.keys() == {(6, "c49")}
        assert rules.commits > 5
        rules.want(6, "c49", chain(b""))
        await rules.commit()
        assert await rules.refresh() == ()

    story(told)


def test_a_refused_request_names_its_place(space: Namespace) -> None:
    with Connection() as connection:
        requests = [new_table(4, "mine"), new_chain(4, "other", "c", None)]
        with pytest.raises(Refused) as caught:
            connection.commit(requests, ["make table", "make chain c"])
        assert caught.value.faults[0][0] == 1
        assert "make chain c: No such file or directory" in str(caught.value)
        assert connection.table_flags(4, "mine") is None
        with pytest.raises(KernelError):
            connection.elements(4, "mine", "none")


def test_a_long_comment_is_cut() -> None:
    ((_, data),) = iterate_attributes(comment_data("x" * 500))
    assert read_comment(data) == "x" * 127
    assert read_comment(b"") == ""
