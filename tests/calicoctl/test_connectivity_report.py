"""The table, the object and JUnit's XML of a test."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from calicoctl.connectivity import report
from calicoctl.connectivity.model import OPEN, PODS, SPEED, Finding, Place, Probe, Result, Target

FROM = Place("n1", "c", "t", "10.65.0.1")
GOOD = Result(Probe(OPEN, FROM, Target(PODS, "t/s", "10.65.1.1", 8790, "n2")), "answer",
              latency_ms=1.5)  # fmt: skip
BAD = Result(Probe(OPEN, FROM, Target(PODS, 'odd<"\x01', "10.65.2.1", 8790, "n3")), "silent", "so")
FAST = Result(Probe(OPEN, FROM, Target(SPEED, "t/s", "10.65.1.1", 8790, "n2")), "answer", bits=2e9)
FAULT = Finding("route", "n1 -> n3", "a route is missing")


def test_the_table_sums_up_and_shows_what_is_wrong() -> None:
    text = report.table([GOOD, BAD, FAST], [FAULT])
    assert "| open  | pod        | 1/2   |      1.500 |      1.500 | -      |" in text
    assert "| open  | throughput | 1/1   | -          | -          |   2000 |" in text
    assert text.count("pod on n1") == 1
    assert text.endswith("2 of 3 probes are as they should be.\nFAULT route: a route is missing\n")
    assert report.table([GOOD, BAD, FAST], [], wide=True).count("pod on n1") == 3
    assert "Not as it should be" not in report.table([GOOD], [])
    assert report.table([], []).startswith("No probes.")


def test_junit_has_a_case_a_probe_and_one_a_finding() -> None:
    suite = ET.fromstring(report.junit([GOOD, BAD, FAST], [FAULT]))
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["route: n1 -> n3", 't/c -> odd<" :8790']


def test_the_object() -> None:
    told = json.loads(report.as_json([GOOD, BAD], [FAULT]))
    assert (told["ok"], told["findings"][0]["what"]) == (False, "route")
    assert [(one["right"], one["wanted"]) for one in told["probes"]] == [
        (True, "answer"), (False, "answer"),
    ]  # fmt: skip
    assert json.loads(report.as_json([GOOD], []))["ok"] is True
