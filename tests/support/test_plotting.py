"""Drawings of benches: what is drawn, that it is the same each time, and what is refused."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests import performance
from tests.bench import _plotting, _reporting
from tests.bench._goals import Goal

MATPLOTLIB = pytest.importorskip("matplotlib", reason="./run install brings it")
AT_MOST, AT_LEAST = Goal("time", ("t",), 10, "ms"), Goal("rate", ("r",), 100, least=True)
RESULT = {
    "results": {
        "nft": {"change": {"p50_ms": 4.0, "p99_ms": 9.0, "n": 3}, "note": "p50_ms"},
        "add_ms": {"p50": 3.0, "p99": 8.0},
        "start": {"median_s": 1.5, "rounds": [1, 2]},
        "only a tail": {"p99_ms": 7.0},
        "route": {"cpu_us": 58.9, "ratio": 2},
    }
}


def test_a_share_is_1_where_the_goal_is_just_met() -> None:
    rows = [AT_MOST.row(5), AT_MOST.row(20), AT_LEAST.row(200), AT_LEAST.row(0)]
    found = _plotting.shares(rows)
    assert [one.share for one in found] == [0.5, 2.0, 0.5, 2.0]
    assert [one.met for one in found] == [True, False, True, False]
    nothing = Goal("writes", ("w",), 0)
    assert [one.share for one in _plotting.shares([nothing.row(0), nothing.row(3)])] == [1.0, 2.0]
    assert found[0].text == "5 (at most 10 ms)"


def test_quantiles_are_found_wherever_a_bench_has_them() -> None:
    found = {(one.where, one.unit): dict(one.values) for one in _plotting.spreads(RESULT)}
    assert found == {
        ("results nft change", "ms"): {"p50": 4.0, "p99": 9.0},
        ("results add_ms", "ms"): {"p50": 3.0, "p99": 8.0},
        ("results start", "s"): {"p50": 1.5},
        ("results route cpu", "us"): {"value": 58.9},
    }
    assert list(_plotting.spreads([RESULT])) == []


def draw(path: Path, of: str = "abc") -> None:
    goals = _plotting.shares([AT_MOST.row(5), AT_MOST.row(20)])
    _plotting.draw(path, "./run bench x", goals, list(_plotting.spreads(RESULT)), of)


def test_the_same_figures_give_the_same_drawing(tmp_path: Path) -> None:
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    draw(one)
    draw(other)
    assert one.read_bytes() == other.read_bytes()
    assert _plotting.drawn_of(one) == "abc"
    assert _plotting.drawn_of(tmp_path / "none.svg") == ""
    text = one.read_text()
    for said in ("./run bench x", "time", "missed: 20 (at most 10 ms)", "results nft change"):
        assert said in text, "text is text: it can be searched, and read aloud"
    draw(tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_without_anything_to_draw_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        _plotting.draw(tmp_path / "x.svg", "x", [], [], "")
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.parametrize(
    ("name", "why"), [("x.gif", "must be .svg or .png"), ("no/such/x.svg", "there is no folder")]
)
def test_a_file_that_cannot_be_drawn_is_refused_before_the_bench(
    tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=why):
        _plotting.file(str(tmp_path / name))
    assert _plotting.file(str(tmp_path / "x.svg")) == tmp_path / "x.svg"


def test_a_bench_draws_where_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    _reporting.add_arguments(parser)
    options = parser.parse_args(["--plot", str(tmp_path / "x.svg")])
    result = {"ratios_by_setting": {"disk iptables": {"add_p50_vs_ptp": 0.61}}}
    _reporting.conclude("cni", result, options, lambda _: "a table")
    assert "ADD, median, the next goal" in (tmp_path / "x.svg").read_text()
    _reporting.plot("none", {}, options)
    assert "is not drawn: nothing to draw" in capsys.readouterr().err
    words = ["--part", "a", "--plot", "x.svg", "--json", "--record", "--plot=y.svg"]
    assert _reporting.measuring(words) == "--part a"


def test_a_picture_of_other_figures_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert performance.complaints() == []
    (path, (title, rows)), *_ = performance.pictures().items()
    monkeypatch.setattr(performance, "pictures", lambda: {path: (title, [*rows, *rows])})
    (complaint,) = performance.complaints()
    assert complaint == f"docs/pictures/{path.name} is stale: ./run performance writes it"
