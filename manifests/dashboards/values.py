"""A board and its panels, and how their queries are written.

`instance` is the node's name (docs/metrics.md). Tested in tests/monitoring/test_panels.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["short", "s", "µs", "ops", "bytes", "percentunit"]
HERE = '{instance=~"$instance"}'
COMMIT, BATCH = "felix_int_dataplane_apply_time_seconds", "felix_calc_graph_update_time_seconds"
STAGES, CALLS = "calico_cni_stage_seconds", "calico_cni_calls_total"


@dataclass(frozen=True, slots=True)
class Panel:
    """A drawing over time. `queries`: PromQL, and how a line is named in the legend."""

    title: str
    unit: Unit
    queries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `name` is in its file's name and in its unique id."""

    name: str
    title: str
    panels: tuple[Panel, ...]


def each(metric: str, legend: str = "{{instance}}", labels: str = "") -> tuple[str, str]:
    """The metric of each chosen node."""
    more = f", {labels}" if labels else ""
    return f'{metric}{{instance=~"$instance"{more}}}', legend


def rate(metric: str, legend: str = "{{instance}}", labels: str = "") -> tuple[str, str]:
    """The same of a counter, for a second, in the mean of five minutes."""
    return f"rate({each(metric, labels=labels)[0]}[5m])", legend


def added(by: str, query: tuple[str, str], legend: str) -> tuple[str, str]:
    """The sum of a query by these labels."""
    return f"sum by ({by}) ({query[0]})", legend


def worst(metric: str, quantile: str, legend: str, labels: str = "") -> tuple[str, str]:
    """A quantile cannot be added up: the worst node's."""
    more = f', quantile="{quantile}"' + (f", {labels}" if labels else "")
    return f'max(max_over_time({metric}{{instance=~"$instance"{more}}}[5m]))', legend


def of_agents(query: tuple[str, str]) -> tuple[str, str]:
    """Of a query for all processes the lines of felix, bgp and cni."""
    pages = "(felix_host or calico_bgp_prefixes or calico_cni_in_flight)"
    return f"{query[0]} and on (instance, job) {pages}", query[1]
