"""Write `docs/cni-conformance.md`: every id of the checklist with what its tests said.

    ./run cni-table           runs every test that carries an id, and writes the page
    ./run cni-table --check   runs them too, and fails where the page is not what they say now

An id passes when every test that carries it passed, for the executable and for its twin; it is
not applicable only when docs/cni-not-applicable.md names it. Every call of a check is made with
the daemon away, too; an id whose tests make none has its verb asked
(tests/cni_conformance/away.py).
`--collect` (in the fast tier) runs no test: it compares ids, tests and exceptions with the page.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cni_conformance.checklist import Requirement, requirements
from tests.tiers import workers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cni-conformance.md"
EXCEPTIONS = ROOT / "docs" / "cni-not-applicable.md"
FOLDERS = ("tests/cni_conformance", "tests/cni", "tests/advisories", "tests/cri")
MOST_EXCEPTIONS = 15
BUILDS = ("executable", "twin")
DOWN = "down: "
BY_ITSELF = ("CLIENT", "INSTALL")
"""Ids of these verbs ask nothing of the plugin: a daemon takes no part."""


@dataclass
class Row:
    """What the tests of one id said, by build ("" for tests of no build)."""

    outcomes: dict[str, list[bool]] = field(default_factory=dict)
    daemon: set[str] = field(default_factory=set)

    def state(self, build: str) -> str:
        """pass, fail, or nothing where no test of this build carries the id."""
        said = self.outcomes.get(build, []) + self.outcomes.get("", [])
        return "" if not said else "pass" if all(said) else "fail"

    def down(self) -> str:
        """What was said with the daemon away."""
        words = sorted(one.removeprefix(DOWN) for one in self.daemon if one.startswith(DOWN))
        # Of a check that looks for itself, "asked" is all that is known here.
        return ", ".join([one for one in words if one != "asked"] or words) or "-"


class Judge:
    """A pytest plugin: collects ids, and outcomes if the tests run."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._ids: dict[str, tuple[list[str], str]] = {}
        self._told: set[str] = set()

    def drive(self, *arguments: str) -> None:
        """One run of pytest; the processes of a parallel one report to this."""
        folders = [folder for folder in FOLDERS if (ROOT / folder).is_dir()]
        common = ["-o", "addopts=--strict-markers", "-p", "no:cacheprovider"]
        status = pytest.main([*common, *arguments, *folders], plugins=[self])
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise SystemExit(f"the tests did not run: pytest ended with {status}")

    def silent(self) -> list[str]:
        """Tests of which nothing was heard."""
        return sorted(self._ids.keys() - self._told)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the items that carry an id."""
        chosen = []
        for item in items:
            ids = [one for mark in item.iter_markers("cni") for one in mark.args]
            if not ids:
                continue
            build = next((b for b in BUILDS if re.search(rf"[\[-]{b}\b", item.nodeid)), "")
            self._ids[item.nodeid] = (ids, build)
            for one in ids:
                self.rows.setdefault(one, Row())
            chosen.append(item)
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test ended; a skipped one said nothing."""
        ids, build = self._ids[report.nodeid]
        self._told.add(report.nodeid)
        for one in ids:
            row = self.rows[one]
            row.daemon |= {str(value) for name, value in report.user_properties if name == "daemon"}
            if (report.when == "call" or report.failed) and not report.skipped:
                row.outcomes.setdefault(build, []).append(report.passed)


def exceptions() -> dict[str, str]:
    """The ids that do not apply, with the clause that says so."""
    if not EXCEPTIONS.exists():
        return {}
    found = re.findall(r"^\| ([A-Z]+-\d+) \| (.+) \|$", EXCEPTIONS.read_text(), re.MULTILINE)
    return dict(found)


def run(*, collect_only: bool = False) -> Mapping[str, Row]:
    """Run (or only collect) every test that carries an id, each at the fast counts."""
    os.environ["MUSLIN_FULL_SIZE" if collect_only else "MUSLIN_EVERY_ITEM"] = "1"
    judge = Judge()
    judge.drive("--collect-only", "-p", "no:terminal", "-p", "no:xdist")
    if not collect_only:
        judge.drive("-q", "-m", "cni", "-n", str(workers()))
        silent = judge.silent()
        if silent:
            raise SystemExit(f"not run: {', '.join(silent)}")
        ask_the_rest(judge.rows)
    return judge.rows


def ask_the_rest(rows: Mapping[str, Row]) -> None:
    """Ids of the plugin whose tests made no call with the daemon away: their verb is asked."""
    from tests.cni_conformance import away  # once `run` has said at which size

    asked: dict[str, dict[str, set[str]]] = {}
    for each in requirements().values():
        row = rows.get(each.id)
        if row is None or each.verb in BY_ITSELF or row.down() != "-":
            continue
        if each.verb not in asked:
            asked[each.verb] = away.of_verbs(each.verb)
        for build, words in asked[each.verb].items():
            row.outcomes.setdefault(build, []).append(bool(words))
            row.daemon |= {DOWN + word for word in words}


