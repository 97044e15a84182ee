"""IPT-5, IPT-6 and the promises of the plan in the kernel, for both back ends and both families."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Literal

import pytest

from linux.errors import CommandError
from linux.iptables import Desired, HashScheme, Table, detect_backend
from linux.iptables.detect import Backend
from tests.support.netns import Namespace, network_namespace

SCHEME = HashScheme("our:", ("our-",))
Family = Literal[4, 6]
BOTH = pytest.mark.parametrize(
    ("backend", "family"), [("nft", 4), ("nft", 6), ("legacy", 4), ("legacy", 6)]
)

DESIRED = Desired(
    chains={
        "our-FORWARD": (
            "--in-interface pod+ --jump our-dispatch",
            '-m comment --comment "clear it" --jump MARK --set-mark 0/0x10000',
        ),
        "our-INPUT": ("-m mark --mark 0/0x20000", "-m mark ! --mark 0/0x40000"),
        "our-dispatch": ('-m comment --comment "Unknown interface" --jump DROP',),
    },
    inserts={"FORWARD": ("--jump our-FORWARD",), "INPUT": ("--jump our-INPUT",)},
    appends={
        "FORWARD": (
            '-m comment --comment "accepted" -m mark --mark 0x10000/0x10000 --jump ACCEPT',
            "--jump MARK --set-mark 0x10000/0x10000",
        )
    },
)


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("ipt") as space, space.entered():
        yield space


def _program(backend: Backend, family: Family) -> str:
    return f"{'iptables' if family == 4 else 'ip6tables'}-{backend}"


def _foreign(family: Family) -> str:
    return "192.0.2.1/32" if family == 4 else "2001:db8::1/128"


def _story(backend: Backend, family: Family, story: Callable[[Table], Awaitable[None]]) -> None:
    async def run() -> None:
        await story(Table("filter", family, backend, SCHEME))

    asyncio.run(run())


@BOTH
def test_a_table_is_written_kept_and_taken_away(
    space: Namespace, backend: Backend, family: Family
) -> None:
    program, foreign = _program(backend, family), _foreign(family)
    for position in ("one", "two"):
        comment = ("-m", "comment", "--comment", position)
        space.run(program, "-A", "FORWARD", "-s", foreign, *comment, "-j", "ACCEPT")
    space.run(program, "-N", "theirs")
    before = space.run(program, "-S")

    async def story(table: Table) -> None:
        report = await table.commit(DESIRED)
        assert (report.saves, report.restores) == (1, 1)
        assert report.kernel_chains_edited == ("FORWARD", "INPUT")
        forward = [
            line for line in space.run(program, "-S", "FORWARD").splitlines() if line[:2] == "-A"
        ]
        assert re.search(r"our:.*-j our-FORWARD", forward[0])
        assert "--comment one" in forward[1]
        assert "--comment two" in forward[2]
        assert re.search("accepted.*ACCEPT", forward[3])
        assert re.search("our:.*MARK", forward[4])
        assert len(forward) == 5

        nothing = await table.commit(DESIRED)
        assert (nothing.saves, nothing.restores, nothing.lines) == (0, 0, 0)
        seen = await table.commit(DESIRED, refresh=True)
        assert (seen.saves, seen.restores, seen.drift) == (1, 0, ())
        assert (table.programs.saves, table.programs.restores) == (2, 1)

        # A process that starts anew finds everything in place.
        fresh = Table("filter", family, backend, SCHEME)
        report = await fresh.commit(DESIRED)
        assert (report.saves, report.restores) == (1, 0)

        report = await table.commit(Desired())
        assert sorted(report.chains_deleted) == sorted(DESIRED.chains)
        assert report.restores == 1

    _story(backend, family, story)
    assert space.run(program, "-S") == before


@BOTH
def test_unchanged_chains_keep_their_counters(
    space: Namespace, backend: Backend, family: Family
) -> None:
    program = _program(backend, family)
    target = "127.0.0.1" if family == 4 else "::1"

    def packets() -> int:
        listed = space.run(program, "-nvxL", "our-INPUT").splitlines()[2]
        return int(listed.split()[0])

    async def story(table: Table) -> None:
        await table.commit(DESIRED)
        await asyncio.to_thread(space.run, "ping", "-c", "3", "-i", "0.01", target)
        counted = packets()
        assert counted >= 3
        chains = {
            **DESIRED.chains,
            "our-dispatch": (
                "--in-interface pod1 --goto our-pod1",
                *DESIRED.chains["our-dispatch"],
            ),
            "our-pod1": ("--jump ACCEPT",),
        }
        report = await table.commit(Desired(chains, DESIRED.inserts, DESIRED.appends))
        assert sorted(report.chains_written) == ["our-dispatch", "our-pod1"]
        assert report.kernel_chains_edited == ()
        assert (report.saves, report.restores) == (0, 1)
        assert packets() >= counted
        report = await table.commit(DESIRED)
        assert report.chains_deleted == ("our-pod1",)
        assert packets() >= counted

    _story(backend, family, story)


@BOTH
def test_drift_is_found_and_repaired(space: Namespace, backend: Backend, family: Family) -> None:
    program, foreign = _program(backend, family), _foreign(family)

    async def story(table: Table) -> None:
        await table.commit(DESIRED)
        good = space.run(program, "-S")
        for damage, where in (
            (["-F", "our-dispatch"], "our-dispatch"),
            (["-D", "our-FORWARD", "1"], "our-FORWARD"),
            (["-A", "our-INPUT", "-j", "ACCEPT"], "our-INPUT"),
            (["-D", "FORWARD", "1"], "FORWARD"),
            (["-A", "FORWARD", "-j", "our-dispatch"], "FORWARD"),
            (["-N", "our-stray"], "our-stray"),
        ):
            space.run(program, *damage)
            assert await table.refresh() == (where,)
            report = await table.commit(DESIRED)
            assert report.restores == 1
            assert space.run(program, "-S") == good
        space.run(program, "-F")
        report = await table.commit(DESIRED, refresh=True)
        assert sorted(report.drift) == ["FORWARD", "INPUT", *sorted(DESIRED.chains)]
        assert space.run(program, "-S") == good
        # A rule that somebody puts before ours: ours come first again, theirs survives.
        space.run(program, "-I", "FORWARD", "-s", foreign, "-j", "DROP")
        assert (await table.commit(DESIRED, refresh=True)).kernel_chains_edited == ("FORWARD",)
        rules = space.run(program, "-S", "FORWARD").splitlines()
        assert "our-FORWARD" in rules[1]
        assert f"-s {foreign} -j DROP" in rules[2]

    _story(backend, family, story)


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_a_refused_restore_changes_nothing(space: Namespace, backend: Backend) -> None:
    program = _program(backend, 4)

    async def story(table: Table) -> None:
        await table.commit(DESIRED)
        good = space.run(program, "-S")
        bad = {**DESIRED.chains, "our-FORWARD": (), "our-x": ("--jump our-nowhere",)}
        with pytest.raises(CommandError, match=r"tables-.*restore exited with status"):
            await table.commit(Desired(bad, DESIRED.inserts, DESIRED.appends))
        assert space.run(program, "-S") == good
        report = await table.commit(DESIRED)
        assert (report.saves, report.restores) == (1, 0)

    _story(backend, 4, story)


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_a_change_by_others_between_dump_and_write_is_survived(
    space: Namespace, backend: Backend
) -> None:
    program = _program(backend, 4)

    async def story(table: Table) -> None:
        await table.commit(DESIRED)
        # Our jump vanished after the last dump: the plan's -D fails, the retry dumps.
        space.run(program, "-D", "FORWARD", "1")
        changed = Desired(DESIRED.chains, {"FORWARD": ()}, DESIRED.appends)
        report = await table.commit(changed)
        assert report.restores == 2
        assert report.saves == 1
        assert "our-FORWARD" not in space.run(program, "-S", "FORWARD")

    _story(backend, 4, story)


@BOTH
def test_a_chain_that_others_use_is_left_empty(
    space: Namespace, backend: Backend, family: Family
) -> None:
    program = _program(backend, family)

    async def story(table: Table) -> None:
        await table.commit(DESIRED)
        space.run(program, "-N", "theirs")
        space.run(program, "-A", "theirs", "-j", "our-dispatch")
        small = Desired({"our-INPUT": DESIRED.chains["our-INPUT"]}, {"INPUT": ("-j our-INPUT",)})
        await table.commit(small)
        rules = space.run(program, "-S")
        assert "-A theirs -j our-dispatch" in rules
        assert "-A our-dispatch" not in rules
        assert "-j our-FORWARD" not in rules
        assert (await table.commit(small)).restores == 0
        space.run(program, "-F", "theirs")
        await table.commit(small, refresh=True)
        assert "our-dispatch" not in space.run(program, "-S")

    _story(backend, family, story)


def test_the_back_end_is_where_the_rules_are(space: Namespace) -> None:
    def detect() -> Backend:
        return asyncio.run(detect_backend())

    space.run("iptables-nft", "-A", "INPUT", "-j", "ACCEPT")
    assert detect() == "nft"
    space.run("iptables-legacy", "-A", "INPUT", "-j", "ACCEPT")
    space.run("iptables-legacy", "-A", "INPUT", "-j", "ACCEPT")
    assert detect() == "legacy"
    space.run("iptables-nft", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
    assert detect() == "nft"
    space.run("iptables-nft", "-t", "mangle", "-X", "KUBE-IPTABLES-HINT")
    space.run("iptables-legacy", "-t", "mangle", "-N", "KUBE-KUBELET-CANARY")
    assert detect() == "legacy"


def test_the_operator_may_name_the_back_end() -> None:
    assert asyncio.run(detect_backend("NFT")) == "nft"
    assert asyncio.run(detect_backend("Legacy")) == "legacy"
    with pytest.raises(ValueError, match="want auto, nft or legacy"):
        asyncio.run(detect_backend("pf"))


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_a_refused_batch_is_bisected(space: Namespace, backend: Backend) -> None:
    """IPT-9: exactly the chains that are to blame, jumps to chains that are not there apart."""
    bad = "-m set --match-set no-such-set src --jump DROP"

    async def run() -> tuple[dict[str, str], dict[str, str], set[str]]:
        table = Table("filter", 4, backend, SCHEME)
        good = {f"our-good{n}": ["-p tcp --jump DROP", "--jump our-later"] for n in range(20)}
        table.want("our-later", [])
        for name, rules in {**good, "our-bad1": [bad], "our-bad2": ["--jump DROP", bad]}.items():
            table.want(name, rules)
        with pytest.raises(CommandError):
            await table.commit()
        found = await table.refused()
        for name in found:
            table.want(name, ["--jump DROP"])
        await table.commit()
        again = await table.refused({"our-bad1": [bad], "our-good1": good["our-good1"]})
        await table.refresh()
        table.close()
        return (
            found,
            again,
            set(re.findall("^:(our-trial)", space.run(f"iptables-{backend}-save"), re.MULTILINE)),
        )

    found, again, left = asyncio.run(run())
    assert found.keys() == {"our-bad1", "our-bad2"}
    assert "no-such-set" in found["our-bad1"]
    assert again.keys() == {"our-bad1"}
    assert left == set()
