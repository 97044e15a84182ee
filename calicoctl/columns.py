"""Which columns `get` prints for which kind, and how a cell is made from a resource.

Headings and cell texts are Calico's. A pointer that is not set prints `<nil>`. One table:
a new kind is a new row here. Tested in `tests/calicoctl/test_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from libcalico.errors import MuslinError
from libcalico.model import (
    BGPPeer,
    Node,
    Profile,
    StagedKubernetesNetworkPolicy,
    Tier,
    WorkloadEndpoint,
)
from libcalico.model.kinds import Resource
from libcalico.model.resources.policy import Tiered, tier_of

DEFAULT_AS_NUMBER = 64512


@dataclass(frozen=True, slots=True)
class Context:
    """What a cell may need beside its resource: the cluster's AS number."""

    global_as: str = str(DEFAULT_AS_NUMBER)


Cell = Callable[..., str]
"""The text of a cell: of a resource of the kind that the column is of, and the context."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The table of one kind: headings of `-o ps`, of `-o wide`, and every known cell."""

    ps: tuple[str, ...]
    wide: tuple[str, ...]
    cells: dict[str, Cell]


def go_text(value: object) -> str:
    """A value as Go's templates print it: `true`, `<nil>`, floats with `%v`."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _go_float(value)
    return str(value)


def _go_float(value: float) -> str:
    # Go's %v: the shortest digits, with an exponent below 1e-04 and from 1e+06 on.
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    exponent = Decimal(repr(value)).adjusted() if value else 0
    if -4 <= exponent < 6:
        return repr(value).removesuffix(".0")
    mantissa = str(digits[0]) + ("." + "".join(map(str, digits[1:])) if digits[1:] else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _name(resource: Resource, _: Context) -> str:
    return str(resource.metadata.name)


def _namespace(resource: Resource, _: Context) -> str:
    return str(resource.metadata.namespace)


def _spec(attribute: str) -> Cell:
    return lambda resource, _: go_text(getattr(resource.spec, attribute))


def _or(attribute: str, missing: str) -> Cell:
    def cell(resource: Resource, _: Context) -> str:
        value = getattr(resource.spec, attribute)
        return missing if value is None or value == "" else go_text(value)

    return cell


def _joined(attribute: str) -> Cell:
    return lambda resource, _: ",".join(str(item) for item in getattr(resource.spec, attribute))


def _peer_node(resource: BGPPeer, _: Context) -> str:
    return str(resource.spec.node or resource.spec.nodeSelector or "(global)")


def _node_bgp(attribute: str) -> Cell:
    def cell(resource: Node, _: Context) -> str:
        bgp = resource.spec.bgp
        return "" if bgp is None else str(getattr(bgp, attribute) or "")

    return cell


def _node_as(resource: Node, context: Context) -> str:
    bgp = resource.spec.bgp
    if bgp is None:
        return ""
    return f"({context.global_as})" if bgp.asNumber is None else str(bgp.asNumber)


def _labels(resource: Profile, _: Context) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(resource.spec.labelsToApply.items()))


def _order(resource: Tier | Tiered, _: Context) -> str:
    order = resource.spec.order
    return go_text(None if order is None else float(order))


def _tier(resource: Tiered, _: Context) -> str:
    return tier_of(resource)


def joined_short(items: Sequence[str], limit: int = 80) -> str:
    """Items joined by commas, cut to `limit` characters with `...` at the end."""
    text = ",".join(items)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _nats(resource: WorkloadEndpoint, _: Context) -> str:
    return ",".join(f"{{{nat.internalIP} {nat.externalIP}}}" for nat in resource.spec.ipNATs)


def _count(attribute: str) -> Cell:
    return lambda resource, _: str(len(getattr(resource.spec, attribute)))


def _short(attribute: str) -> Cell:
    return lambda resource, _: joined_short(getattr(resource.spec, attribute))


def _pod_selector(resource: StagedKubernetesNetworkPolicy, _: Context) -> str:
    # Kubernetes' generated text of a label selector, which Calico's template prints.
    selector = resource.spec.podSelector
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.matchLabels.items()))
    expressions = "".join(
        "LabelSelectorRequirement{"
        f"Key:{one.key},Operator:{one.operator},Values:[{' '.join(one.values)}],}},"
        for one in selector.matchExpressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def _workload(resource: WorkloadEndpoint, _: Context) -> str:
    return str(resource.spec.workload or resource.spec.pod)


_NAME: dict[str, Cell] = {"NAME": _name}

_NAMESPACED: dict[str, Cell] = _NAME | {"NAMESPACE": _namespace}

_POLICY = ("NAME", "TIER", "ORDER", "SELECTOR")
_POLICY_CELLS: dict[str, Cell] = {
    "TIER": _tier,
    "ORDER": _order,
    "SELECTOR": _spec("selector"),
}
_BGP_CONFIGURATION = ("NAME", "LOGSEVERITY", "MESHENABLED", "ASNUMBER")
_BGP_FILTER = ("NAME", "NUMEXPORTV4", "NUMIMPORTV4", "NUMEXPORTV6", "NUMIMPORTV6")
_BGP_PEER = ("NAME", "PEERIP", "NODE", "ASN")
_CLUSTER = ("NAME", "CLUSTERGUID", "CLUSTERTYPE", "CALICOVERSION", "DATASTOREREADY")

TABLE: dict[str, Columns] = {
    "BGPConfiguration": Columns(
        _BGP_CONFIGURATION,
        _BGP_CONFIGURATION,
        _NAME
        | {
            "LOGSEVERITY": _spec("logSeverityScreen"),
            "MESHENABLED": _or("nodeToNodeMeshEnabled", "-"),
            "ASNUMBER": _or("asNumber", "-"),
        },
    ),
    "BGPFilter": Columns(
        _BGP_FILTER,
        _BGP_FILTER,
        _NAME
        | {
            "NUMEXPORTV4": _count("exportV4"),
            "NUMIMPORTV4": _count("importV4"),
            "NUMEXPORTV6": _count("exportV6"),
            "NUMIMPORTV6": _count("importV6"),
        },
    ),
    "BGPPeer": Columns(
        _BGP_PEER,
        _BGP_PEER,
        _NAME | {"PEERIP": _spec("peerIP"), "NODE": _peer_node, "ASN": _or("asNumber", "0")},
    ),
    "CalicoNodeStatus": Columns(
        ("NAME", "NODE"),
        ("NAME", "NODE", "CLASSES"),
        _NAME | {"NODE": _spec("node"), "CLASSES": _joined("classes")},
    ),
    "ClusterInformation": Columns(
        _CLUSTER,
        _CLUSTER,
        _NAME
        | {
            "CLUSTERGUID": _spec("clusterGUID"),
            "CLUSTERTYPE": _spec("clusterType"),
            "CALICOVERSION": _spec("calicoVersion"),
            "DATASTOREREADY": _spec("datastoreReady"),
        },
    ),
    "FelixConfiguration": Columns(("NAME",), ("NAME",), _NAME),
    "GlobalNetworkPolicy": Columns(("NAME", "TIER"), _POLICY, _NAME | _POLICY_CELLS),
    "GlobalNetworkSet": Columns(("NAME",), ("NAME", "NETS"), _NAME | {"NETS": _short("nets")}),
    "HostEndpoint": Columns(
        ("NAME", "NODE"),
        ("NAME", "NODE", "INTERFACE", "IPS", "PROFILES"),
        _NAME
        | {
            "NODE": _spec("node"),
            "INTERFACE": _spec("interfaceName"),
            "IPS": _joined("expectedIPs"),
            "PROFILES": _joined("profiles"),
        },
    ),
    "IPAMConfiguration": Columns(
        ("NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS"),
        ("NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS", "MAXBLOCKSPERHOST"),
        _NAME
        | {
            "STRICTAFFINITY": _spec("strictAffinity"),
            "AUTOALLOCATEBLOCKS": _spec("autoAllocateBlocks"),
            "MAXBLOCKSPERHOST": _spec("maxBlocksPerHost"),
        },
    ),
    "IPPool": Columns(
        ("NAME", "CIDR", "SELECTOR"),
        (
            "NAME",
            "CIDR",
            "NAT",
            "IPIPMODE",
            "VXLANMODE",
            "DISABLED",
            "DISABLEBGPEXPORT",
            "SELECTOR",
            "ASSIGNMENTMODE",
        ),
        _NAME
        | {
            "CIDR": _spec("cidr"),
            "NAT": _spec("natOutgoing"),
            "IPIPMODE": _or("ipipMode", "Never"),
            "VXLANMODE": _or("vxlanMode", "Never"),
            "DISABLED": _spec("disabled"),
            "DISABLEBGPEXPORT": _spec("disableBGPExport"),
            "SELECTOR": _spec("nodeSelector"),
            "ASSIGNMENTMODE": _spec("assignmentMode"),
        },
    ),
    "IPReservation": Columns(
        ("NAME",), ("NAME", "CIDRS"), _NAME | {"CIDRS": _short("reservedCIDRs")}
    ),
    "KubeControllersConfiguration": Columns(("NAME",), ("NAME",), _NAME),
    "NetworkPolicy": Columns(("NAME", "TIER"), _POLICY, _NAMESPACED | _POLICY_CELLS),
    "NetworkSet": Columns(("NAME",), ("NAME", "NETS"), _NAMESPACED | {"NETS": _short("nets")}),
    "Node": Columns(
        ("NAME",),
        ("NAME", "ASN", "IPV4", "IPV6"),
        _NAME
        | {"ASN": _node_as, "IPV4": _node_bgp("ipv4Address"), "IPV6": _node_bgp("ipv6Address")},
    ),
    "Profile": Columns(("NAME",), ("NAME", "LABELS"), _NAME | {"LABELS": _labels}),
    "StagedGlobalNetworkPolicy": Columns(("NAME", "TIER"), _POLICY, _NAME | _POLICY_CELLS),
    "StagedKubernetesNetworkPolicy": Columns(
        ("NAME",), ("NAME", "PODSELECTOR"), _NAMESPACED | {"PODSELECTOR": _pod_selector}
    ),
    "StagedNetworkPolicy": Columns(("NAME", "TIER"), _POLICY, _NAMESPACED | _POLICY_CELLS),
    "Tier": Columns(("NAME", "ORDER"), ("NAME", "ORDER"), _NAME | {"ORDER": _order}),
    "WorkloadEndpoint": Columns(
        ("WORKLOAD", "NODE", "NETWORKS", "INTERFACE"),
        ("NAME", "WORKLOAD", "NODE", "NETWORKS", "INTERFACE", "PROFILES", "NATS"),
        _NAMESPACED
        | {
            "ORCHESTRATOR": _spec("orchestrator"),
            "WORKLOAD": _workload,
            "NODE": _spec("node"),
            "NETWORKS": _joined("ipNetworks"),
            "INTERFACE": _spec("interfaceName"),
            "PROFILES": _joined("profiles"),
            "NATS": _nats,
        },
    ),
}


def table(
    kind: str,
    resources: Sequence[Resource],
    headings: Sequence[str],
    context: Context,
) -> list[list[str]]:
    """The rows of `resources` under `headings`; raises `MuslinError` for an unknown heading."""
    cells = TABLE[kind].cells
    for heading in headings:
        if heading not in cells:
            valid = ", ".join(sorted(cells))
            raise MuslinError(f"unknown heading {heading}, valid values are: {valid}")
    return [[cells[heading](resource, context) for heading in headings] for resource in resources]
