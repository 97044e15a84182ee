"""The mutants themselves: what is changed, what is drawn, which tests meet it, in which box."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from tests.mutants.__main__ import parts_of
from tests.mutants.drawing import ROOMS, Mutant, draw, found, shares
from tests.mutants.nearest import Nearest
from tests.mutants.operators import changes
from tests.mutants.order import slow
from tests.mutants.running import Verdict, at_once, judge

ROOT = Path(__file__).parent.parent.parent

SOURCE = '''\
"""Words."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import x
LIMIT = 10  # é
class Table:
    def take(self, a: int = 3) -> bool:
        """Words of 1."""
        if a == 1 and self.known:
            self.left.pop()
            log.info("took %d", 1)
            raise ValueError(f"no {a + 1}")
        return not any(a < b for b in self.rows if b)
'''
SLEEP = f"{os.getpid()}.987654"
TEST = f"""\
import subprocess, sys
def test_it():
    subprocess.Popen(["sleep", "{SLEEP}"])
    words = [sys.executable, "-c", "import subject; assert subject.answer()"]
    assert subprocess.run(words).returncode == 0
"""


def test_each_change_is_one_stretch_of_the_text_and_parses() -> None:
    made = list(changes(SOURCE))
    for one in made:
        ast.parse(one.applied(SOURCE))
        assert one.applied(SOURCE) != SOURCE
    assert [(one.name, one.new) for one in made] == [
        ("(module) constant 0", "11"),
        ("Table.take negate 0", "not (a == 1 and self.known)"),
        ("Table.take logic 0", "or"),
        ("Table.take compare 0", "!="),
        ("Table.take constant 0", "2"),
        ("Table.take drop call 0", "pass"),
        ("Table.take drop raise 0", "pass"),
        ("Table.take drop not 0", "bool(any(a < b for b in self.rows if b))"),
        ("Table.take call 0", "all"),
        ("Table.take compare 1", "<="),
        ("Table.take negate 1", "not (b)"),
    ]


def test_names_hold_no_line_so_moves_keep_them() -> None:
    before = {one.name for one in changes(SOURCE)}
    assert {one.name for one in changes("# moved\n\n" + SOURCE)} == before


def test_every_room_has_its_share_and_a_seed_says_which() -> None:
    assert shares({"a": 900, "b": 99, "c": 1, "d": 0}, 100) == {"a": 90, "b": 10, "c": 1}
    everything = {room: found(ROOT, room) for room in ROOMS}
    drawn = draw(everything, 7, 300)
    assert len(drawn) >= 300
    assert {one.room for one in drawn} == set(ROOMS)
    assert drawn == draw(everything, 7, 300) != draw(everything, 8, 300)


def test_the_nearest_tests_of_a_module_come_first() -> None:
    nearest = Nearest(ROOT)
    assert nearest.tests("ipam/records/blocks.py", 3)[0] == "tests/ipam/test_blocks.py"
    assert (
        nearest.tests("ipam/collector/leak_evidence.py", 3, "judge")[0]
        == "tests/ipam/test_collector.py"
    )
    assert nearest.quick("tests/ipam/test_blocks.py")
    assert not nearest.quick("tests/ipam/test_sixteen.py")
    assert len(nearest.tests("felix/dataplane/routes/routes.py", 3)) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_a_box_shows_the_mutant_to_what_a_test_starts_and_leaves_nothing(tmp_path: Path) -> None:
    """A test that starts a process sees the change there; the tree itself stays as it is."""
    text = "def answer():\n    return 1 == 1\n\ndef other():\n    return 2 == 2\n"
    (tmp_path / "subject.py").write_text(text)
    (tmp_path / "test_it.py").write_text(TEST)
    verdicts = {
        change.where: judge(tmp_path, Mutant("room", "subject.py", change), ["test_it.py"]).killed
        for change in changes(text)
        if change.kind == "compare"
    }
    assert verdicts == {"answer": True, "other": False}
    assert (tmp_path / "subject.py").read_text() == text
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if _is_sleeper(one)]


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
@pytest.mark.parametrize("times", [1, 4], ids=["as they come", "measured first"])
def test_many_mutants_meet_their_tests_in_one_process(tmp_path: Path, times: int) -> None:
    """Each changes one function for one child alone, however the function is held."""
    (tmp_path / "subject.py").write_text(
        "from functools import lru_cache\n"
        "LIMIT = 7\n"
        "@lru_cache\n"
        "def answer():\n    return [one for one in (1, 2) if one == 1]\n"
        "class Thing:\n    @property\n    def size(self):\n        return 1 if LIMIT == 7 else 2\n"
        "def unmet():\n    return 3 == 3\n"
        "def ends():\n    raise SystemExit(0)\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import pytest, subject\n"
        "def test_answer():\n    assert subject.answer() == [1]\n"
        "def test_size():\n    assert subject.Thing().size == 1\n"
        "def test_ends():\n    pytest.raises(SystemExit, subject.ends)\n"
    )
    text = (tmp_path / "subject.py").read_text()
    kinds = ("compare", "drop raise", "constant")
    mutants = [Mutant("room", "subject.py", c) for c in changes(text) if c.kind in kinds]
    chosen = [one for one in mutants if one.change.number == 0] * times
    found = list(at_once(tmp_path, chosen, dict.fromkeys(chosen, ("test_it.py",))))
    assert len(found) == len(chosen)
    assert {(one.change.where, one.change.kind): by for one, by in found} == {
        ("(module)", "constant"): None,
        ("answer", "compare"): "test_it.py::test_answer",
        ("answer", "constant"): "test_it.py::test_answer",
        ("Thing.size", "compare"): "test_it.py::test_size",
        ("Thing.size", "constant"): "test_it.py::test_size",
        ("unmet", "compare"): "",
        ("unmet", "constant"): "",
        ("ends", "drop raise"): "test_it.py::test_ends",
    }


ORDERED = """\
import subprocess, subject, time
def note(name):
    with open("{notes}", "a") as file:
        print(name, file=file)
def test_quick(): note("quick")
def test_slow(): note("slow"); subprocess.run(["true"])
def test_other(): note("other"); assert subprocess.run(["true"]).returncode == 0 and subject.right()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
@pytest.mark.parametrize("kind", ["compare", "negate"])
def test_what_is_slow_or_was_tried_already_still_runs_at_the_end(tmp_path: Path, kind: str) -> None:
    """A mutant that nothing notices meets every test; one that is noticed meets few."""
    notes = f"/var/tmp/mutants-{os.getpid()}"
    text = "def right():\n    return 1 == 1\ndef unmet():\n    if unmet:\n        return 3\n"
    (tmp_path / "subject.py").write_text(text)
    (tmp_path / "test_it.py").write_text(ORDERED.format(notes=notes))
    (change,) = [one for one in changes(text) if one.kind == kind]
    try:
        answer = judge(
            tmp_path,
            Mutant("room", "subject.py", change),
            ["test_it.py"],
            later=["test_it.py::test_slow"],
            quick_later=True,
        )
        met = Path(notes).read_text().split()
    finally:
        Path(notes).unlink(missing_ok=True)
    assert answer.killed == (kind == "compare")
    assert met == (["other"] if answer.killed else ["other", "slow", "quick"])


def test_what_took_long_is_read_from_what_pytest_said() -> None:
    said = (
        "2.51s call     a/test_b.py::test_c[one two]\n"
        "3.00s setup    a/test_b.py::test_d\n"
        "9.00s teardown a/test_b.py::test_e\n1.99s call     a/test_b.py::test_f\n"
    )
    assert slow(said) == {"a/test_b.py::test_c[one two]", "a/test_b.py::test_d"}
    assert slow("no durations") == set()


def test_tests_that_killed_are_shared_out_by_files() -> None:
    mutant = Mutant("room", "subject.py", next(changes("LIMIT = 7\n")))
    killers = ["a.py::one", "b.py::one", "a.py::two", "c.py::one", "a.py::two"]
    verdicts = [Verdict(mutant, True, (), "", (one,)) for one in killers]
    assert parts_of(verdicts, 2) == [["a.py::one", "a.py::two"], ["b.py::one", "c.py::one"]]
    assert parts_of([], 2) == [[], []]


def _is_sleeper(cmdline: Path) -> bool:
    try:
        return SLEEP.encode() in cmdline.read_bytes()
    except OSError:
        return False