def line(requirement: Requirement, row: Row, excepted: Mapping[str, str]) -> str:
    """One row of the page."""
    states = [row.state(build) for build in BUILDS]
    if requirement.id in excepted:
        states = ["not applicable"] * 2
    elif not any(states):
        states = ["fail"] * 2
    else:
        # Some behaviours belong to the daemon or the client alone: no build takes part.
        states = [state or "-" for state in states]
    up = "asked" if "up" in row.daemon else "-"
    down = row.down() if requirement.id not in excepted else "-"
    text = requirement.text.replace("|", "\\|")
    cells = (requirement.id, requirement.level, requirement.verb, *states, up, down, text)
    return "| " + " | ".join(cells) + " |"


def render(rows: Mapping[str, Row]) -> str:
    """The page."""
    excepted = exceptions()
    lines = [line(each, rows.get(each.id, Row()), excepted) for each in requirements().values()]
    failed = sum(1 for one in lines if "| fail |" in one)
    return "\n".join(
        [
            "# CNI conformance",
            "",
            "Generated by `./run cni-table` from the tests (`tests/cni_conformance/`, and those of",
            "`tests/cni/` that carry an id). Levels: MUST, SHOULD and MAY are the words of the CNI",
            "specification 0.1.0 to 1.1.0; REF is what its reference library does, CLI what a real",
            "runtime asks, CAL what Calico's plugin does, RULE our ruling where sources conflict.",
            "Both the executable in C and its twin in Python are asked, the daemon up and",
            "down. *Up*: `asked` where a daemon served a call; what is the daemon's alone is",
            "tested inside it (`-`). *Down*: each call of the check again with the daemon",
            "away. `as up` is the same answer to the byte, `code 11` and `code 50` a truthful",
            '"try again", `queued` a DEL that was written down whole, `asked` a test of its',
            "own for that state. Where a check makes no call, its verb is asked at every",
            "version. Ids of clients and of the installer ask nothing of the plugin (`-`).",
            "",
            f"{len(lines)} ids: {len(lines) - failed - len(excepted)} pass, {failed} fail, "
            f"{len(excepted)} do not apply ([why](cni-not-applicable.md)).",
            "",
            "| id | level | verb | executable | twin | up | down | asks |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
        ]
    )


def complaints(page: str, known: Iterable[str], carried: Iterable[str]) -> list[str]:
    """Why the page cannot stand: ids without row or test, failures, too many exceptions. Pure."""
    found, excepted, tested = [], exceptions(), set(carried)
    states = {
        match[1]: match.groups()[1:]
        for match in re.finditer(
            r"^\| ([A-Z]+-\d+) \| (\w+) \| (\w+) \| ([\w-]+(?: \w+)*) \| ([\w-]+(?: \w+)*)"
            r" \| [\w-]+ \| ([\w ,-]+) \| ",
            page,
            re.MULTILINE,
        )
    }
    for one in known:
        if one not in states:
            found.append(f"{one}: the page has no row")
            continue
        level, verb, *both, down = states[one]
        if one not in excepted and one not in tested:
            found.append(f"{one}: no test carries it")
        if "fail" in both:
            found.append(f"{one} ({level}): failed")
        if down == "-" and verb not in BY_ITSELF and one not in excepted:
            found.append(f"{one}: not asked with the daemon away")
        if "not applicable" in both and one not in excepted:
            found.append(f"{one}: not applicable, and {EXCEPTIONS.name} does not say why")
    if len(excepted) > MOST_EXCEPTIONS:
        found.append(f"{len(excepted)} exceptions, at most {MOST_EXCEPTIONS}")
    return found


def differences(page: str, rows: Mapping[str, Row]) -> list[str]:
    """Rows that are not what the tests said. Pure."""
    there, excepted = set(page.splitlines()), exceptions()
    now = [line(each, rows.get(each.id, Row()), excepted) for each in requirements().values()]
    return [f"the tests say now: {one}" for one in now if one not in there]


def main(arguments: list[str]) -> int:
    """Entry of `./run cni-table`."""
    if arguments not in ([], ["--check"], ["--collect"]):
        print(__doc__, file=sys.stderr)
        return 2
    rows = run(collect_only=arguments == ["--collect"])
    if not arguments:
        PAGE.write_text(render(rows))
    page = PAGE.read_text() if PAGE.exists() else ""
    found = complaints(page, requirements(), rows)
    if arguments == ["--check"]:
        found += differences(page, rows)
    for one in found:
        print(one, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
