"""The results as a table, as JUnit's XML and as one object. Pure.

Tested in `tests/calicoctl/test_connectivity_report.py`.
"""

from __future__ import annotations

import json
import statistics
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Sequence

from calicoctl import borders
from calicoctl.connectivity.model import Finding, Result

HEADINGS = ("PHASE", "WHAT", "RIGHT", "LATENCY MS", "SLOWEST MS", "MBIT/S")
EACH = ("PHASE", "FROM", "TO", "WHAT", "RIGHT", "LATENCY MS", "MBIT/S", "OUTCOMES")
SUITE = "calicoctl connectivity test"

Key = tuple[str, ...]


def table(results: Sequence[Result], findings: Sequence[Finding], wide: bool = False) -> str:
    """One line for each phase and kind of target, what is wrong in full, then the findings.

    `wide`: every pair of nodes has a line.
    """
    text = borders.render(HEADINGS, _summary(results)) if results else "No probes.\n"
    shown = [one for one in results if wide or not one.right]
    if shown:
        text += "\nEvery pair of nodes\n" if wide else "\nNot as it should be\n"
        text += borders.render(EACH, _pairs(shown))
    right = sum(one.right for one in results)
    text += f"\n{right} of {len(results)} probes are as they should be.\n"
    return text + "".join(f"FAULT {one.what}: {one.sentence}\n" for one in findings)


def _summary(results: Sequence[Result]) -> list[list[str]]:
    rows = []
    for key, group in _grouped(results, lambda one: (one.probe.phase, one.probe.target.kind)):
        times = [one.latency_ms for one in group if one.latency_ms is not None]
        slowest = f"{max(times):.3f}" if times else "-"
        right, latency, speed, _ = _measured(group)
        rows.append([*key, right, latency, slowest, speed])
    return rows


def _pairs(results: Sequence[Result]) -> list[list[str]]:
    def key(one: Result) -> Key:
        probe = one.probe
        source = f"{probe.source.kind} on {probe.source.node}"
        return probe.phase, source, probe.target.node or probe.target.title, probe.target.kind

    ordered = sorted(_grouped(results, key), key=lambda item: all(one.right for one in item[1]))
    return [[*names, *_measured(group)] for names, group in ordered]


def _grouped(
    results: Sequence[Result], key: Callable[[Result], Key]
) -> list[tuple[Key, list[Result]]]:
    grouped: dict[Key, list[Result]] = defaultdict(list)
    for one in results:
        grouped[key(one)].append(one)
    return list(grouped.items())


def _measured(group: Sequence[Result]) -> list[str]:
    times = [one.latency_ms for one in group if one.latency_ms is not None]
    bits = [one.bits for one in group if one.bits is not None]
    expected = {"answer" if one.probe.open else "denied" for one in group}
    outcomes = sorted({one.outcome for one in group})
    return [
        f"{sum(one.right for one in group)}/{len(group)}",
        f"{statistics.median(times):.3f}" if times else "-",
        f"{statistics.median(bits) / 1e6:.0f}" if bits else "-",
        f"{', '.join(outcomes)} (wanted: {', '.join(sorted(expected))})",
    ]


def as_json(results: Sequence[Result], findings: Sequence[Finding]) -> str:
    """`ok`, `findings` and `probes`; times are milliseconds, throughput bits a second."""
    tree = {
        "ok": not findings and all(one.right for one in results),
        "findings": [
            {"what": one.what, "where": one.where, "sentence": one.sentence} for one in findings
        ],
        "probes": [
            {
                "phase": one.probe.phase,
                "from": one.probe.source.title,
                "fromNode": one.probe.source.node,
                "to": one.probe.target.title,
                "toNode": one.probe.target.node,
                "what": one.probe.target.kind,
                "address": one.probe.target.host,
                "port": one.probe.target.port,
                "wanted": "answer" if one.probe.open else "denied",
                "outcome": one.outcome,
                "right": one.right,
                "latencyMs": one.latency_ms,
                "bitsPerSecond": one.bits,
                "error": one.error,
            }
            for one in results
        ],
    }
    return json.dumps(tree, indent=2) + "\n"


def junit(results: Sequence[Result], findings: Sequence[Finding]) -> str:
    """A test suite of one case a probe, and one failed case for each finding."""
    wrong = [one for one in results if not one.right]
    suite = ET.Element(
        "testsuite",
        name=SUITE,
        tests=str(len(results) + len(findings)),
        failures=str(len(wrong) + len(findings)),
        errors="0",
    )
    for finding in findings:
        case = _case(suite, "finding", f"{finding.what}: {finding.where}", 0.0)
        _fail(case, finding.sentence)
    for one in results:
        probe = one.probe
        name = f"{probe.source.title} -> {probe.target.title}:{probe.target.port}"
        seconds = (one.latency_ms or 0.0) / 1000
        case = _case(suite, f"{probe.phase}.{probe.target.kind}", name, seconds)
        if not one.right:
            expected = "an answer" if probe.open else "no answer"
            _fail(case, f"{one.outcome} {one.error}".strip() + f", wanted {expected}")
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, kind: str, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", classname=_printable(kind), name=_printable(name), time=f"{seconds:.6f}"
    )


def _fail(case: ET.Element, message: str) -> None:
    ET.SubElement(case, "failure", message=_printable(message))


def _printable(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(one if one.isprintable() else " " for one in text)
