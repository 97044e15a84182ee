"""Upstream's suites: what specs they have, how they run, and what their reports say."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tests.upstream.binaries import CLUSTER_POLICY, E2E

LIMIT = 3 * 3600.0
"""Seconds that end a suite which hangs."""
GROUP = "[sig-network] "
SHOWN = 6000
"""Characters of a spec's own words in the report of its failure."""


@dataclass(frozen=True)
class Result:
    """What a suite's report says of one spec."""

    state: str
    """passed, failed or skipped"""
    seconds: float = 0.0
    said: str = ""
    excepted: tuple[str, ...] = ()
    """What of it failed because this kernel has no SCTP."""


class Suite(Protocol):
    """One of upstream's suites."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def count(self) -> int:
        """How many specs it has in the version that is pinned, those of SCTP among them."""

    def specs(self) -> list[str]:
        """Their names, as the suite says them; no cluster is asked."""

    def run(
        self, chosen: Collection[str], inside: Sequence[str], config: Path, out: Path
    ) -> dict[str, Result]:
        """Run specs on a cluster; `inside` is the command that enters its network."""


@cache
def has_sctp() -> bool:
    """Whether this kernel speaks SCTP: asked by trying."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True


def needs_sctp(spec: str) -> bool:
    """Whether a spec is of SCTP alone. Pure."""
    return "SCTPConnectivity" in spec or spec.endswith("SCTP")


def possible(spec: str) -> bool:
    """Whether this kernel has what a spec is of."""
    return has_sctp() or not needs_sctp(spec)


def check(result: Result) -> None:
    """A spec passed; AssertionError with its own words."""
    assert result.state == "passed", f"{result.state}: {result.said}"


def check_whole(suite: Suite, told: Mapping[str, Result]) -> None:
    """A suite has as many specs as it is known to have, and each that can run here ran."""
    specs = suite.specs()
    assert len(specs) == len(set(specs)) == suite.count
    wanted = {one for one in specs if possible(one)}
    ran = {one for one, result in told.items() if result.state in ("passed", "failed")}
    assert wanted == ran, f"not run: {sorted(wanted - ran)}; not asked for: {sorted(ran - wanted)}"


def specs_of(report: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The specs of Ginkgo's report, without its own steps before and after. Pure."""
    found = [one for suite in report for one in suite["SpecReports"] or []]
    return [one for one in found if one["LeafNodeType"] == "It"]


def name_of(spec: dict[str, Any]) -> str:
    """A spec's name as Ginkgo's focus sees it, without its group. Pure."""
    texts = [*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]]
    return " ".join(texts).removeprefix(GROUP)


def results(specs: Iterable[dict[str, Any]]) -> dict[str, Result]:
    """What a report says of every spec that was chosen. Pure."""
    told = {}
    for one in specs:
        if one["State"] in ("skipped", "pending") and not one.get("Failure"):
            continue  # not chosen
        failure = one.get("Failure") or {}
        said = failure.get("Message", "")
        where = failure.get("Location") or {}
        output = one.get("CapturedGinkgoWriterOutput", "")
        told[name_of(one)] = Result(
            "failed" if one["State"] not in ("passed", "skipped") else one["State"],
            one["RunTime"] / 1e9,
            f"{said}\n{where.get('FileName', '')}:{where.get('LineNumber', '')}\n{output[-SHOWN:]}",
        )
    return told


@dataclass(frozen=True)
class EndToEnd:
    """Specs of Kubernetes' end-to-end suite, chosen by a regular expression."""

    name: str
    focus: str
    count: int

    def specs(self) -> list[str]:
        """Their names, by a dry run."""
        return list(_dry(self.focus))

    def run(
        self, chosen: Collection[str], inside: Sequence[str], config: Path, out: Path
    ) -> dict[str, Result]:
        """Run specs; those that were not chosen are skipped by their names."""
        rest = set(self.specs()) - set(chosen)
        words = [f"--ginkgo.focus={self.focus}"]
        if len(rest) > len(chosen):
            words = [f"--ginkgo.focus={re.escape(one)}$" for one in sorted(chosen)]
        elif rest:
            words += [f"--ginkgo.skip={re.escape(one)}$" for one in sorted(rest)]
        where = ["--provider=skeleton", f"--kubeconfig={config}", f"--report-dir={out}"]
        limit = f"--ginkgo.timeout={LIMIT:.0f}s"
        report = _ginkgo(out, *where, "--ginkgo.v", limit, *words, inside=inside)
        return results(report)


@cache
def _dry(focus: str) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as folder:
        report = _ginkgo(Path(folder), "--ginkgo.dry-run", f"--ginkgo.focus={focus}")
    return tuple(sorted(results(report)))


