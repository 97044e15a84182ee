"""Which of a node's addresses are provably dead, and why every other one is in use.

An address leaks when its pod ended without a DEL: the node lost power, or another release
wrote the allocation and not the endpoint. The node itself is the best judge, for it alone
sees its links and its runtime's sandboxes. What is judged is a handle, that is
everything one container holds; its addresses go together or stay together.

Invariants (tests/ipam/test_collector.py, tests/ipam/model/test_planted.py):
  IPAM-20  Only allocations whose `node` attribute is this node's are judged, in whichever
           block they lie; what this node's blocks lend to others is the others'.
  IPAM-21  Missing information means in use: no links read, no sandbox list where one is
           configured, no sequence number, a handle that names no container, a call in progress.
           A handle with several dots may name several containers: none of them may live.
  IPAM-22  The container of an endpoint that names one of the addresses is dead if its host
           interface is gone and, where the sandboxes are known, its sandbox too. Without an
           endpoint (`calico-ipam` under another main plugin) only the runtime's word counts:
           its list of valid attachments, if no call of the container came since, or, for a
           pod, its sandbox list.
  IPAM-23  Dead is what was found dead twice, as the very same allocations.

Pure. Source: architecture, "One atomic write per pod"; docs/reference/data-model.md#block,
#attributes-and-handles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ipam.records import blocks
from ipam.records.blocks import Allocation, IPAddress
from ipam.records.endpoints import addresses_of
from libcalico.datastore.interface import Entry
from libcalico.model.keys import BlockKey, IPNetwork, Key
from libcalico.names import containers_of, split_handle


@dataclass(frozen=True, slots=True)
class Listed:
    """The runtime's word on one network: these containers have valid attachments."""

    network: str
    containers: frozenset[str]


@dataclass(frozen=True, slots=True)
class LeakEvidence:
    """The node's observations at one moment; None where it could not look.

    `interfaces` are the names of the host's links, `sandboxes` the ids that the runtime
    knows in any state, `busy` the containers with a call in progress, `called` those
    with a call since the list came.
    """

    interfaces: frozenset[str] | None
    sandboxes: frozenset[str] | None = None
    sandboxes_configured: bool = False
    busy: frozenset[str] = frozenset()
    called: frozenset[str] = frozenset()
    listed: Listed | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """One address as it was allocated: the sequence number tells it from a successor's."""

    address: IPAddress
    sequence: int | None
    block: IPNetwork


@dataclass(frozen=True, slots=True)
class Suspect:
    """The allocations of one dead container, and the revisions of its endpoints."""

    handle_id: str
    container_id: str
    allocations: frozenset[Held]
    endpoints: Mapping[Key, int]
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """`dead` by handle; `kept` says of each other handle why it is in use."""

    dead: Mapping[str, Suspect] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)


def judge(
    node: str, block_entries: Iterable[Entry], endpoints: Iterable[Entry], evidence: LeakEvidence
) -> Judgement:
    """Judge every handle that holds an address of `node`; `endpoints` are the node's own."""
    holders: dict[str, list[tuple[Allocation, IPNetwork]]] = {}
    for entry in block_entries:
        assert isinstance(entry.key, BlockKey)
        if blocks.problem(entry.value):
            continue  # what it holds is not known; `calicoctl ipam check` names it
        for allocation in blocks.allocations(entry.value):
            holders.setdefault(allocation.handle_id, []).append((allocation, entry.key.cidr))
    by_container: dict[str, list[Entry]] = {}
    for entry in endpoints:
        if entry.value.spec.node == node:
            by_container.setdefault(entry.value.spec.containerID, []).append(entry)
    dead: dict[str, Suspect] = {}
    kept: dict[str, str] = {}
    for handle_id, members in holders.items():
        allocations = [allocation for allocation, _ in members]
        if not any(a.attributes.get("node") == node for a in allocations):
            continue
        network, container = split_handle(handle_id)
        containers = containers_of(handle_id) if network else frozenset()
        known = [endpoint for one in containers for endpoint in by_container.get(one, ())]
        own = _naming(known, allocations)
        reason = _in_use(node, containers, allocations, evidence)
        proof = ""
        if not reason:
            proof, reason = _proof(network, containers, own, allocations, evidence)
        if reason:
            kept[handle_id] = reason
            continue
        allocated = frozenset(Held(a.address, a.sequence, cidr) for a, cidr in members)
        revisions = {entry.key: entry.revision for entry in own}
        container = own[0].value.spec.containerID if own else container
        dead[handle_id] = Suspect(handle_id, container, allocated, revisions, proof)
    return Judgement(dead, kept)


