"""`./run test`: which tests run, at which size, and how the result is told.

Without arguments the fast tier runs: every behaviour at reduced counts, at most 20 minutes
on two cores; a few failures get one second try, said aloud. A path or marker named by hand
runs that selection at full size. `--full` runs every tier one after another; a tier that
passed at this commit is not run again, so an interrupted run is resumed by calling it again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / ".test-results"
FULL_SIZE = "MUSLIN_FULL_SIZE"
SECOND_TRIES = 6


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


def summarise(report: Path) -> tuple[int, int, dict[str, int]]:
    """(passed, failed, skipped by reason) of a JUnit report; without one the run itself failed."""
    passed = failed = 0
    skipped: dict[str, int] = {}
    if not report.exists():
        return 0, 1, {}
    for case in ET.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif (skip := case.find("skipped")) is not None:
            reason = skip.get("message", "no reason")
            skipped[reason] = skipped.get(reason, 0) + 1
        else:
            passed += 1
    return passed, failed, skipped


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
    status = subprocess.run(
        pytest_command(["-q", f"--junitxml={report}", f"tests/{name}"]),
        cwd=ROOT,
        env={**os.environ, FULL_SIZE: "1"},
        check=False,
    ).returncode
    passed, failed, skipped = summarise(report)
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


def run_fast(arguments: list[str]) -> int:
    """The fast tier. A few failures get one second try, and it is said which needed it.

    The tests share two cores with whatever else the machine does, and many of them hold real
    daemons to deadlines. A defect fails twice; what fails twice, fails.
    """
    RESULTS.mkdir(exist_ok=True)
    report = RESULTS / "fast.xml"
    report.unlink(missing_ok=True)
    first = subprocess.run(
        pytest_command(["-q", "--durations=10", f"--junitxml={report}", *arguments]), check=False
    ).returncode
    if first != 1:
        return first
    _, failed, _ = summarise(report)
    if not 0 < failed <= SECOND_TRIES:
        return first
    print(f"\n{failed} failed: they get a second try, alone", flush=True)
    second = subprocess.run(
        pytest_command(["-v", "--last-failed", "--last-failed-no-failures=none", *arguments]),
        check=False,
    ).returncode
    print(f"second try: {'passed' if second == 0 else 'FAILED'}", flush=True)
    return second


def main() -> None:
    """Choose by the arguments: fast tier, a selection at full size, or everything."""
    arguments = sys.argv[1:]
    if "--full" in arguments:
        sys.exit(run_full())
    named = any(not a.startswith("-") for a in arguments)
    os.chdir(ROOT)
    if named:
        command = pytest_command(arguments)
        os.execve(command[0], command, {**os.environ, FULL_SIZE: "1"})
    sys.exit(run_fast(arguments))


if __name__ == "__main__":
    main()
