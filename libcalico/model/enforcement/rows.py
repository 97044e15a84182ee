"""The rows of `libcalico.model.enforcement.table`, kind by kind; Felix's parameters have a file.

A row covers the fields inside it that have none of their own.
Tested in tests/libcalico/test_enforcement.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from libcalico.model.enforcement.felix import FELIX
from libcalico.model.enforcement.states import (
    Row,
    Rows,
    State,
    below,
    enforced,
    information,
    stored,
)
from libcalico.model.resources.rules import ICMPFields, Rule

METADATA: Rows = {
    **enforced("every kind: the object's identity", "kind", "apiVersion"),
    **enforced("keys and names", "metadata.name", "metadata.namespace"),
    **enforced("selectors match them", "metadata.labels"),
    **enforced("guards of updates", "metadata.uid", "metadata.resourceVersion"),
    **information("kept", "metadata.creationTimestamp", "metadata.generation"),
    **information(
        "kept; `config.projectcalico.org/` ones set Felix's parameters", "metadata.annotations"
    ),
    **information("kept; nothing waits for them", *below("metadata", "ownerReferences finalizers")),
    **information("kept; an API server's", "metadata.managedFields", "metadata.deletionTimestamp"),
    **information("kept; an API server's", "metadata.deletionGracePeriodSeconds"),
    **information("never stored", "metadata.selfLink"),
    **information("kept; the name must be given", "metadata.generateName"),
}
"""Rows of every kind."""


def _needs_several_rules(icmp: ICMPFields, rule: Rule) -> bool:
    """Whether no single rule of the kernel can exclude an ICMP type."""
    return icmp.type is None or (rule.protocol is None and rule.notProtocol is not None)


def _sets_qos(annotations: Mapping[str, str], _metadata: object) -> bool:
    """Whether annotations ask for a mark of a host's traffic."""
    return any(name.startswith("qos.projectcalico.org/") for name in annotations)


def _rules(field: str) -> Rows:
    """The rows of a list of rules."""
    names = "action ipVersion protocol icmp notProtocol"
    rows = enforced("felix: rules of the kernel", *below(field, names))
    rows[f"{field}.notICMP"] = Row(
        State.IN_PART,
        "no rule excludes every type, or a type and another protocol at once",
        asks=_needs_several_rules,
    )
    rows |= stored("HTTP is not looked into", f"{field}.http")
    rows |= enforced("felix: the comments of its rules", f"{field}.metadata")
    for side in ("source", "destination"):
        entity = f"{field}.{side}"
        rows |= enforced(
            "felix: matches and sets of the kernel",
            *below(entity, "nets selector namespaceSelector ports notNets notSelector notPorts"),
            f"{entity}.serviceAccounts",
        )
        rows[f"{entity}.services"] = Row(
            State.IN_PART,
            "as a source of ingress or a destination of egress, where felix has access to the"
            " Kubernetes API",
        )
    return rows


_POLICY = {
    **enforced("felix: the order of policies", "spec.tier", "spec.order"),
    **_rules("spec.ingress"),
    **_rules("spec.egress"),
    **enforced("felix: which endpoints a policy selects", "spec.selector"),
    **enforced("felix: which endpoints a policy selects", "spec.serviceAccountSelector"),
    **enforced("felix: the directions a policy applies to", "spec.types"),
    **enforced("felix: kept ready on every node", "spec.performanceHints"),
}
_STAGED = information("never enforced: felix counts whom it would select", "spec")
_ADDRESSES = "ipv4Address ipv6Address"
_PRIORITY = "bgp: carried in LOCAL_PREF; routes in the kernel have one metric"
_IPAM = "as in Calico, etcd's allocator reads settings of its own: calicoctl ipam configure"

