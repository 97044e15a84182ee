"""PKD-1, PKD-2: what is packed is what a restore would have written."""

from __future__ import annotations

import asyncio
import errno
import itertools
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linux.iptables import Desired, HashScheme, Table, kinds, templates
from linux.iptables import packed as packed_module
from linux.iptables.kinds import PackedKind
from linux.iptables.packed import Packer
from linux.iptables.plan import Plan, make_plan
from linux.iptables.render import Filling, Renderer
from linux.iptables.writer import AT_ONCE
from linux.nftables.connection import to_its_end
from tests.support.netns import Namespace, network_namespace

SCHEME = HashScheme("our:", ("our-",))
PING = ("ping", "-c", "1", "-W", "1", "127.0.0.1")
Family = Literal[4, 6]
POD = (
    "-m conntrack --ctstate RELATED,ESTABLISHED --jump ACCEPT",
    "-m conntrack --ctstate INVALID --jump DROP",
    "--jump MARK --set-mark 0/0x10000",
    '-m comment --comment "no tunnels" -p udp -m multiport --destination-ports 4789 --jump DROP',
    '-p 4 -m comment --comment "no tunnels" --jump DROP',
    "-m mark --mark 0/0x20000 --jump our-policy",
    "--jump DROP",
)


def wanted(pods: int) -> Desired:
    names = [f"pod{number:011d}" for number in range(pods)]
    dispatch = [f"--in-interface {name} --goto our-fw-{name}" for name in names]
    return Desired(
        chains={
            "our-OUTPUT": ("--jump our-fw-pod00000000000",) if pods else (),
            "our-policy": ("-p tcp --destination-port 80 --jump ACCEPT",),
            "our-dispatch": (*dispatch, "--jump DROP"),
            **{f"our-fw-{name}": POD for name in names},
        },
        inserts={"FORWARD": ("--jump our-dispatch",), "OUTPUT": ("--jump our-OUTPUT",)},
        unordered=("our-dispatch",),
        closed=("our-dispatch",),
    )


@pytest.fixture
def spaces() -> Iterator[tuple[Namespace, Namespace]]:
    with network_namespace("packed") as packed, network_namespace("restored") as restored:
        yield packed, restored


def saved(space: Namespace, family: Family, *more: str) -> list[str]:
    program = "iptables-nft-save" if family == 4 else "ip6tables-nft-save"
    text = space.run(program, "-t", "filter", *more)
    return [line for line in text.splitlines() if not line.startswith("#")]


def table(family: Family, *, warm: bool) -> Table:
    return Table("filter", family, "nft", SCHEME, warm=warm)


async def commit(made: Table, desired: Desired) -> None:
    """As felix does: at once where that is possible."""
    for name, rules in desired.chains.items():
        unordered, closed = name in desired.unordered, name in desired.closed
        made.want(name, rules, unordered=unordered, closed=closed)
    made.want_hooks(desired.inserts, desired.appends)
    if made.commit_now(sweep=False) is None:
        await made.commit(sweep=False)


def grow(
    space: Namespace, family: Family, *, warm: bool, pods: int = 6, now: bool = False
) -> Table:
    made = table(family, warm=warm)

    async def story() -> None:
        for number in range(pods + 1):
            if now:
                await commit(made, wanted(number))
            else:
                await made.commit(wanted(number), sweep=False)
            if number == 1:
                # Packets to count, in the very rules that are learned of.
                await asyncio.to_thread(space.run, *PING, check=False)
        made.close()

    space.run("ip", "link", "set", "lo", "up")
    with space.entered():
        asyncio.run(story())
    return made


