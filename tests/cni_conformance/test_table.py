"""The page of the checklist is whole, and names nothing that failed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cni_conformance import table
from tests.cni_conformance.checklist import requirements

ROW = "| {} | MUST | ADD | {} | {} | asked | code 11 | asks |"


@pytest.mark.promise("M-4")
def test_every_id_has_a_row_and_a_test() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cni_conformance.table", "--collect"],
        cwd=table.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [one for one in done.stderr.splitlines() if "no test carries it" in one]
    assert said == []
    if table.PAGE.exists():
        assert done.returncode == 0, done.stderr


def test_what_is_wrong_is_named() -> None:
    good = ROW.format("ADD-01", "pass", "pass")
    assert table.complaints(good, ["ADD-01"], ["ADD-01"]) == []
    assert table.complaints("", ["ADD-01"], ["ADD-01"]) == ["ADD-01: the page has no row"]
    assert table.complaints(good, ["ADD-01"], []) == ["ADD-01: no test carries it"]
    bad = ROW.format("ADD-01", "pass", "fail")
    assert table.complaints(bad, ["ADD-01"], ["ADD-01"]) == ["ADD-01 (MUST): failed"]
    (said,) = table.complaints(good.replace("code 11", "-"), ["ADD-01"], ["ADD-01"])
    assert said == "ADD-01: not asked with the daemon away"
    absent = ROW.format("ADD-01", "not applicable", "not applicable")
    (said,) = table.complaints(absent, ["ADD-01"], ["ADD-01"])
    assert "does not say why" in said


def test_a_page_that_the_tests_no_longer_bear_out_is_not_taken() -> None:
    rows = {one: table.Row({"": [True]}) for one in requirements()}
    page = table.render(rows)
    assert table.differences(page, rows) == []
    rows["ADD-01"] = table.Row({"executable": [True, False], "twin": [True]})
    (said,) = table.differences(page, rows)
    assert said.startswith("the tests say now: | ADD-01 |")
    assert "| fail | pass |" in said


def test_every_exception_is_an_id() -> None:
    assert table.exceptions().keys() <= requirements().keys()
    assert len(table.exceptions()) <= table.MOST_EXCEPTIONS