def _ginkgo(out: Path, *words: str, inside: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Run the program with its files in a folder; what its report says of each spec."""
    out.mkdir(parents=True, exist_ok=True)
    report = out / "report.json"
    plain = ("--ginkgo.no-color", "--ginkgo.silence-skips", f"--ginkgo.json-report={report}")
    said = _run([*inside, str(E2E.program("e2e-net.test")), *plain, *words], out)
    assert report.exists(), f"no report was left: {said[-SHOWN:]}"
    return specs_of(json.loads(report.read_text()))


def _run(command: Sequence[str], out: Path) -> str:
    """Run a suite; what it said. TimeoutExpired when it hangs beyond its own limit."""
    log = out / "suite.log"
    with log.open("wb") as writing:
        subprocess.run(
            command, cwd=out, stdout=writing, stderr=writing, timeout=LIMIT + 600, check=False
        )
    return log.read_text(errors="replace")


@dataclass(frozen=True)
class ClusterPolicies:
    """The conformance tests of ClusterNetworkPolicy, standard and experimental ones."""

    name: str
    count: int

    def specs(self) -> list[str]:
        """Their names."""
        return list(_cluster_policies())

    def run(
        self, chosen: Collection[str], inside: Sequence[str], config: Path, out: Path
    ) -> dict[str, Result]:
        """Run tests by their names."""
        out.mkdir(parents=True, exist_ok=True)
        told = ["env", f"KUBECONFIG={config}", str(CLUSTER_POLICY.program("cluster-policy.test"))]
        words = ["-test.v", f"-test.timeout={LIMIT:.0f}s"]
        words.append(f"-test.run=^TestConformance$/^({'|'.join(sorted(chosen))})$")
        said = _run([*inside, *told, *words], out)
        found = judge(said, sctp=has_sctp())
        assert found, f"no test of ClusterNetworkPolicy ran: {said[-SHOWN:]}"
        return found


@cache
def _cluster_policies() -> tuple[str, ...]:
    program = CLUSTER_POLICY.program("cluster-policy.test")
    asked = [str(program), "-test.run=^TestNames$"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return tuple(re.findall(r"^name (\w+)$", said, re.MULTILINE))


POLICY = EndToEnd("NetworkPolicy", r"\[Feature:NetworkPolicy\]", 48)
CONFORMANCE = EndToEnd("sig-network conformance", r"\[sig-network\].*\[Conformance\]", 47)
CLUSTER_POLICIES = ClusterPolicies("ClusterNetworkPolicy conformance", 24)


_RUN = re.compile(r"=== (?:RUN|NAME|CONT) +(\S+)$")
_END = re.compile(r" *--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)$")
_ATTEMPT = re.compile(r"FAILED (?:Command was|to execute command) \[(.*?)\]")
_ROOT = "TestConformance/"


def judge(log: str, *, sctp: bool) -> dict[str, Result]:
    """What the output of `-test.v` says of each test. Pure.

    Every case of a test tries connections until one is not as it should be, and ends there. Where
    the kernel has no SCTP, a case that ends at a connection of SCTP is an exception, by its name.
    """
    current = ""
    lines: dict[str, list[str]] = {}
    attempts: dict[str, str] = {}
    ended_by: dict[str, list[str]] = {}
    ends: dict[str, tuple[str, float]] = {}
    for line in log.splitlines():
        if found := _RUN.match(line):
            current = found[1]
            continue
        if found := _END.match(line):
            ends[found[2]] = (found[1], float(found[3]))
            continue
        lines.setdefault(current, []).append(line)
        if found := _ATTEMPT.search(line):
            attempts[current] = found[1]
        elif "Error Trace:" in line:
            ended_by.setdefault(current, []).append(attempts.pop(current, ""))

    def at_sctp(case: str) -> bool:
        tried = ended_by.get(case, [])
        return bool(tried) and not sctp and all("--protocol=sctp" in one for one in tried)

    told: dict[str, Result] = {}
    for path, (state, seconds) in ends.items():
        if path.count("/") != 1:
            continue
        failed = [
            case for case, (end, _) in ends.items() if case.startswith(f"{path}/") and end == "FAIL"
        ]
        wrong = [case for case in failed if not at_sctp(case)]
        if state == "FAIL" and (path in ended_by or not failed):
            wrong.append(path)  # in itself, beside its cases
        told[path.removeprefix(_ROOT)] = Result(
            "failed" if wrong else "skipped" if state == "SKIP" else "passed",
            seconds,
            "\n".join("\n".join([case, *lines.get(case, [])]) for case in wrong)[-SHOWN:],
            tuple(case.removeprefix(f"{path}/") for case in failed if case not in wrong),
        )
    return told
