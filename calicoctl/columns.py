"""Which columns `get` prints for which kind.

Headings are Calico's. One table: a new kind is a new row here. The text of a cell is
`calicoctl.cells`. Tested in `tests/calicoctl/test_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from calicoctl.cells import (
    Cell,
    Context,
    count_cell,
    endpoint_nats,
    endpoint_workload,
    joined_cell,
    name_cell,
    namespace_cell,
    node_as,
    node_bgp,
    order_cell,
    peer_node,
    pod_selector,
    profile_labels,
    short_cell,
    spec_cell,
    spec_or,
    tier_cell,
)
from calicoctl.listing import report_cells
from libcalico.errors import MuslinError
from libcalico.model.kinds import Resource


class Columns(msgspec.Struct, frozen=True):
    """The table of one kind: headings of `-o ps`, of `-o wide`, and every known cell."""

    ps: tuple[str, ...]
    wide: tuple[str, ...]
    cells: dict[str, Cell]


_NAME: dict[str, Cell] = {"NAME": name_cell}

_NAMESPACED: dict[str, Cell] = _NAME | {"NAMESPACE": namespace_cell}

_POLICY = ("NAME", "TIER", "ORDER", "SELECTOR")
_POLICY_CELLS: dict[str, Cell] = {
    "TIER": tier_cell,
    "ORDER": order_cell,
    "SELECTOR": spec_cell("selector"),
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
            "LOGSEVERITY": spec_cell("logSeverityScreen"),
            "MESHENABLED": spec_or("nodeToNodeMeshEnabled", "-"),
            "ASNUMBER": spec_or("asNumber", "-"),
        },
    ),
    "BGPFilter": Columns(
        _BGP_FILTER,
        _BGP_FILTER,
        _NAME
        | {
            "NUMEXPORTV4": count_cell("exportV4"),
            "NUMIMPORTV4": count_cell("importV4"),
            "NUMEXPORTV6": count_cell("exportV6"),
            "NUMIMPORTV6": count_cell("importV6"),
        },
    ),
    "BGPPeer": Columns(
        _BGP_PEER,
        _BGP_PEER,
        _NAME | {"PEERIP": spec_cell("peerIP"), "NODE": peer_node, "ASN": spec_or("asNumber", "0")},
    ),
    "CalicoNodeStatus": Columns(
        ("NAME", "NODE"),
        # Calico v3.32 has no such command; its next release has the first three, whose template
        # fails on the classes. The plain table is theirs to the byte, what follows is ours.
        (
            "NAME",
            "NODE",
            "CLASSES",
            "PERIOD",
            "LAST-UPDATED",
            "AGENT",
            "V4-UP",
            "V6-UP",
            "ROUTES",
            "DOWN",
        ),
        _NAME
        | {
            "NODE": spec_cell("node"),
            "CLASSES": joined_cell("classes"),
            "PERIOD": report_cells.period,
            "LAST-UPDATED": report_cells.last_updated,
            "AGENT": report_cells.agent,
            "V4-UP": report_cells.sessions("V4"),
            "V6-UP": report_cells.sessions("V6"),
            "ROUTES": report_cells.routes,
            "DOWN": report_cells.down,
        },
    ),
    "ClusterInformation": Columns(
        _CLUSTER,
        _CLUSTER,
        _NAME
        | {
            "CLUSTERGUID": spec_cell("clusterGUID"),
            "CLUSTERTYPE": spec_cell("clusterType"),
            "CALICOVERSION": spec_cell("calicoVersion"),
            "DATASTOREREADY": spec_cell("datastoreReady"),
        },
    ),
    "FelixConfiguration": Columns(("NAME",), ("NAME",), _NAME),
    "GlobalNetworkPolicy": Columns(("NAME", "TIER"), _POLICY, _NAME | _POLICY_CELLS),
    "GlobalNetworkSet": Columns(("NAME",), ("NAME", "NETS"), _NAME | {"NETS": short_cell("nets")}),
    "HostEndpoint": Columns(
        ("NAME", "NODE"),
        ("NAME", "NODE", "INTERFACE", "IPS", "PROFILES"),
        _NAME
        | {
            "NODE": spec_cell("node"),
            "INTERFACE": spec_cell("interfaceName"),
            "IPS": joined_cell("expectedIPs"),
            "PROFILES": joined_cell("profiles"),
        },
    ),
    "IPAMConfiguration": Columns(
        ("NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS"),
        ("NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS", "MAXBLOCKSPERHOST"),
        _NAME
        | {
            "STRICTAFFINITY": spec_cell("strictAffinity"),
            "AUTOALLOCATEBLOCKS": spec_cell("autoAllocateBlocks"),
            "MAXBLOCKSPERHOST": spec_cell("maxBlocksPerHost"),
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
            "CIDR": spec_cell("cidr"),
            "NAT": spec_cell("natOutgoing"),
            "IPIPMODE": spec_or("ipipMode", "Never"),
            "VXLANMODE": spec_or("vxlanMode", "Never"),
            "DISABLED": spec_cell("disabled"),
            "DISABLEBGPEXPORT": spec_cell("disableBGPExport"),
            "SELECTOR": spec_cell("nodeSelector"),
            "ASSIGNMENTMODE": spec_cell("assignmentMode"),
        },
    ),
    "IPReservation": Columns(
        ("NAME",), ("NAME", "CIDRS"), _NAME | {"CIDRS": short_cell("reservedCIDRs")}
    ),
    "KubeControllersConfiguration": Columns(("NAME",), ("NAME",), _NAME),
    "NetworkPolicy": Columns(("NAME", "TIER"), _POLICY, _NAMESPACED | _POLICY_CELLS),
    "NetworkSet": Columns(("NAME",), ("NAME", "NETS"), _NAMESPACED | {"NETS": short_cell("nets")}),
    "Node": Columns(
        ("NAME",),
        ("NAME", "ASN", "IPV4", "IPV6"),
        _NAME | {"ASN": node_as, "IPV4": node_bgp("ipv4Address"), "IPV6": node_bgp("ipv6Address")},
    ),
    "Profile": Columns(("NAME",), ("NAME", "LABELS"), _NAME | {"LABELS": profile_labels}),
    "StagedGlobalNetworkPolicy": Columns(("NAME", "TIER"), _POLICY, _NAME | _POLICY_CELLS),
    "StagedKubernetesNetworkPolicy": Columns(
        ("NAME",), ("NAME", "PODSELECTOR"), _NAMESPACED | {"PODSELECTOR": pod_selector}
    ),
    "StagedNetworkPolicy": Columns(("NAME", "TIER"), _POLICY, _NAMESPACED | _POLICY_CELLS),
    "Tier": Columns(("NAME", "ORDER"), ("NAME", "ORDER"), _NAME | {"ORDER": order_cell}),
    "WorkloadEndpoint": Columns(
        ("WORKLOAD", "NODE", "NETWORKS", "INTERFACE"),
        ("NAME", "WORKLOAD", "NODE", "NETWORKS", "INTERFACE", "PROFILES", "NATS"),
        _NAMESPACED
        | {
            "ORCHESTRATOR": spec_cell("orchestrator"),
            "WORKLOAD": endpoint_workload,
            "NODE": spec_cell("node"),
            "NETWORKS": joined_cell("ipNetworks"),
            "INTERFACE": spec_cell("interfaceName"),
            "PROFILES": joined_cell("profiles"),
            "NATS": endpoint_nats,
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
            from calicoctl.terminal import suggesting

            valid = ", ".join(sorted(cells))
            meant = suggesting.question(suggesting.near(heading, cells))
            sentence = f"unknown heading {heading}, valid values are: {valid}. {meant}"
            raise MuslinError(sentence.removesuffix(". "))
    return [[cells[heading](resource, context) for heading in headings] for resource in resources]
