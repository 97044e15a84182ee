"""View 5, pods' starts: where the time of each CNI call went, and p50 and p99 of each stage.

Tested in tests/web/test_starts.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from web.facts.facts import Facts
from web.facts.words import Word

COMMANDS = ("ADD", "DEL", "CHECK")
NO_WORD = (
    "No node's word on its pods' starts is here. An aggregator (Deployment calico-goldmane) asks"
    " nodes for it; without one this page reads /var/run/calico/status/cni.json of the machine it"
    " runs on, and `--status NODE=FOLDER` names folders of more nodes."
)


@dataclass(frozen=True, slots=True)
class Start:
    """One call. `stages` are (name, milliseconds) in order."""

    node: str
    command: str
    subject: str
    total: float
    stages: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class StageLine:
    """One stage over many calls, in milliseconds."""

    name: str
    count: int
    p50: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class Starts:
    """The calls, slowest first, and their stages. `missing`: why there are none."""

    calls: tuple[Start, ...]
    stages: tuple[StageLine, ...]
    nodes: tuple[str, ...]
    missing: str = ""


def starts(facts: Facts, command: str = "ADD", node: str = "") -> Starts:
    """The last calls of a command, of one node or all."""
    words = [word for name, word in sorted(facts.words.items()) if node in ("", name)]
    calls = sorted(
        (call for word in words for call in _calls(word) if call.command == command),
        key=lambda call: -call.total,
    )
    nodes = tuple(sorted(facts.words))
    missing = ""
    if not words:
        missing = NO_WORD
    elif not calls:
        missing = f"No {command} is remembered by {', '.join(word.node for word in words[:5])}."
    return Starts(tuple(calls), tuple(_stages(calls)), nodes, missing)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed (nearest rank); 0.0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _calls(word: Word) -> Iterable[Start]:
    for trace in word.cni.objects("traces"):
        stages = trace.get("stages")
        if not isinstance(stages, dict):
            continue
        yield Start(
            word.node,
            str(trace.get("command", "")),
            str(trace.get("subject", "")),
            _number(trace.get("total_ms")),
            tuple((str(name), _number(value)) for name, value in stages.items()),
        )


def _stages(calls: Sequence[Start]) -> Iterable[StageLine]:
    if not calls:
        return
    yield _line("whole call", [call.total for call in calls])
    names = dict.fromkeys(name for call in calls for name, _ in call.stages)
    for name in names:
        yield _line(name, [value for call in calls for own, value in call.stages if own == name])


def _line(name: str, values: Sequence[float]) -> StageLine:
    p50, p99 = quantile(values, 0.5), quantile(values, 0.99)
    return StageLine(name, len(values), p50, p99, max(values))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
