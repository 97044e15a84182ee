"""Drawings of a bench's result, and of the goals of the page of performance: SVG or PNG.

matplotlib is imported when something is drawn, and installed by `./run bench NAME --plot FILE`. The
same figures give the same bytes. A goal is a bar: the figure's share of its limit; what is beyond 1
misses it. Quantiles are a line from the median to the 99th percentile, other figures with a unit
are points, and each unit has its own drawing.
Tested in tests/support/test_plotting.py.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUFFIXES = (".svg", ".png")
MOST_ROWS = 40
"""Of the quantiles of one unit; a page that nothing can be read on helps nothing."""
ROW, WIDTH = 0.28, 9.0
MET, MISSED, PLAIN = "#2b6cb0", "#c05621", "#4a5568"
_KEY = re.compile(r"^(min|p50|median|p90|p99|max)(?:_([a-z]+))?$")
_SINGLE = re.compile(r"^(\w+)_(ns|us|ms|s|mib|mb|bytes)$")
_UNIT = re.compile(r"_(ns|us|ms|s|mib|bytes)$")
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """A goal: the figure's share of its limit, 1 where it is just met."""

    what: str
    share: float
    met: bool
    text: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of one measurement, by name (`p50`, `p99`, ...), in one unit; or one `value`."""

    where: str
    unit: str
    values: Mapping[str, float]


def file(text: str) -> Path:
    """For argparse: a file that can be drawn into, once the bench has run."""
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text}: the ending must be {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("matplotlib lacks: ./run bench NAME --plot installs it")
    return path


def shares(goals: Sequence[Json]) -> list[Share]:
    """Goals as `judged` gives them, with their limits as numbers. Pure."""
    return [_share(row) for row in goals]


def _share(row: Json) -> Share:
    figure, limit = float(row["figure"]), float(row["limit"])
    if row["least"]:
        share = limit / figure if figure else 2.0
    elif limit:
        share = figure / limit
    else:
        share = 1.0 if not figure else 2.0
    return Share(row["what"], share, row["met"], f"{figure:g} ({row['goal']})")


def spreads(result: Any, where: tuple[str, ...] = ()) -> Iterator[Spread]:
    """Each group of quantiles and each figure with a unit in a bench's JSON, with its way. Pure."""
    if not isinstance(result, Mapping):
        return
    by_unit: dict[str, dict[str, float]] = {}
    for key, value in result.items():
        if not isinstance(value, int | float):
            yield from spreads(value, (*where, str(key)))
        elif match := _KEY.match(str(key)):
            name = "p50" if match[1] == "median" else match[1]
            by_unit.setdefault(match[2] or _unit_of(where), {})[name] = float(value)
        elif match := _SINGLE.match(str(key)):
            yield Spread(" ".join((*where, match[1])), match[2], {"value": float(value)})
    for unit, values in by_unit.items():
        if "p50" in values:
            yield Spread(" ".join(where), unit, values)


def _unit_of(where: tuple[str, ...]) -> str:
    found = _UNIT.search(where[-1]) if where else None
    return found[1] if found else ""


def digest(value: object) -> str:
    """What a drawing is of: another value, another text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def draw(path: Path, title: str, goals: Sequence[Share], found: Sequence[Spread], of: str) -> None:
    """Write the drawing; `of` is kept in it (`drawn_of`). Raises OSError, ValueError: nothing."""
    units = sorted({one.unit for one in found})
    parts: list[tuple[str, list[Share] | list[Spread]]] = [("goals", list(goals))] if goals else []
    parts += [(unit, [one for one in found if one.unit == unit][:MOST_ROWS]) for unit in units]
    if not parts:
        raise ValueError("nothing to draw: no goal was measured, and no figure has a unit")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings = {"svg.hashsalt": title, "svg.fonttype": "none", "font.size": 8}
    with mpl.rc_context(settings):
        heights = [len(rows) + 2 for _, rows in parts]
        figure = Figure(figsize=(WIDTH, ROW * sum(heights) + 0.8), layout="constrained")
        figure.suptitle(title)
        places = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
        for (unit, rows), (place,) in zip(parts, places, strict=True):
            place.set_yticks(range(len(rows)))
            place.set_ylim(len(rows) - 0.5, -0.5)
            place.spines[["top", "right"]].set_visible(False)
            if unit == "goals":
                _draw_goals(place, rows)
            else:
                _draw_spreads(place, rows, unit)
        kept = {"Date": None, "Description": of} if path.suffix == ".svg" else {"Description": of}
        figure.savefig(path, metadata=kept)


def _draw_goals(place: Any, rows: list[Any]) -> None:
    colours = [MET if row.met else MISSED for row in rows]
    hatches = ["" if row.met else "///" for row in rows]
    place.barh(range(len(rows)), [row.share for row in rows], color=colours, hatch=hatches)
    place.axvline(1.0, color="black", linewidth=1, zorder=0)
    place.set_yticklabels([row.what for row in rows])
    for number, row in enumerate(rows):
        verdict = "" if row.met else "missed: "
        place.text(
            row.share + 0.02,
            number,
            f"{verdict}{row.text}",
            va="center",
            bbox={"color": "white", "pad": 0.5},
        )
    place.set_xlim(0, max(1.2, *(row.share for row in rows)) * 1.5)
    place.set_xlabel("share of the goal; the line is the goal")


def _draw_spreads(place: Any, rows: list[Any], unit: str) -> None:
    for number, row in enumerate(rows):
        values = row.values
        ends = list(values.values())
        place.plot([min(ends), max(ends)], [number] * 2, color=PLAIN, linewidth=1)
        place.plot(values.get("p50", ends[0]), number, "o", color=MET, markersize=4)
        for name, mark in (("p90", "|"), ("p99", "D")):
            if name in values:
                place.plot(values[name], number, mark, color=MISSED, markersize=4)
    place.set_yticklabels([row.where for row in rows])
    place.set_xlim(left=0)
    place.set_xlabel(f"{unit or 'figure'}: circle the figure or median, diamond 99th percentile")


def drawn_of(path: Path) -> str:
    """What a drawing that `draw` wrote as SVG is of; empty where there is none."""
    if not path.exists():
        return ""
    found = re.search(r"<dc:description>(\w+)</dc:description>", path.read_text())
    return found[1] if found else ""