def test_many_new_chains_are_planned_once(
    spaces: tuple[Namespace, Namespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    space, _ = spaces
    made = grow(space, 4, warm=True, now=True)
    plans = []

    def planned(*given: Any, **named: Any) -> Plan:
        plans.append(make_plan(*given, **named))
        return plans[-1]

    async def story() -> None:
        await commit(made, wanted(20))
        made.close()

    monkeypatch.setattr("linux.iptables.table.make_plan", planned)
    with space.entered():
        asyncio.run(story())
    assert [plan.size for plan in plans] == [len(plans[0].lines)]
    assert plans[0].size > AT_ONCE
    assert sum("-A our-dispatch -i" in line for line in saved(space, 4)) == 20


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("now", [False, True])
def test_packed_rules_are_those_of_a_restore(
    spaces: tuple[Namespace, Namespace], family: Family, now: bool
) -> None:
    packed, restored = spaces
    made, other = (grow(space, family, warm=space is packed, now=now) for space in spaces)
    assert (made.packed, other.packed) == (4, 0)
    assert other.programs.restores - made.programs.restores == 4
    found = saved(packed, family)
    # A counter of the policy of a kernel's chain may have counted the ping.
    assert re.sub(r" \[\d+:\d+\]", "", "\n".join(found)) == re.sub(
        r" \[\d+:\d+\]", "", "\n".join(saved(restored, family))
    )
    chain = packed.run("nft", "list", "chain", "ip" if family == 4 else "ip6", "filter",
                       "our-fw-pod00000000005")  # fmt: skip
    assert chain == restored.run(
        "nft", "list", "chain", "ip" if family == 4 else "ip6", "filter", "our-fw-pod00000000005"
    )


@pytest.mark.parametrize("family", [4, 6])
def test_rules_of_wildcards_and_their_targets_are_packed_under_other_names(
    spaces: tuple[Namespace, Namespace], family: Family
) -> None:
    """A bin's rule is written once in a node's life, but they are all of one kind."""

    def bins(count: int) -> Desired:
        names = "0123456789abcdef"[:count]
        return Desired(
            chains={
                "our-dispatch": (
                    *(f"--in-interface our{one}+ --goto our-dispatch-{one}" for one in names),
                    "--jump DROP",
                ),
                **{
                    f"our-dispatch-{one}": (
                        f"--in-interface our{one}9 --goto our-fw-our{one}9",
                        "--jump DROP",
                    )
                    for one in names
                },
                **{f"our-fw-our{one}9": ("-m mark --mark 0/0x2 --jump RETURN",) for one in names},
            },
            inserts={"FORWARD": ("--jump our-dispatch",)},
            unordered=("our-dispatch",),
            closed=("our-dispatch",),
        )

    async def story(made: Table) -> None:
        for count in (1, 4, 5, 8, 16):
            await commit(made, bins(count))
        made.close()

    tables = []
    for space in spaces:
        made = table(family, warm=space is spaces[0])
        with space.entered():
            asyncio.run(story(made))
        tables.append(made)
    assert [made.packed for made in tables] == [3, 0]
    assert saved(spaces[0], family) == saved(spaces[1], family)


def test_counters_begin_at_zero(spaces: tuple[Namespace, Namespace]) -> None:
    packed, _ = spaces
    grow(packed, 4, warm=True)
    rules = [line for line in saved(packed, 4, "-c") if "-A our-fw-pod0000000000" in line]
    counted = [line for line in rules if not line.startswith("[0:0]")]
    assert all("our-fw-pod00000000000 " in line for line in counted)
    assert counted, "nothing was counted: the test proves nothing"


def test_iptables_removes_what_was_packed(spaces: tuple[Namespace, Namespace]) -> None:
    packed, _ = spaces
    made = grow(packed, 4, warm=True)

    async def shrink() -> None:
        await made.commit(wanted(2), refresh=True)
        made.close()

    with packed.entered():
        asyncio.run(shrink())
    names = {line.split()[0][1:] for line in saved(packed, 4) if line.startswith(":our-fw")}
    assert names == {"our-fw-pod00000000000", "our-fw-pod00000000001"}


def test_what_the_kernel_refuses_goes_to_the_restore(spaces: tuple[Namespace, Namespace]) -> None:
    packed, _ = spaces
    made = grow(packed, 4, warm=True)
    packed.run("nft", "flush", "ruleset")

    async def repair() -> None:
        # The batch names chains that are gone, and so does the restore; then it is read anew.
        await made.commit(wanted(8), sweep=False)
        made.close()

    with packed.entered():
        asyncio.run(repair())
    assert sum(":our-fw" in line for line in saved(packed, 4)) == 8
    assert made.packed == 4


@pytest.mark.parametrize("now", [True, False])
def test_a_batch_without_an_answer_is_not_written_twice(
    spaces: tuple[Namespace, Namespace], now: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel did it and the answer was lost: the table is read again before the next write."""
    packed, restored = spaces
    with packed.entered():
        made = grow(packed, 4, warm=True, now=now)
        packer = made._writer._packer
        assert packer is not None
        lost: list[bool] = []
        whole = packer.send

        def send(requests: Sequence[bytes]) -> None:
            whole(requests)
            if not lost:
                lost.append(True)
                raise OSError(errno.ENOBUFS, "No buffer space available")

        monkeypatch.setattr(packer, "send", send)
        asyncio.run(commit(made, wanted(8)) if now else made.commit(wanted(8), sweep=False))
        assert lost
    with restored.entered():
        plain = grow(restored, 4, warm=False)
        asyncio.run(plain.commit(wanted(8)))
    assert sorted(saved(packed, 4)) == sorted(saved(restored, 4))


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.text("abcz0189.-", min_size=1, max_size=24), min_size=1, max_size=6),
    chosen=st.lists(st.integers(0, len(POD) - 1), min_size=1, max_size=9),
    family=st.sampled_from((4, 6)),
)
def test_a_chain_that_is_packed_as_one_is_its_lines_packed_one_by_one(
    names: list[str], chosen: list[int], family: Family
) -> None:
    packer, renderer = Packer("filter", family, SCHEME), Renderer(SCHEME)
    # As if they had been learned: bytes before and behind the hash, of many lengths.
    for number, rule in enumerate(POD):
        packer._templates._ready[rule] = bytes([1]) * (8 + 4 * number), bytes([2]) * (4 * number)
    rules = tuple(POD[each] for each in chosen)
    for name in names:
        # Of one length the second is made from what the first left.
        for chain in (f"our-{name}", f"our-{name[::-1]}"):
            filling = Filling(chain, renderer.chain(chain, rules))
            whole = packer.pack([filling])
            assert whole == packer.pack(filling.additions)
            assert whole is not None
            assert len(whole) == len(rules)


SIZES = tuple(itertools.product((1, 2, 3, 5, 7), (1, 2, 3, 6)))


def knowing() -> Packer:
    """Rules of dispatch of all lengths were learned, none was packed."""
    packer = Packer("filter", 4, SCHEME)
    for way, plus in itertools.product(("in", "out"), ("", "+")):
        shape = f'--{way}-interface @{plus} -m comment --comment "our:" --goto #'
        pieces = (b"1", b"2", b"3", b"4" + plus.encode())
        for size, to in SIZES:
            packer._known[shape, size, to + 4] = PackedKind(pieces, (2, 0, 1))
    return packer


NAMES = st.one_of(
    st.text("abi-g+.", min_size=1, max_size=6),
    st.sampled_from(("comment", "our", "m", "j", "-j", "x-g", "our-fw", "goto", "in", "@", "#")),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("iiio"), NAMES, NAMES, st.booleans()), max_size=12))
def test_a_rule_of_dispatch_is_packed_as_if_none_had_been_before(
    story: list[tuple[str, str, str, bool]],
) -> None:
    kept, naive, renderer = knowing(), knowing(), Renderer(SCHEME)
    plain = [("i", "q" * one[0], "z" * one[1], plus) for one in SIZES for plus in (False, True)]
    for number, (way, interface, target, wildcard) in enumerate([*plain, *story]):
        word = {"i": "--in-interface", "o": "--out-interface"}[way]
        name = f"{interface}{'+' * wildcard}"
        rule = f"{word} {name} --goto our-{target}"
        packed = kept.pack(step := Filling("our-x", renderer.chain("our-x", (rule,))).additions)
        if number >= len(plain):
            naive._dispatch.clear()
            assert packed == naive.pack(step)


def test_the_second_rule_of_dispatch_is_not_read_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    packer, renderer = knowing(), Renderer(SCHEME)

    def packed(interface: str) -> list[bytes]:
        rule = f"--in-interface {interface} --goto our-f-{interface}"
        found = packer.pack(Filling("our-x", renderer.chain("our-x", (rule,))).additions)
        assert found is not None
        return found

    packed("q")
    monkeypatch.setattr(packer._reader, "read", None)
    assert b"1" + b"z" + b"2" in packed("z")[0]
    with pytest.raises(TypeError):
        packed("zz")


def test_what_is_remembered_of_chains_is_bounded_however_long_they_are() -> None:
    packer, renderer = Packer("filter", 4, SCHEME), Renderer(SCHEME)
    rules = tuple(f"--jump our-{number}" for number in range(300))
    for rule in rules:
        packer._templates._ready[rule] = bytes(8), bytes(4)
    for size in (1, 64, 65, 300):
        filling = Filling("our-a", renderer.chain("our-a", rules[:size]))
        assert packer.pack([filling]) == packer.pack(filling.additions)
    assert sorted(len(block) for block in packer._templates._blocks.values()) == [1, 64]
    for start in range(250):
        packer.pack([Filling("our-a", renderer.chain("our-a", rules[start : start + 2]))])
    assert len(packer._templates._blocks) <= 200


def test_a_chain_with_a_line_that_is_not_known_is_not_packed() -> None:
    packer, renderer = Packer("filter", 4, SCHEME), Renderer(SCHEME)
    packer._templates._ready[POD[0]] = bytes(8), bytes(4)
    chain = renderer.chain("our-fw-a", POD[:2])
    assert packer.pack([Filling("our-fw-a", chain)]) is None
    assert packer.pack([Filling("our-fw-a", renderer.chain("our-fw-a", POD[:1]))]) is not None


def test_what_stands_in_a_comment_is_no_name(spaces: tuple[Namespace, Namespace]) -> None:
    """A policy's name may look like an option, and an interface's be a part of anything."""
    rules = (
        '-m comment --comment "-i {0} x" -p tcp --destination-port {0} --jump ACCEPT',
        "--in-interface {0} -p tcp --source-port {0} --jump ACCEPT",
    )

    async def story(made: Table) -> None:
        for which, rule in enumerate(rules):
            for port in (8085, 8086, 8087):
                await commit(made, Desired(chains={f"our-{which}-{port}": (rule.format(port),)}))
        made.close()

    for space in spaces:
        made = table(4, warm=space is spaces[0])
        with space.entered():
            asyncio.run(story(made))
    assert saved(spaces[0], 4) == saved(spaces[1], 4)


def test_kinds_that_nobody_asks_for_any_more_do_not_pile_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (kinds, packed_module, templates):
        monkeypatch.setattr(module, "_MOST", 10)
    packer = Packer("filter", 4, SCHEME)
    for number in range(100):
        line = f"-A our-x {SCHEME.comment('h' * 16)} --jump our-po-{number}"
        packer.learn([line])
        packer.pack([line])
        assert len(packer._reader._kinds) <= 10


def test_a_cancelled_write_is_waited_for() -> None:
    """The thread of a large batch has the connection until it is done."""
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        time.sleep(0.2)
        ended.set()

    async def story() -> None:
        task = asyncio.create_task(to_its_end(asyncio.to_thread(work)))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(story())
