"""IPPool, IPReservation, BlockAffinity, IPAMConfiguration (docs/reference/data-model.md#ippool,
#ipreservation, #ipam-objects)."""

from __future__ import annotations

from tests.libcalico.documents import Refused, Taken, document


def _pool(id_: str, spec: str, path: str, rule: str, cidr: str = "10.0.0.0/16") -> Refused:
    return Refused(f"pool-{id_}", document("IPPool", f"cidr: '{cidr}', {spec}"), path, rule)


def _good(id_: str, spec: str, cidr: str = "10.0.0.0/16") -> Taken:
    return Taken(f"pool-{id_}", document("IPPool", f"cidr: '{cidr}', {spec}"))


def _other(id_: str, kind: str, spec: str, path: str, rule: str, metadata: str = "") -> Refused:
    return Refused(id_, document(kind, spec, metadata), path, rule)


CIDR, SIZE, NODES, SPACES = "spec.cidr", "spec.blockSize", "spec.nodeSelector", "namespaceSelector"
LB = "allowedUses: [LoadBalancer]"
DEFAULT = "name: default"

REFUSED = [
    Refused("pool-no-cidr", document("IPPool", "natOutgoing: true"), CIDR, "required"),
    _pool("text", "", CIDR, "CIDR", "pods"),
    _pool("empty", "", CIDR, "CIDR", ""),
    _pool("mask", "", CIDR, "CIDR", "10.0.0.0/33"),
    _pool("dotted-mask", "", CIDR, "prefix length", "10.0.0.0/255.255.0.0"),
    _pool("bare-address", "disabled: true", CIDR, "prefix length", "10.0.0.1"),
    _pool("host-bits", "", CIDR, "bits behind the mask", "10.0.0.1/16"),
    _pool("host-bits-v6", "", CIDR, "bits behind the mask", "fd00::1/64"),
    _pool("link-local", "", CIDR, "link-local", "169.254.0.0/17"),
    _pool("around-link-local", "", CIDR, "link-local", "169.0.0.0/8"),
    _pool("link-local-v6", "", CIDR, "link-local", "fe80::/64"),
    _pool("too-small", "", CIDR, "at least one block", "10.0.0.0/27"),
    _pool("too-small-v6", "", CIDR, "at least one block", "fd00::/123"),
    _pool("smaller-than-block", "blockSize: 20", CIDR, "at least one block", "10.0.0.0/21"),
    _pool("block-19", "blockSize: 19", SIZE, "20 to 32"),
    _pool("block-33", "blockSize: 33", SIZE, "20 to 32"),
    _pool("block-115", "blockSize: 115", SIZE, "116 to 128", "fd00::/64"),
    _pool("block-129", "blockSize: 129", SIZE, "116 to 128", "fd00::/64"),
    _pool("block-of-v4", "blockSize: 26", SIZE, "116 to 128", "fd00::/64"),
    _pool("block-text", "blockSize: '26'", SIZE, "whole number"),
    _pool("block-fraction", "blockSize: 26.5", SIZE, "whole number"),
    _pool("ipip-word", "ipipMode: always", "spec.ipipMode", "Always"),
    _pool("vxlan-word", "vxlanMode: 'On'", "spec.vxlanMode", "CrossSubnet"),
    _pool("two-tunnels", "ipipMode: Always, vxlanMode: Always", "spec.vxlanMode", "only one"),
    _pool("mixed", "ipipMode: CrossSubnet, vxlanMode: Always", "spec.vxlanMode", "only one"),
    _pool("ipip-v6", "ipipMode: Always", "spec.ipipMode", "IPv4 only", "fd00::/64"),
    _pool("nat-text", "natOutgoing: 'true'", "spec.natOutgoing", "true or false"),
    _pool("v1-nat", "nat-outgoing: true", "spec.nat-outgoing", "no such field"),
    _pool("selector", "nodeSelector: 'a ='", NODES, "selector"),
    _pool("selector-global", "nodeSelector: 'global()'", NODES, "global()"),
    _pool("selector-list", "nodeSelector: [a]", NODES, "text"),
    _pool("selector-long", f"nodeSelector: \"a == '{'x' * 1024}'\"", NODES, "1024"),
    _pool("spaces", f"{SPACES}: 'a ==', allowedUses: [Workload]", f"spec.{SPACES}", "selector"),
    _pool("spaces-tunnel", f"{SPACES}: all()", f"spec.{SPACES}", "Tunnel"),
    _pool("use", "allowedUses: [Pods]", "spec.allowedUses[0]", "Workload"),
    _pool("uses-text", "allowedUses: Workload", "spec.allowedUses", "list"),
    _pool("lb-mixed", "allowedUses: [Workload, LoadBalancer]", "spec.allowedUses", "mixed"),
    _pool("lb-ipip", f"{LB}, ipipMode: Always", "spec.ipipMode", "encapsulation"),
    _pool("lb-nodes", f"{LB}, nodeSelector: has(a)", NODES, "all()"),
    _pool("lb-export", f"{LB}, disableBGPExport: true", "spec.disableBGPExport", "LoadBalancer"),
    _pool("assignment", "assignmentMode: automatic", "spec.assignmentMode", "Manual"),
    _pool("unknown", "colour: red", "spec.colour", "no such field"),
    _other("reservation", "IPReservation", "reservedCIDRs: [a]", "spec.reservedCIDRs[0]", "CIDR"),
    _other(
        "reservation-mask",
        "IPReservation",
        "reservedCIDRs: [10.0.0.0/8, 10.0.0.0/40]",
        "spec.reservedCIDRs[1]",
        "CIDR",
    ),
    _other("reservation-text", "IPReservation", "reservedCIDRs: x", "spec.reservedCIDRs", "list"),
    _other("ipam-name", "IPAMConfiguration", "strictAffinity: true", "metadata.name", "default"),
    _other(
        "ipam-blocks",
        "IPAMConfiguration",
        "maxBlocksPerHost: -1",
        "spec.maxBlocksPerHost",
        "0 to 1000000",
        DEFAULT,
    ),
    _other(
        "ipam-cooldown",
        "IPAMConfiguration",
        "ipCooldownSeconds: 1201",
        "spec.ipCooldownSeconds",
        "0 to 1200",
        DEFAULT,
    ),
    _other(
        "ipam-word",
        "IPAMConfiguration",
        "kubeVirtVMAddressPersistence: enabled",
        "spec.kubeVirtVMAddressPersistence",
        "Enabled",
        DEFAULT,
    ),
    _other(
        "ipam-strict",
        "IPAMConfiguration",
        "strictAffinity: 1",
        "spec.strictAffinity",
        "true or false",
        DEFAULT,
    ),
    _other(
        "affinity-state",
        "BlockAffinity",
        "state: mine, node: n, cidr: 10.0.0.0/26",
        "spec.state",
        "confirmed",
    ),
    _other("affinity-cidr", "BlockAffinity", "state: '', node: n, cidr: x", CIDR, "CIDR"),
    _other(
        "affinity-deleted",
        "BlockAffinity",
        "node: n, cidr: 10.0.0.0/26, deleted: true",
        "spec.deleted",
        "must be false",
    ),
    _other(
        "affinity-deleted-text",
        "BlockAffinity",
        "node: n, cidr: 10.0.0.0/26, deleted: perhaps",
        "spec.deleted",
        "must be false",
    ),
]

