"""`./run test`: which tests run, at which size, and how the result is told.

Without arguments the fast tier runs: every behaviour at reduced counts, at most 20 minutes
on two cores, in a few processes side by side (tests/spread.py; `-n 0` is one process), and then
what is marked `alone`, in one. No test is tried twice. Property tests take a new seed each run;
it is printed, and `--hypothesis-seed N` repeats it. At the end stands what the tier left to full
size, and which rooms lacked programs. A path or marker named by hand runs that selection at full
size, in one process unless `-n` says more. `--full` runs every tier one after another; a tier that
passed at this commit is not run again, so an interrupted run is resumed by calling it again.
Every run is in a box (tests/box.py): interrupted or killed, it leaves nothing behind. What it
writes is in a folder of its own (tests/run_folder.py).
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import box, junit, left_out, run_folder

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / ".test-results"
FULL_SIZE = "MUSLIN_FULL_SIZE"
ALONE = "alone"
EXTRA_WORKERS = 2
"""Processes beside one a core: most tests wait for daemons and the kernel.

A third of a core is what tests of felix take while they run, two thirds those of labs."""


def pytest_command(arguments: list[str]) -> list[str]:
    """The command line that runs pytest in this environment."""
    return [sys.executable, "-m", "pytest", *arguments]


def commit() -> str:
    """What a result belongs to: the commit, and whether the tree differs from it."""
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    dirty = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return f"{head}{'+' if dirty else ''}"


def tiers() -> list[str]:
    """Every folder of tests that holds tests, by name."""
    return sorted(
        p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and list(p.glob("test_*.py"))
    )


def run_boxed(
    arguments: list[str], failed: list[Path] | None = None, environ: Mapping[str, str] | None = None
) -> int:
    """pytest in a box, its temporary files in a folder of their own; the exit code.

    `failed`: folders of earlier parts of this run that failed, which stay; this one joins them.
    """
    failed = [] if failed is None else failed
    with run_folder.made(failed) as folder:
        if short := run_folder.short_of_room(folder):
            print(short, file=sys.stderr, flush=True)
        told = {**os.environ, **(environ or {}), "TMPDIR": str(folder)}
        words = [f"--basetemp={folder / 't'}", *arguments]  # shorter than what pytest makes
        status = box.run(pytest_command(words), ROOT, told)
        if status == 1:
            failed.append(folder)
            print(f"what the failed tests wrote, until the next run: {folder}", flush=True)
        else:
            run_folder.remove(folder)
    return status


def run_tier(name: str, stamp: str) -> dict[str, object]:
    """Run one tier at full size, or read the result it left at this commit."""
    RESULTS.mkdir(exist_ok=True)
    kept = RESULTS / f"{name}.json"
    if kept.exists() and not stamp.endswith("+"):
        before: dict[str, object] = json.loads(kept.read_text())
        if before["commit"] == stamp and before["failed"] == 0 and before["status"] in (0, 5):
            return before
    report = RESULTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    status = run_boxed(["-q", f"--junitxml={report}", f"tests/{name}"], environ={FULL_SIZE: "1"})
    passed, failed, skipped = junit.summarise(report)
    result: dict[str, object] = {
        "commit": stamp,
        "tier": name,
        "status": status,
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    kept.write_text(json.dumps(result))
    return result


def run_full() -> int:
    """Run every tier and print one line for each."""
    stamp = commit()
    results = [run_tier(name, stamp) for name in tiers()]
    print(f"\n{'tier':12}{'passed':>8}{'failed':>8}{'skipped':>9}{'minutes':>9}")
    for result in results:
        skipped = result["skipped"]
        assert isinstance(skipped, dict)
        print(
            f"{result['tier']:12}{result['passed']:8}{result['failed']:8}"
            f"{sum(skipped.values()):9}{result['minutes']:9}"
        )
        for reason, count in skipped.items():
            print(f"{'':12}skipped {count}: {reason}")
    return 1 if any(result["status"] not in (0, 5) for result in results) else 0


def workers() -> int:
    """How many processes the fast tier takes on this machine."""
    return len(os.sched_getaffinity(0)) + EXTRA_WORKERS


def says_workers(arguments: Sequence[str]) -> bool:
    """Whether `-n` is among the arguments, in any of its spellings. Pure."""
    return any(a.startswith(("-n", "--numprocesses")) for a in arguments)


def is_named(arguments: Sequence[str]) -> bool:
    """Whether a path or a marker is named by hand; the number after `-n` is neither. Pure."""
    before = ["", *arguments]
    return any(
        not a.startswith("-") and last not in ("-n", "--numprocesses")
        for last, a in zip(before, arguments, strict=False)
    )


def warm(tests: Path = ROOT / "tests") -> None:
    """In a tree where no test ran yet: rewrite all assertions once, not once in every worker.

    pytest keeps what it makes of a test file beside Python's own bytecode; two thirds of what it
    takes to find the tests go there.
    """
    kept = next(tests.rglob("__pycache__/test_*-pytest-*.pyc"), None)
    if kept is not None or sys.dont_write_bytecode:
        return
    files = sorted(str(one) for one in tests.rglob("test_*.py"))
    words = ["--collect-only", "-qq", "-p", "no:cacheprovider"]
    cores = len(os.sched_getaffinity(0))
    finding = [
        subprocess.Popen(pytest_command([*words, *files[number::cores]]), stdout=subprocess.DEVNULL)
        for number in range(cores)
    ]
    for one in finding:
        one.wait()


def seed_words(arguments: Sequence[str]) -> list[str]:
    """A new seed for the property tests, as pytest's words; none where the caller chose one."""
    if any(a.startswith("--hypothesis-seed") for a in arguments):
        return []
    return [f"--hypothesis-seed={random.SystemRandom().randrange(1 << 32)}"]


