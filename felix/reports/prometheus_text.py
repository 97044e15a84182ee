"""Metrics in the text format that Prometheus reads.

Calico's counters (docs/reference/dataplane.md#metrics) have no `_total` behind their names.
Prometheus's library for Python insists on it, so this module writes the page itself.
Tested in tests/felix/reports/test_metrics.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "summary"]
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric. `count` belongs to a summary, whose `value` is the sum.

    Samples of one name come together. `typed`: no sample, only its type.
    """

    name: str
    help: str
    value: float
    kind: Kind = "gauge"
    count: int = 0
    labels: Mapping[str, str] | None = None
    typed: bool = False


def text(figures: Iterable[Figure]) -> str:
    """Figures in the format that Prometheus reads."""
    lines = []
    before = ""
    for figure in figures:
        if figure.name != before:
            lines.append(f"# HELP {figure.name} {figure.help}")
            lines.append(f"# TYPE {figure.name} {figure.kind}")
        before = figure.name
        if figure.typed:
            continue
        labels = ",".join(
            f'{name}="{value.translate(_ESCAPED)}"' for name, value in (figure.labels or {}).items()
        )
        shown = f"{{{labels}}}" if labels else ""
        if figure.kind == "summary":
            lines.append(f"{figure.name}_sum{shown} {float(figure.value)!r}")
            lines.append(f"{figure.name}_count{shown} {figure.count}")
        else:
            lines.append(f"{figure.name}{shown} {float(figure.value)!r}")
    return "\n".join(lines) + "\n"


def page(figures: Iterable[Figure], *, process: bool) -> bytes:
    """The page of these figures. `process`: with the metrics `process_*` of this process."""
    return (text(figures) + (_process_text() if process else "")).encode()


def _process_text() -> str:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()