ROWS: dict[str, Rows] = {
    "Node": {
        **enforced("bgp: sessions and what they announce", "spec.bgp.asNumber"),
        **enforced("bgp: sessions; felix: routes to the node", *below("spec.bgp", _ADDRESSES)),
        **enforced("bgp: route reflection", "spec.bgp.routeReflectorClusterID"),
        **enforced(
            "felix: ends of tunnels",
            *below("spec", "bgp.ipv4IPIPTunnelAddr ipv4VXLANTunnelAddr ipv6VXLANTunnelAddr"),
            *below("spec", "vxlanTunnelMACAddr vxlanTunnelMACAddrV6"),
        ),
        **information(
            "what a node with WireGuard writes; nothing is encrypted",
            "spec.wireguard",
            *below("status", "wireguardPublicKey wireguardPublicKeyV6"),
        ),
        **information("written by the node at its start", "spec.orchRefs", "spec.interfaces"),
        **enforced("felix: addresses of the cluster's hosts", "spec.addresses"),
        **enforced("cni: `usePodCidr` of host-local", "status.podCIDRs"),
    },
    "WorkloadEndpoint": {
        **enforced(
            "names of endpoints; felix: whose they are",
            *below("spec", "orchestrator workload node pod endpoint"),
        ),
        **enforced("cni: a late DEL never removes a newer pod's endpoint", "spec.containerID"),
        **enforced("felix: selectors of service accounts", "spec.serviceAccountName"),
        **enforced("felix: routes, sets and anti-spoofing", "spec.ipNetworks"),
        **enforced("felix: where floatingIPs is Enabled", "spec.ipNATs"),
        **information("what the workload was told", "spec.ipv4Gateway", "spec.ipv6Gateway"),
        **enforced("felix: rules and labels of profiles", "spec.profiles"),
        **enforced("felix: the interface", "spec.interfaceName"),
        **enforced(
            "calico-cni: the workload's own interface; felix: its status file, and a permanent "
            "neighbour with another MAC is removed",
            "spec.mac",
        ),
        **enforced("felix: named ports", *below("spec.ports", "name protocol port")),
        **information("the portmap plugin maps ports", "spec.ports.hostPort", "spec.ports.hostIP"),
        **enforced("felix: where workloadSourceSpoofing is Any", "spec.allowSpoofedSourcePrefixes"),
        **enforced(
            "felix: token buckets on the workload's link, rules of its chains, and the DSCP of what"
            " leaves the cluster",
            "spec.qosControls",
        ),
    },
    "HostEndpoint": {
        "metadata.annotations": Row(
            State.IN_PART, "nothing is marked: qos.projectcalico.org/dscp", asks=_sets_qos
        ),
        **enforced("felix: which interface it is", "spec.node", "spec.interfaceName"),
        **enforced("felix: which interface it is; members of sets", "spec.expectedIPs"),
        **enforced("felix: rules and labels of profiles", "spec.profiles"),
        **enforced("felix: named ports", *below("spec.ports", "name protocol port")),
    },
    "IPPool": {
        **enforced("ipam: blocks; felix: outgoing NAT; bgp: what is announced", "spec.cidr"),
        **enforced("felix: tunnels to other nodes", "spec.vxlanMode", "spec.ipipMode"),
        **enforced("felix: outgoing NAT", "spec.natOutgoing"),
        **enforced("ipam: no new addresses; bgp: not announced", "spec.disabled"),
        **enforced("bgp: not announced", "spec.disableBGPExport"),
        **enforced("ipam: the size of blocks", "spec.blockSize"),
        **enforced("ipam: who gets addresses", "spec.nodeSelector", "spec.namespaceSelector"),
        **enforced("ipam: who gets addresses", "spec.allowedUses", "spec.assignmentMode"),
        **information("written by a controller of the Kubernetes datastore", "status"),
    },
    "IPReservation": enforced("ipam: never assigned by itself", "spec.reservedCIDRs"),
    "BGPConfiguration": {
        **stored(
            "the level of logs is a setting of the process",
            "spec.logSeverityScreen",
            harmless=("Info",),
        ),
        **enforced("bgp: the mesh", "spec.nodeToNodeMeshEnabled", "spec.nodeMeshMaxRestartTime"),
        **enforced("bgp: sessions", "spec.asNumber", "spec.listenPort"),
        **enforced(
            "bgp: which addresses of services are announced; felix keeps them from looping",
            *(f"spec.service{kind}IPs" for kind in ("LoadBalancer", "External", "Cluster")),
            "spec.serviceLoadBalancerAggregation",
        ),
        **enforced(
            "bgp: what announced routes are tagged with",
            *below("spec", "communities prefixAdvertisements"),
        ),
        **enforced("bgp: sessions of the mesh", "spec.nodeMeshPassword"),
        **enforced("bgp: where it listens; unset: on the node's addresses", "spec.bindMode"),
        **enforced("bgp: connected networks that are not the node's own", "spec.ignoredInterfaces"),
        **stored(
            "there is no peering with workloads",
            *below("spec", "localWorkloadPeeringIPV4 localWorkloadPeeringIPV6"),
        ),
        **stored(
            "routes to other nodes are felix's, always",
            "spec.programClusterRoutes",
            harmless=("Enabled", "EnabledNoEncapOnly"),
        ),
        **dict.fromkeys(
            below("spec", "ipv4NormalRoutePriority ipv6NormalRoutePriority"),
            Row(State.IN_PART, _PRIORITY, (1024,)),
        ),
    },
    "BGPPeer": {
        **enforced(
            "bgp: sessions",
            *below("spec", "node nodeSelector peerIP asNumber localASNumber peerSelector filters"),
            *below("spec", "maxRestartTime numAllowedLocalASNumbers ttlSecurity reversePeering"),
            *below("spec", "keepOriginalNextHop nextHopMode password sourceAddress keepaliveTime"),
        ),
        **enforced("bgp: the route to the peer, in the kernel by felix", "spec.reachableBy"),
        **stored("there is no peering with workloads", "spec.localWorkloadSelector"),
    },
    "BGPFilter": enforced("bgp: what sessions take and tell", "spec"),
    "FelixConfiguration": FELIX,
    "Tier": {
        **enforced("felix: the order of tiers", "spec.order"),
        **enforced("felix: what a tier does when no rule matched", "spec.defaultAction"),
        **information("written by a controller of the Kubernetes datastore", "status"),
    },
    "Profile": {
        **_rules("spec.ingress"),
        **_rules("spec.egress"),
        **enforced("felix: labels that endpoints inherit", "spec.labelsToApply"),
    },
    "NetworkPolicy": _POLICY,
    "GlobalNetworkPolicy": {
        **_POLICY,
        **enforced(
            "felix: where on a packet's way it acts on host endpoints",
            *below("spec", "doNotTrack preDNAT applyOnForward"),
        ),
        **enforced("felix: which endpoints a policy selects", "spec.namespaceSelector"),
    },
    "StagedNetworkPolicy": _STAGED,
    "StagedGlobalNetworkPolicy": _STAGED,
    "StagedKubernetesNetworkPolicy": _STAGED,
    "NetworkSet": enforced("felix: members of sets", "spec.nets"),
    "GlobalNetworkSet": enforced("felix: members of sets", "spec.nets"),
    "ClusterInformation": {
        **enforced("felix, cni: nothing is done while it is not true", "spec.datastoreReady"),
        **information("kept and shown", *below("spec", "clusterGUID clusterType")),
        **information("kept and shown", *below("spec", "calicoVersion variant")),
    },
    "KubeControllersConfiguration": {
        **enforced("controllers", "spec"),
        **stored(
            "this release renames no policies: names of every release are read as they are",
            *below("spec.controllers", "migration policyMigration"),
        ),
        **stored("there is no profiler to ask", "spec.debugProfilePort"),
        **information("written by the controllers", "status"),
    },
    "CalicoNodeStatus": {
        **enforced("bgp: the node reports what is asked for", "spec"),
        **information("written by nodes", "status"),
    },
    "IPAMConfiguration": {
        **stored(_IPAM, *below("spec", "strictAffinity maxBlocksPerHost ipCooldownSeconds")),
        **stored(_IPAM, "spec.autoAllocateBlocks", harmless=(True,)),
        **information("virtual machines keep no addresses", "spec.kubeVirtVMAddressPersistence"),
    },
    "BlockAffinity": information("as in Calico, etcd's allocator has records of its own", "spec"),
    "LiveMigration": stored("moving workloads are not served", "spec"),
}