def run_fast(arguments: list[str]) -> int:
    """The fast tier: side by side, then alone. Returns pytest's exit code, the worse of both."""
    began = time.monotonic()
    RESULTS.mkdir(exist_ok=True)
    # Which tests failed last is noted here, apart from what was run by hand.
    cache = RESULTS / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    warm()
    seed = seed_words(arguments)
    print(*seed, flush=True)
    spread = [] if says_workers(arguments) else ["-n", str(workers())]
    told: list[junit.Case] = []
    failed: list[Path] = []
    worst = 5
    for name, chosen in (
        ("fast", [*spread, "-m", f"not {ALONE}", *arguments]),
        (ALONE, ["-m", ALONE, *without_workers(arguments), *files_with_mark(ALONE)]),
    ):
        report = RESULTS / f"{name}.xml"
        report.unlink(missing_ok=True)
        common = ["-q", "-o", f"cache_dir={cache}", f"--junitxml={report}", *seed]
        status = run_boxed([*common, *chosen], failed)
        if status not in (0, 1, 5):
            return status
        if report.exists():
            told += junit.cases(report)
        worst = 1 if 1 in (status, worst) else min(status, worst)
    print(f"\n{junit.as_text(told)}\n{left_out.as_text(left_out.full_size(ROOT), told)}")
    print(*seed)
    print(f"{junit.counts(told)} in {(time.monotonic() - began) / 60:.1f} min")
    print(left_out.untested(told), flush=True)
    return worst


def run_named(arguments: list[str]) -> int:
    """A selection at full size; its report is kept for `./run promises`."""
    report = RESULTS / "named" / f"{zlib.crc32(repr(arguments).encode()):08x}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    kept = [] if any(a.startswith("--junit") for a in arguments) else [f"--junitxml={report}"]
    return run_boxed([*kept, *arguments], environ={FULL_SIZE: "1"})


def files_with_mark(mark: str, tests: Path = ROOT / "tests") -> list[str]:
    """The files whose tests have a marker: to ask all the others for it would take half a minute.

    Never empty: where nobody has it, the folder, in which pytest then finds nothing.
    """
    word = re.compile(rf"pytest\.mark\.{mark}\b")
    found = [str(one) for one in sorted(tests.rglob("*.py")) if word.search(one.read_text())]
    return found or [str(tests)]


def without_workers(arguments: Sequence[str]) -> list[str]:
    """The arguments without `-n`, for what runs in one process. Pure."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip or argument.startswith(("-n", "--numprocesses")):
            skip = argument in ("-n", "--numprocesses")
            continue
        kept.append(argument)
    return kept


def main() -> None:
    """Choose by the arguments: fast tier, a selection at full size, or everything."""
    arguments = sys.argv[1:]
    if "--full" in arguments:
        sys.exit(run_full())
    os.chdir(ROOT)
    if is_named(arguments):
        sys.exit(run_named(arguments))
    sys.exit(run_fast(arguments))


if __name__ == "__main__":
    main()
