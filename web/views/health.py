"""View 6, health: everything that needs an eye, worst first, each with what to do.

Tested in tests/web/test_health.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from ipam.admin.findings import Finding as IPAMFinding
from ipam.admin.findings import Kind
from ipam.admin.usage import summarize
from ipam.records.pools import Pool
from libcalico.model.keys import ResourceKey
from web.facts.facts import Facts
from web.views.sessions import sessions
from web.views.state import State

NEARLY_FULL = 0.9
"""The share of a pool's addresses from which on it is worth a word."""
MOST = 500
"""Findings that are listed; how many more there are is said."""
FIXES = {
    Kind.LEAKED: "calicoctl ipam check -o report.json, then calicoctl ipam release --from-report",
    Kind.DOUBLE_OWNER: "end one of the two pods; a new start gets an address of its own",
    Kind.NOT_ALLOCATED: "restart calico-cni on the node: it claims what its pods use",
    Kind.NOT_IN_POOL: "add a pool that holds the address, or let the pods start anew",
    Kind.UNREADABLE: "calicoctl get KIND NAME -o yaml shows it; calicoctl replace writes it anew",
    Kind.NODE_MISSING: "kube-controllers release them; without: calicoctl delete node NAME",
}
LOOK = "calicoctl ipam check --show-problem-ips"


class Severity(IntEnum):
    """How much it matters: its sign stands beside its word."""

    NOTE = 0
    WARNING = 1
    PROBLEM = 2

    @property
    def word(self) -> str:
        """`problem`."""
        return self.name.lower()

    @property
    def sign(self) -> str:
        """A sign of a shape of its own."""
        return {Severity.NOTE: "○", Severity.WARNING: "▲", Severity.PROBLEM: "✕"}[self]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: what it is about, what is wrong, what to do, and the view that shows it."""

    severity: Severity
    subject: str
    text: str
    fix: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """Everything found; `unknown` says what could not be looked at."""

    findings: tuple[Finding, ...]
    more: int
    unknown: tuple[str, ...]
    events: tuple[tuple[str, str, str, str, str], ...]

    def count(self, severity: Severity) -> int:
        """How many of a severity are listed."""
        return sum(one.severity is severity for one in self.findings)


def health(facts: Facts) -> Health:
    """Judge the facts."""
    result = [
        *_objects(facts),
        *_processes(facts),
        *_sessions(facts),
        *_addresses(facts),
        *_pools(facts),
    ]
    result.sort(key=lambda one: (-one.severity, one.subject, one.text))
    events = tuple(
        (one.when, one.component, one.subject, one.reason, f"{one.message} ({one.count} times)")
        for one in facts.events or ()
    )
    return Health(tuple(result[:MOST]), max(0, len(result) - MOST), tuple(_unknown(facts)), events)


def _objects(facts: Facts) -> Iterator[Finding]:
    if facts.cluster.datastoreReady is False:
        yield Finding(
            Severity.PROBLEM,
            "datastore",
            "is locked: no pod can start (ClusterInformation default, datastoreReady false)",
            "calicoctl datastore migrate unlock, once the migration has ended",
        )
    for text in dict.fromkeys(facts.unreadable):
        subject, _, rest = text.partition(" cannot be ")
        fix = "calicoctl get shows it; calicoctl replace writes it anew"
        yield Finding(Severity.PROBLEM, subject, f"cannot be {rest}", fix)
    for node, source, reason in facts.topology.refused:
        text = f"{source} is not held: {reason}"
        yield Finding(Severity.PROBLEM, node, text, "correct the object", f"/map?node={node}")


def _processes(facts: Facts) -> Iterator[Finding]:
    for node, word in sorted(facts.words.items()):
        link = f"/map?node={node}"
        for one in word.processes:
            if not one.running and not word.error:
                fix = f"start it: kubectl -n kube-system delete pod of calico-node on {node}"
                text = f"{one.name} does not run. {one.last_seen()}"
                yield Finding(Severity.PROBLEM, node, text, fix, link)
        for process, subject, reason in word.conditions:
            text = f"{process}: {subject}: {reason}"
            yield Finding(Severity.WARNING, node, text, "as the condition says", link)


def _sessions(facts: Facts) -> Iterator[Finding]:
    for node, configured in sessions(facts).items():
        for one in configured:
            if one.state is not State.DOWN:
                continue
            what = ": ".join(filter(None, (one.cause or one.info or "down", one.seen)))
            text = f"session with {one.peer} ({one.address}) is down: {what}"
            yield Finding(Severity.PROBLEM, node, text, one.fix, f"/map?node={node}")


def _addresses(facts: Facts) -> Iterator[Finding]:
    yield from _listed(facts.report.problems, Severity.PROBLEM)
    yield from _listed(
        (one for one in facts.report.notes if one.kind is Kind.NODE_MISSING), Severity.WARNING
    )


def _listed(result: Iterable[IPAMFinding], severity: Severity) -> Iterator[Finding]:
    for one in result:
        link = f"/addresses?find={one.subject}"
        fix = FIXES.get(one.kind, LOOK)
        yield Finding(severity, one.subject, f"{one.kind.value}: {one.text}", fix, link)


def _pools(facts: Facts) -> Iterator[Finding]:
    pools: tuple[Pool, ...] = facts.snapshot.pools
    for usage in summarize(pools, facts.snapshot.blocks, facts.snapshot.reservations):
        share = 1 - usage.free / usage.capacity if usage.capacity else 0
        pool = ResourceKey("IPPool", usage.name)
        if share >= NEARLY_FULL and pool in facts.world.objects:
            text = f"pool {usage.cidr} is {share:.0%} used: {usage.free} addresses are free"
            fix = "add a pool; pods that find no address do not start"
            link = f"/addresses?pool={usage.name}"
            yield Finding(Severity.WARNING, usage.name, text, fix, link)


def _unknown(facts: Facts) -> Iterator[str]:
    silent = [node for node in facts.nodes if node not in facts.words]
    if facts.aggregator:
        yield facts.aggregator
    if silent:
        reported = sum(node in facts.statuses for node in silent)
        yield (
            f"{len(silent)} of {len(facts.nodes)} nodes: processes, conditions and causes are not"
            f" known here; {reported} of these have a CalicoNodeStatus, which tells the states of"
            " sessions. An aggregator (Deployment calico-goldmane) brings the rest."
        )
    if facts.events is None:
        yield "Events are not shown: the datastore is not the Kubernetes API."
