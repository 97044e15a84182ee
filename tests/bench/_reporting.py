"""How a bench ends: for people or as JSON, judged by its goals, and kept for the page where asked.

`--json` prints the figures with `goals`: each goal that this run measured, its limit, the figure,
and whether it is met. `--record` keeps these in `docs/performance.json` with date, commit and the
load before the run; `./run performance` makes the page of them (`tests.performance`). `--plot`
draws goals and quantiles into a file (`tests.bench._plotting`).
Tested in tests/support/test_performance.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench import _plotting
from tests.bench._goals import judged

Json = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent
RECORD = ROOT / "docs/performance.json"

_load_before = os.getloadavg()[0]
"""Read when the bench begins, before its own work is in it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that every bench has."""
    parser.add_argument("--json", action="store_true", help="the report as JSON, with its goals")
    parser.add_argument("--record", action="store_true", help="keep it in docs/performance.json")
    add_plot(parser)


def add_plot(parser: argparse.ArgumentParser) -> None:
    """The argument for a drawing."""
    parser.add_argument(
        "--plot", type=_plotting.file, metavar="FILE", help="draw goals and quantiles: .svg or .png"
    )


def plot(bench: str, result: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Draw the result where asked."""
    if options.plot is None:
        return
    goals = judged(bench, dict(result), full=getattr(options, "full", False))
    found = list(_plotting.spreads(result))
    title = f"./run bench {bench}"
    try:
        _plotting.draw(
            options.plot, title, _plotting.shares(goals), found, _plotting.digest(result)
        )
    except (OSError, ValueError) as error:
        print(f"{options.plot} is not drawn: {error}", file=sys.stderr)


def conclude(
    bench: str, result: Json, options: argparse.Namespace, text: Callable[[Json], str]
) -> None:
    """Print the result with its goals, and record them where asked."""
    goals = judged(bench, result, full=getattr(options, "full", False))
    plot(bench, result, options)
    if options.record:
        known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        RECORD.write_text(json.dumps(kept(known, bench, goals, _of_this_run()), indent=1) + "\n")
    if options.json:
        print(json.dumps({**result, "goals": goals}, indent=1))
    else:
        print(text(result))
        for row in goals:
            verdict = "met" if row["met"] else "MISSED"
            print(f"{verdict:7} {row['what']}: {row['figure']:g} ({row['goal']})")


def kept(known: Json, bench: str, goals: list[Json], run: Json) -> Json:
    """The record with what a run measured; what it did not measure stays. Pure."""
    before = known.get(bench, {})
    now = {row["what"]: {"figure": row["figure"], **run} for row in goals}
    return dict(sorted({**known, bench: dict(sorted({**before, **now}.items()))}.items()))


def _of_this_run() -> Json:
    done = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": done.stdout.strip(),
        "load": round(_load_before, 1),
        "flags": measuring(sys.argv[1:]),
    }


def measuring(words: Sequence[str]) -> str:
    """Of a bench's arguments those that change what is measured. Pure."""
    kept = []
    following = iter(words)
    for word in following:
        if word == "--plot":
            next(following, "")
        elif word not in ("--json", "--record") and not word.startswith("--plot="):
            kept.append(word)
    return " ".join(kept)
