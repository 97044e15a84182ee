"""`./run mutants [ROOM ...] [--seed N] [--number N] [--json]`: do the tests notice a wrong change?

Small wrong changes are drawn by a seed, and each one meets the tests nearest to it. What no test
notices is a survivor: a missing test, or code that nothing needs. Needs root (namespaces).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import junit
from tests.mutants.drawing import LEAST, ROOMS, Mutant, draw, found
from tests.mutants.nearest import Nearest
from tests.mutants.running import Verdict, in_box, judge

ROOT = Path(__file__).parent.parent.parent
MOST, BUDGET = 8, 60.0


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What was asked for; exits with 2 on a word that is unknown."""
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=", ".join(ROOMS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--number", type=int, default=LEAST, help="how many; 300")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)) + 1)
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args(words)
    unknown = sorted(set(told.rooms) - set(ROOMS))
    if unknown:
        parser.error(f"no room {', '.join(unknown)}; there are {', '.join(ROOMS)}")
    return told


def seconds() -> dict[str, float]:
    """How long each file of tests took in the last run of the fast tier, where one is kept."""
    spent: Counter[str] = Counter()
    for name in ("fast", "alone"):
        report = ROOT / ".test-results" / f"{name}.xml"
        if report.exists():
            for case in junit.cases(report):
                spent[case.file] += case.seconds  # type: ignore[assignment]
    return dict(spent)


def sound(tests: set[str], jobs: int) -> tuple[set[str], dict[str, str]]:
    """The files that pass without a mutant, and what the others said."""
    ordered = sorted(tests)
    with ThreadPoolExecutor(jobs) as pool:
        answers = list(pool.map(lambda one: in_box(ROOT, [one]), ordered))
    bad = {one: said for one, (status, said) in zip(ordered, answers, strict=True) if status}
    return tests - bad.keys(), bad


def line_of(mutant: Mutant) -> str:
    """`ipam/blocks.py:12 == -> !=` and the line as it is."""
    text = (ROOT / mutant.file).read_text()
    number = text.count("\n", 0, mutant.change.start) + 1
    was = " ".join(text[mutant.change.start : mutant.change.end].split())[:60]
    line = text.splitlines()[number - 1].strip()
    new = " ".join(mutant.change.new.split())[:60]
    return f"{mutant.file}:{number} {was} -> {new}    | {line}"


def told(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """The report of `--json`."""
    survivors = [one for one in verdicts if not one.killed]
    return {
        "total": len(verdicts),
        "killed": len(verdicts) - len(survivors),
        "survivors": [
            {
                "name": one.mutant.name,
                "change": line_of(one.mutant),
                "tests": list(one.tests),
            }
            for one in survivors
        ],
    }


def main(words: Sequence[str]) -> int:
    """0 when every mutant was killed, 1 when some survived, 2 where nothing could be tried."""
    asked = arguments(words)
    if os.geteuid() != 0:
        print("mutants run in namespaces of their own, which needs root", file=sys.stderr)
        return 2
    began = time.monotonic()
    say = sys.stderr if asked.json else sys.stdout
    print(f"seed {asked.seed}", file=say, flush=True)
    drawn = draw(
        {room: found(ROOT, room) for room in asked.rooms or ROOMS}, asked.seed, asked.number
    )
    nearest = Nearest(ROOT, seconds())
    near = {mutant: nearest.tests(mutant.file, MOST, BUDGET) for mutant in drawn}
    good, bad = sound({test for tests in near.values() for test in tests}, asked.jobs)
    for test, why in bad.items():
        print(f"left out, does not pass without a mutant: {test}: {why}", file=say, flush=True)

    def verdict(mutant: Mutant) -> Verdict:
        answer = judge(ROOT, mutant, [test for test in near[mutant] if test in good])
        word = "killed  " if answer.killed else "SURVIVED"
        print(f"{word} {mutant.name}: {line_of(mutant)}", file=say, flush=True)
        return answer

    with ThreadPoolExecutor(asked.jobs) as pool:
        verdicts = list(pool.map(verdict, drawn))
    report = told(verdicts)
    rooms = Counter(one.mutant.room for one in verdicts)
    dead = Counter(one.mutant.room for one in verdicts if one.killed)
    for room, count in rooms.items():
        print(f"{room:24}{dead[room]:5} of {count}", file=say)
    minutes = (time.monotonic() - began) / 60
    print(f"{report['killed']} of {report['total']} killed, {minutes:.1f} min", file=say)
    if asked.json:
        print(json.dumps(report | {"seed": asked.seed, "left_out": bad}))
    return 0 if report["killed"] == report["total"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
