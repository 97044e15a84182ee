"""Felix's metrics, under Calico's names where Calico has them.

A scrape reads the main loop's own figures, so a node that serves no metrics pays nothing. A metric
of Calico's that is not measured is not served; docs/metrics.md says why. Metrics of our own begin
with `muslin_`. Tested in tests/felix/reports/test_metrics.py and tests/fanout/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from felix.calc.last_readable import Unreadable
from felix.dataplane.loop import Dataplane
from felix.reports.audit import Audit
from felix.reports.metrics_dataplane import of_dataplane, of_nflog, of_programs, of_rules
from libcalico.datastore.syncer import Syncer
from libcalico.model import Key
from libcalico.process.prometheus_text import Figure, labelled
from libcalico.process.summaries import Summary


@dataclass(slots=True)
class Taken:
    """What the datastore sent, and for how long the agent worked and waited.

    `batches`: seconds that the calculation took for each; `programs`: for each that was run.
    """

    updates: int = 0
    batches: Summary = field(default_factory=Summary)
    programs: Summary = field(default_factory=Summary)

    def add(self, updates: int, seconds: float) -> None:
        """Count one more batch."""
        self.updates += updates
        self.batches.observe(seconds)


def figures(plane: Dataplane, known: Mapping[str, int], taken: Taken, audit: Audit) -> list[Figure]:
    """Every metric. `known`: the number of objects in the datastore by family."""
    return [
        *_calculation(plane, known, taken),
        *of_dataplane(plane),
        *of_rules(plane.rules),
        *of_programs(taken.programs),
        *of_nflog(),
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
    yield taken.batches.figure(
        "felix_calc_graph_update_time_seconds",
        "Time that the calculation took for batches of them.",
    )
    messages = plane.state.messages
    yield Figure(
        "felix_calc_graph_output_events",
        "What the calculation handed to the data plane, of all kinds.",
        messages.total(),
        "counter",
    )
    yield from labelled(
        "felix_int_dataplane_messages",
        "The same, by kind.",
        (({"type": kind}, number) for kind, number in sorted(messages.items())),
        "counter",
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
    started = 1 + syncer.relists if syncer is not None else 0
    yield Figure(
        "felix_resyncs_started",
        "Readings of the datastore that began: the first one, and each family's that followed.",
        started,
        "counter",
    )
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