TAKEN = [
    _good("plain", ""),
    _good("one-block", "", "10.0.0.0/26"),
    _good("small-and-disabled", "disabled: true", "10.0.0.0/30"),
    _good("block-20", "blockSize: 20"),
    _good("block-32", "blockSize: 32", "10.0.0.0/32"),
    _good("block-116", "blockSize: 116", "fd00::/64"),
    _good("block-128", "blockSize: 128", "fd00::/128"),
    _good("block-0", "blockSize: 0"),
    _good("all-addresses-v6", "", "2000::/3"),
    _good("near-link-local", "", "169.253.0.0/16"),
    _good("both-never", "ipipMode: Never, vxlanMode: Never"),
    _good("vxlan-v6", "vxlanMode: CrossSubnet", "fd00::/64"),
    _good("selector-1024", f"nodeSelector: \"a == '{'x' * 1017}'\""),
    _good("spaces", f"{SPACES}: has(team), allowedUses: [Workload]"),
    _good("lb", f"{LB}, nodeSelector: all(), assignmentMode: Manual"),
    _good("tunnel", "allowedUses: [Tunnel]"),
    _good("nulls", "nodeSelector: null, allowedUses: null, ipipMode:"),
    Taken(
        "reservation", document("IPReservation", "reservedCIDRs: [10.0.0.1, 10.0.0.7/8, '::/0']")
    ),
    Taken("reservation-empty", document("IPReservation", "")),
    Taken("ipam", document("IPAMConfiguration", "maxBlocksPerHost: 1000000", DEFAULT)),
    Taken("ipam-cooldown", document("IPAMConfiguration", "ipCooldownSeconds: 1200", DEFAULT)),
    Taken("affinity", document("BlockAffinity", "node: n, cidr: 10.0.0.0/26, deleted: false")),
]
