"""Felix's metrics, with Calico's names where Calico has them; read from the state on demand.

Nothing is counted twice: a scrape reads the main loop's own figures, so a node that serves no
metrics pays nothing. Names: dataplane reference 7.4; ours begin with `muslin_`.
Tested in tests/felix/test_forwarding.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from felix.dataplane.backend import NATIVE, Tables
from felix.dataplane.loop import Dataplane
from felix.dataplane.nftables import NftTables

WAITING, RESYNCING, IN_SYNC = 1, 2, 3


def figures(plane: Dataplane) -> list[tuple[str, str, float, bool]]:
    """(name, help, value, is a counter) of every metric."""
    state, tables = plane.state, plane.tables
    policy = plane.calc.policy.figures()
    resync = IN_SYNC if state.applied else (RESYNCING if plane.calc.in_sync else WAITING)
    return [
        ("felix_resync_state", "1 waiting, 2 reading, 3 in sync.", resync, False),
        ("felix_active_local_endpoints", "Workload endpoints here.", len(state.active), False),
        ("felix_active_local_policies", "Policies here.", policy["active_policies"], False),
        ("felix_active_local_selectors", "Selectors here.", policy["active_selectors"], False),
        ("felix_cluster_num_policies", "Policies known.", policy["policies"], False),
        ("felix_cluster_num_hosts", "Nodes known.", len(plane.calc.nodes), False),
        ("felix_int_dataplane_failures", "Commits that failed.", state.failed_applies, True),
        ("felix_route_table_num_routes", "Routes of ours.", len(plane.routes.table.actual), False),
        ("felix_ipsets_calico", "IP sets of ours.", plane.sets, False),
        *_rules(tables),
        ("muslin_felix_route_writes", "Routes written or removed.", state.route_writes, True),
        ("muslin_felix_ipset_writes", "Sets changed.", plane.set_writes, True),
        ("muslin_felix_link_writes", "Link settings repaired.", plane.interfaces.writes, True),
        ("muslin_felix_rule_drift", "Chains found changed.", tables.drifted if tables else 0, True),
        ("muslin_felix_paths", "Paths that bgp offered.", len(plane.paths.paths), False),
        ("muslin_felix_refused_paths", "Paths not taken.", len(plane.remote.complaints()), False),
        ("muslin_felix_route_conflicts", "Foreign routes in the way.", _conflicts(plane), False),
        ("felix_policy_conditions", "Policy not enforced as written.", _conditions(plane), False),
        (
            "muslin_felix_policy_operations",
            "Work on policy.",
            plane.calc.policy.operations.total,
            True,
        ),
        ("muslin_felix_rule_renders", "Chains rendered.", plane.renders, True),
        ("muslin_felix_broken_objects", "Objects not understood.", len(plane.calc.broken), False),
    ]


def _rules(tables: Tables | None) -> list[tuple[str, str, float, bool]]:
    """Of the back end in use, by the names that Calico has for it; the others are not there."""
    native = tables is not None and tables.name == NATIVE
    family = "nft" if native else "iptables"
    reads, writes = ("list_calls", "calls") if native else ("save_calls", "restore_calls")
    found: list[tuple[str, str, float, bool]] = [
        (f"felix_{family}_chains", "Chains of ours.", tables.chains if tables else 0, False),
        (f"felix_{family}_rules", "Rules of ours.", tables.rules if tables else 0, False),
        (f"felix_{family}_{reads}", "Table reads.", tables.saves if tables else 0, True),
        (f"felix_{family}_{writes}", "Table writes.", tables.restores if tables else 0, True),
    ]
    if isinstance(tables, NftTables):
        found.append(("felix_nft_maps", "Verdict maps of ours.", tables.maps, False))
    return found


def _conflicts(plane: Dataplane) -> int:
    return len(plane.routes.conflicts)


def _conditions(plane: Dataplane) -> int:
    return len(plane.calc.policy.conditions.keys() | plane.degraded().keys())


class Collector:
    """Hands `figures` to prometheus_client at each scrape."""

    def __init__(self, plane: Dataplane) -> None:
        self._plane = plane

    def collect(self) -> Iterator[Any]:
        """The metric families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, text, value, counter in figures(self._plane):
            yield (CounterMetricFamily if counter else GaugeMetricFamily)(name, text, value=value)


def register(plane: Dataplane) -> None:
    """Add felix's metrics to the default registry."""
    from prometheus_client import REGISTRY

    REGISTRY.register(Collector(plane))