def _naming(endpoints: Iterable[Entry], allocations: Sequence[Allocation]) -> list[Entry]:
    """The endpoints of the container, if one of them names one of the addresses.

    Another network of the same container may have another main plugin (`calico-ipam` under
    macvlan, say): the cable of its first interface says nothing about those addresses.
    """
    texts = {str(allocation.address) for allocation in allocations}
    known = list(endpoints)
    named = {text.partition("/")[0] for one in known for text in one.value.spec.ipNetworks}
    return known if texts & named else []


def _in_use(
    node: str, containers: Set[str], allocations: Sequence[Allocation], evidence: LeakEvidence
) -> str:
    """Why the handle is not even looked at, or an empty text (IPAM-20, IPAM-21)."""
    if any(a.attributes.get("node") != node for a in allocations):
        return "another node holds addresses of the same handle"
    if any("type" in a.attributes for a in allocations):
        return "it is no container's address"
    if any(key.startswith("vm") for a in allocations for key in a.attributes):
        return "a virtual machine keeps its address"
    if not containers:
        return "its handle names no container"
    if any(a.sequence is None for a in allocations):
        return "its allocation has no sequence number"
    if containers & evidence.busy:
        return "a call of its container is in progress"
    if evidence.sandboxes_configured and evidence.sandboxes is None:
        return "the runtime's sandbox list could not be read"
    if evidence.sandboxes is not None and containers & evidence.sandboxes:
        return "its sandbox exists"
    return ""


def _proof(
    network: str,
    containers: Set[str],
    own: Sequence[Entry],
    allocations: Sequence[Allocation],
    evidence: LeakEvidence,
) -> tuple[str, str]:
    """(proof of death, "") or ("", why in use) (IPAM-22)."""
    listed = evidence.listed if evidence.listed and evidence.listed.network == network else None
    if listed and containers & listed.containers:
        return "", "the runtime lists its attachment as valid"
    if own:
        names = {entry.value.spec.interfaceName for entry in own}
        if evidence.interfaces is None:
            return "", "the host's links could not be read"
        if "" in names:
            return "", "its endpoint names no host interface"
        if standing := sorted(names & evidence.interfaces):
            return "", f"host interface {standing[0]} exists"
        proof = f"host interface {', '.join(sorted(names))} does not exist"
        if evidence.sandboxes is not None:
            proof += ", nor does the sandbox"
        return proof, ""
    if listed and containers & evidence.called:
        return "", "a call of its container came after the runtime's list"
    if listed:
        return "it has no endpoint and the runtime's list of valid attachments lacks it", ""
    # The sandbox list knows pods only: a container of another tool is not in it while it lives.
    pods = all(a.attributes.get("pod") and a.attributes.get("namespace") for a in allocations)
    if evidence.sandboxes is not None and pods:
        return "it has no endpoint and no sandbox", ""
    return "", "it has no endpoint, and nothing here proves its death"


def confirmed(first: Judgement, second: Judgement) -> list[Suspect]:
    """Those found dead both times as the same allocations, by handle (IPAM-23)."""
    return [
        suspect
        for handle_id, suspect in sorted(second.dead.items())
        if (before := first.dead.get(handle_id)) and before.allocations == suspect.allocations
    ]


def widowed(
    node: str,
    block_entries: Iterable[Entry],
    endpoints: Iterable[Entry],
    pools: Iterable[IPNetwork],
) -> list[tuple[Key, IPAddress]]:
    """Endpoints of the node with an address that is not allocated to their container.

    They are reported, never removed: their pod may run, and only its DEL ends it.
    """
    owner = {
        allocation.address: containers_of(allocation.handle_id)
        for entry in block_entries
        for allocation in blocks.allocations(entry.value)
    }
    ours = list(pools)
    endpoint_addresses: list[tuple[Key, IPAddress]] = []
    for entry in endpoints:
        spec = entry.value.spec
        if spec.node != node or not spec.containerID:
            continue
        for address in addresses_of(entry):
            if not any(address.version == p.version and address in p for p in ours):
                continue  # another plugin's address
            if spec.containerID not in owner.get(address, ()):
                endpoint_addresses.append((entry.key, address))
    return endpoint_addresses
