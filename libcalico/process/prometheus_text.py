"""Metrics in the text format that Prometheus reads.

Calico's counters (docs/reference/dataplane.md#metrics) have no `_total` behind their names.
Prometheus's library for Python insists on it, so this module writes the page itself. That library
also brings the servers and clients of HTTP: 3.5 MiB in each agent of a node.
Tested in tests/felix/reports/test_metrics.py and tests/libcalico/test_counters.py.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["counter", "gauge", "summary"]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric. `count` and `quantiles` belong to a summary, whose `value` is the sum.

    Samples of one name come together. `typed`: no sample, only its type. `quantiles`: values by
    quantile from 0 to 1.
    """

    name: str
    help: str
    value: float
    kind: Kind = "gauge"
    count: int = 0
    labels: Mapping[str, str] | None = None
    typed: bool = False
    quantiles: Mapping[float, float] | None = None


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
        labels = figure.labels or {}
        shown = _shown(labels)
        if figure.kind == "summary":
            for quantile, value in (figure.quantiles or {}).items():
                of_quantile = _shown({**labels, "quantile": f"{quantile:g}"})
                lines.append(f"{figure.name}{of_quantile} {_number(value)}")
            lines.append(f"{figure.name}_sum{shown} {_number(figure.value)}")
            lines.append(f"{figure.name}_count{shown} {figure.count}")
        else:
            lines.append(f"{figure.name}{shown} {_number(figure.value)}")
    return "\n".join(lines) + "\n"


def _shown(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _number(value: float) -> str:
    """Python writes `nan`; Prometheus reads it, and its own libraries write `NaN`."""
    return "NaN" if value != value else repr(float(value))


def labelled(
    name: str,
    meaning: str,
    samples: Iterable[tuple[Mapping[str, str], float]],
    kind: Kind = "gauge",
) -> Iterator[Figure]:
    """One metric: a value for each set of labels. Without any it is still named."""
    yield Figure(name, meaning, 0, kind, typed=True)
    for labels, value in samples:
        yield Figure(name, meaning, value, kind, labels=labels)


def page(figures: Iterable[Figure], *, process: bool = True) -> bytes:
    """The page of these figures. `process`: with the metrics `process_*` of this process."""
    return text([*figures, *(_of_process() if process else ())]).encode()


def _of_process() -> Iterator[Figure]:
    """What Prometheus's libraries say of every process, by their names (proc(5))."""
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    booted = next(
        int(line.split()[1])
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("btime ")
    )
    yield Figure("process_virtual_memory_bytes", "Virtual memory in bytes.", int(words[20]))
    resident = int(words[21]) * resource.getpagesize()
    yield Figure("process_resident_memory_bytes", "Resident memory in bytes.", resident)
    yield Figure(
        "process_start_time_seconds",
        "When the process began, in seconds since the epoch.",
        booted + int(words[19]) / ticks,
    )
    spent = (int(words[11]) + int(words[12])) / ticks
    yield Figure("process_cpu_seconds_total", "CPU time, in seconds.", spent, "counter")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield Figure("process_open_fds", "Open descriptors.", len(os.listdir("/proc/self/fd")))
    yield Figure("process_max_fds", "How many descriptors may be open.", limit)
