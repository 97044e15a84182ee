"""The page of goals and figures."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests import performance
from tests.bench import _reporting
from tests.bench._goals import GOALS, Goal, figures_at, judged

GOAL = Goal("ADD", ("ratios", "*", "add"), 0.7, "of ptp")


def test_a_star_takes_the_worst_of_all_and_what_lacks_is_left_out() -> None:
    result = {"ratios": {"disk": {"add": 0.5}, "tmpfs": {"add": 0.8}, "other": {}}}
    assert sorted(figures_at(result, GOAL.path)) == [0.5, 0.8]
    assert list(figures_at({}, GOAL.path)) == []
    assert list(figures_at({"ratios": 3}, GOAL.path)) == []


def test_a_run_is_judged_by_the_goals_that_it_measured() -> None:
    result = {"ratios_by_setting": {"disk iptables": {"add_p50_vs_ptp": 0.6}}}
    rows = judged("cni", result, full=False)
    assert [(row["goal"], row["figure"], row["met"]) for row in rows] == [
        ("at most 0.7 of ptp", 0.6, True),
        ("at most 0.5 of ptp", 0.6, False),
    ]
    assert judged("no such bench", result, full=False) == []


def test_a_goal_of_full_size_is_judged_at_full_size_only() -> None:
    result = {"results": {"nft": {"restart": {"kernel_commits": 0}}}}
    assert judged("felix", result, full=False) == []
    assert [row["met"] for row in judged("felix", result, full=True)] == [True]


def test_a_goal_may_be_a_least() -> None:
    goal = Goal("packets", ("x",), 0.95, least=True)
    assert goal.met(0.96)
    assert not goal.met(0.9)
    assert goal.text == "at least 0.95"


def test_a_record_keeps_what_this_run_did_not_measure() -> None:
    run = {"date": "2026-01-01", "commit": "abc", "load": 0.1, "flags": ""}
    known = {"cni": {"old": {"figure": 1}, "new": {"figure": 2}}, "bgp": {"x": {"figure": 3}}}
    now = _reporting.kept(known, "cni", [{"what": "new", "figure": 5}], run)
    assert now["cni"] == {"new": {"figure": 5, **run}, "old": {"figure": 1}}
    assert now["bgp"] == known["bgp"]


def test_what_is_recorded_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_reporting, "RECORD", tmp_path / "performance.json")
    monkeypatch.setattr(performance, "RECORD", tmp_path / "performance.json")
    monkeypatch.setattr(performance, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(performance, "PICTURES", tmp_path)
    monkeypatch.setattr(performance, "ROOT", tmp_path)
    assert performance.complaints()
    options = argparse.Namespace(json=False, record=True, plot=None)
    result = {"ratios_by_setting": {"disk iptables": {"add_p50_vs_ptp": 0.61}}}
    _reporting.conclude("cni", result, options, lambda _: "a table")
    assert "MISSED  ADD, median, the next goal: 0.61" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["performance"])
    assert performance.main() == 0
    written = (tmp_path / "performance.md").read_text()
    assert "| at most 0.7 of ptp | 0.61 | met |" in written
    assert "| at most 0.5 of ptp | 0.61 | **missed** |" in written
    assert "not measured" in written
    assert "](pictures/performance-cni.svg)" in written
    assert "ADD, median, the next goal" in (tmp_path / "performance-cni.svg").read_text()
    assert performance.complaints() == []


def test_each_goal_of_a_bench_has_a_name_of_its_own() -> None:
    for bench, goals in GOALS.items():
        names = [goal.what for goal in goals]
        assert len(set(names)) == len(names), bench
