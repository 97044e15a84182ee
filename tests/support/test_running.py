"""How the tests are spread over processes and told about: tests/spread.py, junit.py, tiers.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import junit, left_out, promises, spread, tiers, turns
from tests.support import ports
from tests.support.patience import HANG

CONFTEST = f"""\
import sys
sys.path.insert(0, {str(tiers.ROOT)!r})
from tests.spread import pytest_xdist_make_scheduler
"""
# Names of tests carry their back end; each notes which process it ran in.
ROOM = """\
import os, pathlib, pytest
@pytest.mark.parametrize("backend", ["nft", "nftables"])
@pytest.mark.parametrize("n", range(4))
def test_it(backend, n):
    file = pathlib.Path(__file__)
    with open(file.with_name(f"{file.stem} {backend}"), "a") as told:
        told.write(f"{os.getpid()}\\n")
    if n == 1 and backend == "nft":
        pytest.skip("not here")
    assert (file.stem, n, backend) != ("test_two", 2, "nftables")
"""
PROPERTY = """\
from hypothesis import given, strategies as st
TAKEN = []
@given(st.integers())
def check(number):
    TAKEN.append(number)
def test_it():
    check()
    print("taken:", TAKEN)
"""


def test_a_group_is_a_file_and_its_back_end() -> None:
    a = "tests/felix/kernel/test_hosts.py"
    assert spread.group(f"{a}::test_y") == a
    assert spread.group(f"{a}::test_y[nft]") == f"{a} nft"
    assert spread.group(f"{a}::test_y[nftables-some words]") == f"{a} nftables"
    assert spread.group(f"{a}::test_y[legacy-4]") == f"{a} legacy"
    assert spread.group(f"{a}::test_y[words of nft]") == a
    assert spread.group("tests/netpol/test_scenarios.py::test_b[nft-c]") == spread.group(
        "tests/cyclonus/test_families.py::test_e[nft-f/g]"
    )


def test_long_groups_come_first() -> None:
    names = ["tests/e2e/test_demo.py", "nine pods nft", "tests/lab_scenarios/test_readmes.py"]
    names += [
        "tests/felix/dataplane/test_sets.py",
        "tests/cni/test_result.py",
        "tests/ipam/test_blocks.py",
    ]
    names.reverse()
    assert sorted(names, key=spread.rank) == names[::-1]


def test_every_group_that_is_named_for_its_length_is_one() -> None:
    """A file that was renamed would lose its place unseen; one that stands twice has two."""
    worlds = set(spread._SESSION_WORLDS.values())
    for name in spread._LONGEST:
        bare = re.sub(" (nft|nftables|legacy)$", "", name)
        assert bare in worlds or (tiers.ROOT / bare).is_file(), name
    assert len(set(spread._LONGEST)) == len(spread._LONGEST)


def test_every_case_meets_one_back_end_in_turns() -> None:
    a, b = "a_room/test_a.py", "a_room/test_b.py"
    backends = ("nft", "legacy", "nftables")
    ids = [f"{a}::test_{n}[{one}]" for one in backends for n in range(6)]
    ids += [f"{b}::test_{n}[{n}-{one}]" for one in backends for n in range(3)]
    alone = [f"{a}::test_alone[nftables]", f"{a}::test_words[of nft]", f"{a}::test_none"]
    left = turns.left_out([*ids, *alone], in_turns=(a, f"{b}::test_1"))
    kept = [one for one in ids if one not in left]
    assert sorted(one for one in kept if one.startswith(a)) == [
        f"{a}::test_{n}[{backends[(n + n // 3) % 3]}]" for n in range(6)
    ]
    assert sum(one.startswith(f"{b}::test_1") for one in kept) == 1
    assert sum(one.startswith(b) for one in kept) == 7
    assert left.isdisjoint(alone)


def test_what_takes_turns_exists() -> None:
    for one in turns.IN_TURNS:
        file, _, name = one.partition("::")
        assert f"def {name}" in (tiers.ROOT / file).read_text()


def test_groups_stay_together_and_the_report_is_whole(tmp_path: Path) -> None:
    room = tmp_path / "tests" / "room"
    room.mkdir(parents=True)
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    for name in ("one", "two", "three"):
        (room / f"test_{name}.py").write_text(ROOM)
    report = tmp_path / "report.xml"
    words = ["-q", "-n", "2", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--junitxml={report}", "tests"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    told = junit.cases(report)
    assert len(told) == 24
    assert junit.counts(told) == "20 passed, 1 failed, 3 skipped"
    assert junit.summarise(report) == (20, 1, {"not here": 3})
    assert {case.room for case in told} == {"room"}
    text = junit.as_text(told, slowest=2)
    assert "skipped 3: not here" in text
    assert "FAILED tests.room.test_two::test_it[2-nftables]: AssertionError: " in text
    ran = [file.read_text().split() for file in room.glob("test_* nft*")]
    assert len(ran) == 6
    assert all(len(pids) == 4 and len(set(pids)) == 1 for pids in ran), "a group was split"


def test_without_a_report_the_run_itself_failed(tmp_path: Path) -> None:
    assert junit.summarise(tmp_path / "none.xml") == (0, 1, {})


@pytest.mark.parametrize(
    ("arguments", "named", "workers", "rest"),
    [
        ([], False, False, []),
        (["-x"], False, False, ["-x"]),
        (["-n", "4"], False, True, []),
        (["-n4", "-x"], False, True, ["-x"]),
        (["--numprocesses=2"], False, True, []),
        (["tests/lab"], True, False, ["tests/lab"]),
        (["-m", "uml"], True, False, ["-m", "uml"]),
        (["-n", "2", "tests/lab"], True, True, ["tests/lab"]),
    ],
)
def test_what_is_named_by_hand(
    arguments: list[str], named: bool, workers: bool, rest: list[str]
) -> None:
    assert tiers.is_named(arguments) == named
    assert tiers.says_workers(arguments) == workers
    assert tiers.without_workers(arguments) == rest


def test_ports_are_not_given_twice() -> None:
    given = ports.free_ports(50)
    assert len(set(given)) == 50
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first = int(file.read().split()[0])
    assert all(1024 <= port < first for port in given)


def test_ports_that_tests_name_themselves_are_given_to_no_server() -> None:
    """A felix that asked for 19091 for its metrics met an etcd that was given it."""
    named = {
        int(number): str(path.relative_to(tiers.ROOT))
        for path in (tiers.ROOT / "tests").rglob("*.py")
        for line in re.findall(r"^[A-Z_, ]*PORT[A-Z_, ]* = ([\d, ]+)$", path.read_text(), re.M)
        for number in re.findall(r"\d+", line)
    }
    assert len(named) > 5
    given = range(ports.FIRST, ports.LAST)
    assert {number: file for number, file in named.items() if number in given} == {}


def test_files_with_a_mark_are_found_by_their_text(tmp_path: Path) -> None:
    found = tiers.files_with_mark("alone")
    assert str(tiers.ROOT / "tests" / "bgp" / "test_sending.py") in found
    assert str(Path(__file__)) not in found
    assert tiers.files_with_mark("alone", tmp_path) == [str(tmp_path)]


def test_in_turns_every_case_stays_once_and_each_family_meets_each_back_end() -> None:
    file, backends = "tests/felix/kernel/test_hosts.py", ("nft", "nftables")
    items = [
        f"{file}::test_{case}[{backend}-{family}]"
        for case in range(6)
        for family in ("v4", "v6")
        for backend in backends
    ]
    stay = [item for item in items if item not in turns.left_out(items)]
    assert len(stay) == len(items) // 2
    assert len({item.replace("nftables", "nft") for item in stay}) == len(stay)
    for family in ("v4", "v6"):
        for backend in backends:
            assert sum(item.endswith(f"[{backend}-{family}]") for item in stay) == 3
    assert not turns.left_out(["tests/felix/dataplane/test_remote_next_hops.py::test_a[nft]"])


def test_what_a_room_thins_is_not_thinned_again() -> None:
    """Their conftest.py files choose by back end themselves."""
    thinned = ("tests/felix/kernel/test_forwarding.py", "tests/netpol/", "tests/netpol_cluster/")
    assert not [name for name in turns.IN_TURNS if name.startswith(thinned)]


def test_a_run_says_what_it_left_to_full_size() -> None:
    a, b = "tests/felix/a.py", "tests/cni/b.py"
    full = {left_out.as_case(f"{a}::test_one[{n}]") for n in ("nft", "x::y", "z[1]")}
    full |= {left_out.as_case(f"{b}::TestAll::test_two")}
    told = [junit.Case("tests.felix.a", "test_one[x::y]", 0.1, "passed")]
    assert left_out.as_text(full, told).endswith("3 of 4 cases: felix 2, cni 1")
    told += [junit.Case("tests.cni.b.TestAll", "test_two", 0.1, "passed")]
    assert left_out.as_text(full, told).endswith("2 of 4 cases: felix 2")


def test_the_last_line_names_rooms_that_lacked_programs_and_the_cure() -> None:
    assert left_out.untested([]) == "every room had the programs that it needs"
    reasons = {
        "k8s": "Kubernetes 1.36.3 is not built (etcd): ./run k8s binaries",
        "apiserver": "Kubernetes 1.36.3 is not built (etcd): ./run k8s binaries",
        "monitoring": "no promtool here: apt-get install prometheus, or run this at full size",
        "cni": "not asked of the daemon",
    }
    told = [
        junit.Case(f"tests.{room}.test_x", "test_y", 0.0, "skipped", reason)
        for room, reason in reasons.items()
    ]
    assert left_out.untested(told) == (
        "not tested for want of programs: apiserver, k8s: ./run k8s binaries; "
        "monitoring: apt-get install prometheus"
    )


def test_every_run_of_the_fast_tier_has_a_seed_of_its_own() -> None:
    assert len({*tiers.seed_words([]), *tiers.seed_words([])}) == 2
    assert tiers.seed_words(["-x", "--hypothesis-seed=7"]) == []


def test_property_tests_take_new_examples_where_ci_is_set(tmp_path: Path) -> None:
    """Hypothesis takes the same examples in CI unless it is told not to (tests/conftest.py)."""
    (tmp_path / "test_it.py").write_text(PROPERTY)
    words = ["-q", "-s", "-p", "tests.conftest", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    told = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, f"--hypothesis-seed={seed}", str(tmp_path)],
            cwd=tiers.ROOT,
            env={**os.environ, "CI": "true"},
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG,
        )
        told.add(next(line for line in done.stdout.splitlines() if "taken:" in line))
    assert len(told) == 2


def test_a_promise_is_shown_by_a_test_that_ran_and_passed() -> None:
    one, other = "tests/a.py::test_one", "tests/a.py::test_other"
    said = {left_out.as_case(one): {"passed", "skipped"}}
    assert promises.state([one, other], said) == "shown"
    assert promises.state([other], said) == "not run"
    assert promises.state([one], {left_out.as_case(one): {"skipped"}}) == "not run"
    assert promises.state([one], {left_out.as_case(one): {"passed", "failed"}}) == "failed"
