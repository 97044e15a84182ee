"""`./run mutants [ROOM ...] [--seed N] [--number N] [--json]`: do the tests notice a wrong change?

Small wrong changes are drawn by a seed, and each one meets the tests nearest to it, quick ones
first, until one fails; at the end the tests that failed run once more without a mutant, and what
fails then counts for nothing. What no test notices is a survivor: a missing test, or code that
nothing needs. `--named TEXT` takes all of a function or class instead. The tree must not change
meanwhile. Needs root (namespaces).
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

from tests.mutants import order
from tests.mutants.drawing import LEAST, ROOMS, Mutant, draw, found
from tests.mutants.nearest import Nearest
from tests.mutants.running import FAILED, Verdict, at_once, in_box, judge

ROOT = Path(__file__).parent.parent.parent
MOST = 16
"""Files of tests that a mutant meets."""


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What was asked for; exits with 2 on a word that is unknown."""
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=", ".join(ROOMS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--number", type=int, default=LEAST, help="how many; 300")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)) + 1)
    parser.add_argument("--named", metavar="TEXT", help="all whose names hold TEXT, not drawn")
    parser.add_argument("--quick", action="store_true", help="without tests of daemons and labs")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args(words)
    unknown = sorted(set(told.rooms) - set(ROOMS))
    if unknown:
        parser.error(f"no room {', '.join(unknown)}; there are {', '.join(ROOMS)}")
    return told


def unsound(killers: Sequence[str]) -> set[str]:
    """Tests that killed a mutant and fail without one, too."""
    _, said = in_box(ROOT, killers, words=()) if killers else (0, "")
    return set(FAILED.findall(said)) & set(killers)


def parts_of(verdicts: Sequence[Verdict], number: int) -> list[list[str]]:
    """The tests that killed mutants, in so many parts; those of a file stay together. Pure."""
    files: dict[str, set[str]] = {}
    for one in {one for verdict in verdicts for one in verdict.by}:
        files.setdefault(one.partition("::")[0], set()).add(one)
    tests: list[list[str]] = [[] for _ in range(number)]
    for file in sorted(files):
        min(tests, key=len).extend(sorted(files[file]))
    return tests


def portions(drawn: Sequence[Mutant]) -> list[list[Mutant]]:
    """What one process is to try: the mutants of a room, or of a folder of it. Pure."""
    found: dict[Path, list[Mutant]] = {}
    for one in drawn:
        found.setdefault(Path(one.file).parent, []).append(one)
    return list(found.values())


def _at_stake(mutant: Mutant) -> int:
    """Rooms that give addresses and access come first; a run is read while it goes on."""
    return ROOMS.index(mutant.room)


def line_of(mutant: Mutant) -> str:
    """`ipam/records/blocks.py:12 == -> !=` and the line as it is."""
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
    everything = {room: found(ROOT, room) for room in asked.rooms or ROOMS}
    if asked.named:
        drawn = [one for all_ in everything.values() for one in all_ if asked.named in one.name]
    else:
        drawn = sorted(draw(everything, asked.seed, asked.number), key=_at_stake)
    nearest = Nearest(ROOT)
    near = {one: nearest.tests(one.file, MOST, one.change.where) for one in drawn}

    def tell(answer: Verdict) -> Verdict:
        word = "killed  " if answer.killed else "SURVIVED"
        by = " ".join(answer.by)
        print(f"{word} {line_of(answer.mutant)}    {by}", file=say, flush=True)
        return answer

    texts = {one.file: (ROOT / one.file).read_text() for one in drawn}

    def unchanged(mutants: Sequence[Mutant]) -> None:
        """Places were drawn in these texts: in others the changes would be other ones."""
        if any((ROOT / one.file).read_text() != texts[one.file] for one in mutants):
            raise RuntimeError("the tree was changed while its mutants were tried")

    slow = set[str]()

    def alone(
        mutant: Mutant, tests: Sequence[str], not_by: Sequence[str] = (), tried: bool = False
    ) -> Verdict:
        unchanged([mutant])
        answer = judge(ROOT, mutant, tests, not_by, later=sorted(slow), quick_later=tried)
        slow.update(order.slow(answer.said))
        return tell(answer)

    def portion(mutants: Sequence[Mutant]) -> list[Verdict]:
        """Quick tests first, all mutants in one process; then each survivor by itself."""
        told, left, tried = dict[Mutant, Verdict](), dict(near), set[Mutant]()
        for mutant, by in at_once(ROOT, mutants, near):
            if by == "":
                tried.add(mutant)
            if by:
                told[mutant] = tell(Verdict(mutant, True, tuple(near[mutant]), "", (by,)))
            elif asked.quick:
                few = [] if by is not None else filter(nearest.quick, near[mutant])
                left[mutant] = list(few)
        unchanged(mutants)
        return [told.get(one) or alone(one, left[one], tried=one in tried) for one in mutants]

    with ThreadPoolExecutor(asked.jobs) as pool:
        parts = pool.map(portion, portions(drawn))
        verdicts = [one for part in parts for one in part]
        bad = sorted(set().union(*pool.map(unsound, parts_of(verdicts, asked.jobs))))
        for test in bad:
            print(f"left out, does not pass without a mutant: {test}", file=say, flush=True)
        again = [one.mutant for one in verdicts if set(one.by) & set(bad)]
        others = dict(
            zip(again, pool.map(lambda one: alone(one, near[one], bad), again), strict=True)
        )
    verdicts = [others.get(one.mutant, one) for one in verdicts]
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
