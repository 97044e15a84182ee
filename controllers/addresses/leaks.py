"""Which addresses of the cluster are no longer in use, judged from pods and nodes. Pure.

The node's own collector sees links and sandboxes and so is the better judge, while it lives. Here
is judged what it cannot: nodes that are gone, and pods that Kubernetes does not have
(docs/reference/data-model.md#collection-of-leaked-addresses). What is judged is a handle: all of
its addresses leak, or none is released.

Invariants (tests/controllers/test_leaks.py):
  LEAK-1  Missing information means in use: no handle, no `node`, neither pod nor tunnel, a virtual
          machine's, no sequence number while the node exists, a node outside Kubernetes.
  LEAK-2  A handle is released only when it was seen unused twice, `GAP` seconds apart at least,
          as the very same allocations; while its node exists after the grace period, too.
  LEAK-3  A tunnel's address is released only when its node is gone and nothing valid is left there.
  LEAK-8  That Kubernetes tells another address proves nothing against a later sandbox of the pod
          than the one that has it: the kubelet did not tell yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from ipam.collector.leak_evidence import Held
from ipam.records import blocks
from ipam.records.blocks import Allocation
from libcalico.model import Block
from libcalico.names import split_handle

GAP = 10.0
"""Seconds between the two observations at least."""


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod as far as its addresses go; `addresses` is empty while it has none."""

    node: str
    addresses: frozenset[str]
    evicted: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """`nodes`: Calico Nodes, each with its name in Kubernetes (empty: it is not there)."""

    pods: Mapping[tuple[str, str], PodView]
    nodes: Mapping[str, str]
    kubernetes: frozenset[str]

    def is_gone(self, node: str) -> bool:
        """Whether a node is gone: no Node, or one that Kubernetes lost."""
        own = self.nodes.get(node)
        return own is None or (own != "" and own not in self.kubernetes)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A handle that seems to be unused."""

    handle_id: str
    allocations: frozenset[Held]
    node: str
    node_gone: bool
    pod: tuple[str, str] | None
    reason: str


ANOTHER = "its pod has another address"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`unused` by handle; `tenants`: nodes that are gone and on which something stays valid."""

    unused: Mapping[str, Candidate] = field(default_factory=dict)
    tenants: frozenset[str] = frozenset()


def pod_of(allocation: Allocation) -> tuple[str, str] | None:
    """Namespace and name of the pod that it was made for."""
    namespace, pod = (allocation.attributes.get(one, "") for one in ("namespace", "pod"))
    return (namespace, pod) if namespace and pod else None


def unused(address: str, node: str, pod: PodView | None, view: ClusterView) -> str:
    """Why a pod's address is not its any more, or empty. `pod` is as Kubernetes has it."""
    if pod is None:
        return "there is no such pod"
    if pod.evicted:
        return "its pod was evicted"
    if _is_elsewhere(address, node, pod, view):
        return f"its pod is on {pod.node}"
    if pod.addresses and address not in pod.addresses:
        return ANOTHER
    return ""


def _is_elsewhere(address: str, node: str, pod: PodView, view: ClusterView) -> bool:
    """Whether the pod runs on another node than the one that its address was taken on.

    With a Node goes the name that Kubernetes has for it. Then a pod may still be there that has the
    address, or whose node is no Node's: Kubernetes may call the one that is gone so.
    """
    own = view.nodes.get(node)
    if not pod.node or pod.node == (own or node):
        return False
    return bool(own) or (address not in pod.addresses and pod.node in view.nodes.values())


def _living(
    handles: Mapping[str, list[tuple[Allocation, IPv4Network | IPv6Network]]], view: ClusterView
) -> dict[tuple[str, str], dict[str, str]]:
    """By pod, the containers with an address that Kubernetes tells, and when they got it.

    Kubernetes tells the addresses of a pod's first network alone. One of another network is that
    of a living pod if its container is; and where the first network is no network of ours, what
    Kubernetes tells proves nothing.
    """
    by_pod: dict[tuple[str, str], dict[str, str]] = {}
    for handle_id, members in handles.items():
        for one, _ in members:
            pod = pod_of(one)
            known = view.pods.get(pod) if pod else None
            if pod and known and not known.evicted and str(one.address) in known.addresses:
                by_pod.setdefault(pod, {})[split_handle(handle_id)[1]] = _since(one)
    return by_pod


