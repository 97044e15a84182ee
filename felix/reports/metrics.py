"""Felix's metrics, under Calico's names where Calico has them.

A scrape reads the main loop's own figures, so a node that serves no metrics pays nothing. A metric
of Calico's that is not measured is not served. Metrics of our own begin with `muslin_`.
Tested in tests/felix/reports/test_metrics.py and tests/fanout/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from felix.calc.last_readable import Unreadable
from felix.dataplane.loop import Dataplane
from felix.dataplane.rules.backend_mode import NATIVE
from felix.dataplane.rules.iptables import IptablesTables
from felix.dataplane.rules.nftables import NftTables
from felix.reports.audit import Audit
from libcalico.datastore.syncer import Syncer
from libcalico.model import Key
from libcalico.process.prometheus_text import Figure
from linux.programs import WAITED

WAITING, RESYNCING, IN_SYNC = 1, 2, 3


@dataclass(slots=True)
class Taken:
    """Counts of what the datastore sent, and the seconds that its calculation took."""

    updates: int = 0
    batches: int = 0
    seconds: float = 0.0

    def add(self, updates: int, seconds: float) -> None:
        """Count one more batch."""
        self.updates += updates
        self.batches += 1
        self.seconds += seconds


def figures(plane: Dataplane, known: Mapping[str, int], taken: Taken, audit: Audit) -> list[Figure]:
    """Every metric. `known`: the number of objects in the datastore by family."""
    return [
        *_calculation(plane, known, taken),
        *_dataplane(plane),
        *_rules(plane),
        *_own(plane),
        *_audit(audit),
    ]


def _calculation(plane: Dataplane, known: Mapping[str, int], taken: Taken) -> Iterator[Figure]:
    policy = plane.calc.policy.figures()
    operations = plane.calc.policy.operations
    policies = known.get("GlobalNetworkPolicy", 0) + known.get("NetworkPolicy", 0)
    active = len(plane.state.active)
    yield Figure("felix_host", "1; the label says which node.", 1, labels={"host": plane.calc.node})
    yield Figure("felix_active_local_endpoints", "Workload endpoints of this node.", active)
    yield Figure("felix_active_local_policies", "Policies of them.", policy["active_policies"])
    selectors = policy["active_selectors"]
    yield Figure("felix_active_local_selectors", "Selectors that these policies use.", selectors)
    yield Figure("felix_label_index_num_active_selectors", "The same.", selectors)
    indexed = known.get("WorkloadEndpoint", 0) + known.get("HostEndpoint", 0)
    yield Figure("felix_label_index_num_endpoints", "Endpoints that selectors see.", indexed)
    yield Figure(
        "felix_label_index_selector_evals",
        "Selectors held against a label set.",
        operations.evaluations,
        "counter",
    )
    yield Figure(
        "felix_calc_graph_updates_processed",
        "Changes of the datastore taken.",
        taken.updates,
        "counter",
    )
    yield Figure(
        "felix_calc_graph_update_time_seconds",
        "Time that the calculation took for batches of them.",
        taken.seconds,
        "summary",
        taken.batches,
    )
    for name, text, value in (
        ("host_endpoints", "Host endpoints", known.get("HostEndpoint", 0)),
        ("hosts", "Nodes", known.get("Node", 0)),
        ("policies", "Policies", policies),
        ("profiles", "Profiles", known.get("Profile", 0)),
        ("tiers", "Tiers", known.get("Tier", 0)),
        ("workload_endpoints", "Workload endpoints", known.get("WorkloadEndpoint", 0)),
    ):
        yield Figure(f"felix_cluster_num_{name}", f"{text} in the datastore.", value)


def _dataplane(plane: Dataplane) -> Iterator[Figure]:
    state = plane.state
    resync = IN_SYNC if state.applied else (RESYNCING if plane.calc.in_sync else WAITING)
    yield Figure("felix_resync_state", "1 waiting, 2 reading, 3 in sync.", resync)
    yield Figure(
        "felix_int_dataplane_failures",
        "Commits to the kernel that are tried again.",
        state.failed_applies,
        "counter",
    )
    yield Figure(
        "felix_int_dataplane_apply_time_seconds",
        "Time that commits to the kernel took.",
        state.apply_seconds,
        "summary",
        state.applies,
    )
    if state.first_seconds is not None:
        yield Figure(
            "felix_int_dataplane_initial_resync_time_seconds",
            "Time from the start to the first commit that stood.",
            state.first_seconds,
        )
    routes = len(plane.routing.routes)
    yield Figure("felix_route_table_num_routes", "Routes of ours in the kernel.", routes)
    yield Figure("felix_route_table_num_ifaces", "Interfaces with such routes.", len(state.active))
    yield Figure("felix_ipsets_calico", "Sets of addresses that are wanted.", plane.rules.set_count)
    yield Figure(
        "felix_exec_time_micros",
        "Time for which programs were waited for.",
        WAITED.seconds * 1e6,
        "summary",
        WAITED.count,
    )


def _rules(plane: Dataplane) -> Iterator[Figure]:
    """Metrics of the back end in use, under Calico's names for it; there are none of the others."""
    tables = plane.rules.tables
    if tables is None:
        return
    native = tables.name == NATIVE
    family = "nft" if native else "iptables"
    reads, writes = ("list_calls", "calls") if native else ("save_calls", "restore_calls")
    yield Figure(f"felix_{family}_chains", "Chains of ours.", tables.chains)
    yield Figure(f"felix_{family}_rules", "Rules of ours.", tables.rules)
    yield Figure(f"felix_{family}_{reads}", "Reads of rules.", tables.saves, "counter")
    yield Figure(f"felix_{family}_{writes}", "Writes of rules.", tables.restores, "counter")
    reading, writing = ("list_errors", "errors") if native else ("save_errors", "restore_errors")
    not_read, not_written = tables.errors
    yield Figure(f"felix_{family}_{reading}", "Reads that failed.", not_read, "counter")
    yield Figure(f"felix_{family}_{writing}", "Writes that failed.", not_written, "counter")
    sets = "nft_set" if native else "ipset"
    failed = plane.rules.set_errors
    yield Figure(f"felix_{sets}_errors", "Sets that could not be written.", failed, "counter")
    yield Figure(
        "muslin_felix_rule_drift_total", "Chains found changed.", tables.drifted, "counter"
    )
    if isinstance(tables, NftTables):
        yield Figure("felix_nft_maps", "Verdict maps of ours.", tables.maps)
        yield Figure("felix_nft_sets", "Sets of ours.", plane.rules.set_count)
    elif isinstance(tables, IptablesTables):
        lines = tables.lines
        yield Figure("felix_iptables_lines_executed", "Lines written.", lines, "counter")


def _audit(audit: Audit) -> Iterator[Figure]:
    """Metrics of felix's audits."""
    yield Figure("muslin_felix_differences", "Differences that two audits saw.", audit.wrong)
    for name, text, value in (
        ("audits", "Looks at itself.", audit.audits),
        ("audit_seconds", "Processor time of these, in seconds.", audit.seconds),
    ):
        yield Figure(f"muslin_felix_{name}_total", text, value, "counter")


def _own(plane: Dataplane) -> Iterator[Figure]:
    """Metrics that Calico does not have."""
    state, links, mtu = plane.state, plane.links, plane.links.mtu.now
    repairs = links.interfaces.repairs
    policy = plane.calc.policy
    for name, text, count in (
        ("route_writes", "Routes written or removed.", plane.routing.written),
        ("ipset_writes", "Sets changed.", plane.rules.set_writes),
        ("link_writes", "Settings of links written.", links.interfaces.writes),
        ("link_drift", "Settings of links that were right, found changed.", repairs),
        ("tunnel_writes", "Changes of tunnels.", links.tunnels.all_writes + links.mtu.writes),
        ("tunnel_drift", "Of these, of what had been right.", links.tunnels.all_repairs),
        ("policy_operations", "Work on policy.", policy.operations.total),
        ("rule_renders", "Chains rendered.", plane.rules.renders),
    ):
        yield Figure(f"muslin_felix_{name}_total", text, count, "counter")
    conditions = len(policy.conditions.keys() | plane.rules.degraded().keys())
    numbers = policy.figures()
    for name, text, value in (
        ("paths", "Paths that bgp offered.", len(plane.routing.paths.paths)),
        ("refused_paths", "Paths not taken.", len(plane.routing.off_node.learned.complaints())),
        ("route_conflicts", "Foreign routes in the way.", len(plane.routing.routes.conflicts)),
        ("policy_conditions", "Policies not enforced as written.", conditions),
        ("host_endpoints", "Host endpoints of this node.", numbers["host_endpoints"]),
        ("staged_policies", "Staged policies known.", numbers["staged_policies"]),
        ("staged_policies_here", "Those that would act.", numbers["active_staged_policies"]),
        ("staged_matches", "Endpoints that these select, summed.", numbers["staged_matches"]),
        ("broken_objects", "Objects not understood.", len(plane.calc.broken)),
        ("endpoints_in_force", "Endpoints whose policy is in the kernel.", len(state.in_force)),
        ("host_mtu_bytes", "MTU of the host's links.", mtu.host if mtu else 0),
        ("pod_mtu_bytes", "MTU of new pods.", mtu.pod if mtu else 0),
    ):
        yield Figure(f"muslin_felix_{name}", text, value)


def of_datastore(syncer: Syncer | None) -> Iterator[Figure]:
    """How the datastore is followed, 1 or 0; before it is opened it is not."""
    connected, detour = (syncer.connected, syncer.detour) if syncer is not None else (False, "")
    name = "muslin_felix_datastore_connected"
    yield Figure(name, "Whether all that felix follows is followed now.", int(connected))
    name = "muslin_felix_etcd_detour"
    yield Figure(name, "Whether no proxy of ETCD_READ_ENDPOINTS answers.", int(bool(detour)))


def of_unreadable(documents: Mapping[Key, Unreadable]) -> Iterator[Figure]:
    """Documents of policy whose stored bytes cannot be read, at most a hundred by name."""
    yield Figure("muslin_felix_unreadable_documents", "Documents not readable.", len(documents))
    name = "muslin_felix_unreadable_document"
    help_ = "1; which revision is in force, which is stored."
    yield Figure(name, help_, 0, typed=True)
    for key, one in list(documents.items())[:100]:
        in_force = "none" if one.in_force is None else str(one.in_force)
        labels = {"object": str(key), "in_force": in_force, "stored": str(one.stored)}
        yield Figure(name, help_, 1, labels=labels)