def _since(allocation: Allocation) -> str:
    """When it was made, as Go writes a time: of one node's the later text is the later time."""
    return allocation.attributes.get("timestamp", "")


def judge(stored: Iterable[Block], view: ClusterView) -> Judgement:
    """Every handle of the cluster that may be released."""
    handles: dict[str, list[tuple[Allocation, IPv4Network | IPv6Network]]] = {}
    for block in stored:
        if blocks.problem(block):
            continue
        for one in blocks.allocations(block):
            handles.setdefault(one.handle_id, []).append((one, blocks.network(block)))
    living = _living(handles, view)
    verdicts: dict[str, Candidate] = {}
    tunnels: dict[str, Candidate] = {}
    tenants: set[str] = set()
    for handle_id, members in handles.items():
        nodes = {one.attributes.get("node", "") for one, _ in members}
        candidate = _candidate(handle_id, members, view, living)
        if candidate is None:
            tenants |= {node for node in nodes if node and view.is_gone(node)}
        elif candidate.pod is None:
            tunnels[handle_id] = candidate
        else:
            verdicts[handle_id] = candidate
    for handle_id, candidate in tunnels.items():
        if candidate.node not in tenants:
            verdicts[handle_id] = candidate
    return Judgement(verdicts, frozenset(tenants))


def _candidate(
    handle_id: str,
    members: list[tuple[Allocation, IPv4Network | IPv6Network]],
    view: ClusterView,
    living: Mapping[tuple[str, str], Mapping[str, str]],
) -> Candidate | None:
    allocations = [one for one, _ in members]
    first = allocations[0]
    node = first.attributes.get("node", "")
    if not handle_id or not node or any(one.attributes.get("node") != node for one in allocations):
        return None
    if any(key.startswith("vm") for one in allocations for key in one.attributes):
        return None
    gone = view.is_gone(node)
    if view.nodes.get(node) == "" or (not gone and any(a.sequence is None for a in allocations)):
        return None
    allocated = frozenset(Held(one.address, one.sequence, cidr) for one, cidr in members)
    if all(one.attributes.get("type", "").endswith("TunnelAddress") for one in allocations):
        return (
            Candidate(handle_id, allocated, node, gone, None, "its node is gone") if gone else None
        )
    pod = pod_of(first)
    if pod is None or any(pod_of(one) != pod for one in allocations):
        return None
    reasons = [unused(str(a.address), node, view.pods.get(pod), view) for a in allocations]
    containers = living.get(pod, {})
    lives = split_handle(handle_id)[1] in containers
    newest = max(containers.values(), default="")
    newer = "" < newest < min(map(_since, allocations))
    if (ANOTHER in reasons and (lives or not containers or newer)) or (
        lives and node not in view.nodes
    ):
        return None
    return Candidate(handle_id, allocated, node, gone, pod, reasons[0]) if all(reasons) else None


class Watchlist:
    """Since when each handle looks unused (LEAK-2). Times are of one monotonic clock."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._since: dict[tuple[str, frozenset[Held]], float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def observe(self, candidates: Iterable[Candidate], now: float) -> list[Candidate]:
        """The candidates that this look confirms; others are forgotten."""
        current = {(one.handle_id, one.allocations): one for one in candidates}
        self._since = {key: self._since.get(key, now) for key in current}
        return [one for key, one in current.items() if self._is_due(one, now - self._since[key])]

    def _is_due(self, candidate: Candidate, age: float) -> bool:
        if candidate.node_gone:
            return age >= GAP
        return self._grace > 0 and age >= max(self._grace, GAP)
