"""The network configuration as the plugin understands it: keys of the specification and ours.

A runtime re-serialises the configuration, adds keys and changes the case of some (CFG-10,
CFG-11), so unknown keys are ignored, `null` means absent, and the members of `runtimeConfig`
are read without regard to case. A known key with a value that we cannot honour is an error
that names the key and never repeats the document, which holds secrets (CFG-03, CFG-21).

DEL and GC must work with any configuration: `parse_config(..., lenient=True)` replaces what
it cannot read by the default (CFG-22, DEL-16).

Pure. Tested in `tests/cni/test_config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cni.request import kubernetes_access, stores
from cni.request.kubernetes_access import NamedAccess, named_access
from cni.request.reader import Document, Reader, invalid, is_address
from cni.request.stores import NamedStore, named_store

POD_ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
MESOS = "org.apache.mesos"
DEVICES = ("veth", "netkit")
DATAPLANES = ("linux",)
KINDS = frozenset({"device_type", "dataplane_options"})


class IPAM(msgspec.Struct, frozen=True):
    """The `ipam` object. `assign_ipv6` is off by default, as in Calico (IPM-06)."""

    type: str = ""
    assign_ipv4: bool = True
    assign_ipv6: bool = False
    ipv4_pools: tuple[str, ...] = ()
    ipv6_pools: tuple[str, ...] = ()


class Attachment(msgspec.Struct, frozen=True):
    """One entry of `cni.dev/valid-attachments`."""

    containerID: str
    ifname: str


class NetworkConfig(msgspec.Struct, frozen=True):
    """One plugin's configuration.

    `version` is what dispatch uses (0.1.0 when the request has none), `result_version` what
    is printed (0.2.0 then; CFG-05). `mtu` in bytes, 0 means: from the node. `labels` come from
    `args.cni.labels`, `annotations` from the pod-annotations capability, `requested_ips` from
    `runtimeConfig.ips` before `args.cni.ips` (ARG-09). `prev_result` and `document` are raw.
    `floating_ips` and `addresses_without_ipam` are what `feature_control` allows pods to ask for.
    `valid_attachments` is None when GC got no list at all, which means: remove nothing (GC-06).
    """

    name: str
    version: str = "0.1.0"
    result_version: str = "0.2.0"
    type: str = ""
    ipam: IPAM = IPAM()
    mtu: int = 0
    policy_type: str = ""
    policy_setup_timeout: float = 30.0
    allow_ip_forwarding: bool = False
    floating_ips: bool = False
    addresses_without_ipam: bool = False
    log_level: str = ""
    store: NamedStore = stores.NOTHING
    kubernetes: NamedAccess = kubernetes_access.NOTHING
    readiness_gates: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    requested_ips: tuple[str, ...] = ()
    mac: str = ""
    prev_result: Document | None = None
    valid_attachments: tuple[Attachment, ...] | None = None
    document: Document = {}


def parse_config(document: Document, *, lenient: bool = False) -> NetworkConfig:
    """Return the typed configuration of a decoded document whose name and version were checked.

    Raises CNIError 7 naming the key, unless `lenient`.
    """
    read = Reader(lenient)
    version = str(document.get("cniVersion") or "")
    args = read.member(document, "args", quiet=True)
    args_cni = read.member(args, "cni", quiet=True)
    policy = read.member(document, "policy", "policy")
    features = read.member(document, "feature_control", "feature_control")
    _check_kinds(read, document)
    runtime = _folded(read.member(document, "runtimeConfig", "runtimeConfig"))
    return NetworkConfig(
        name=str(document.get("name") or ""),
        version=version or "0.1.0",
        result_version=version or "0.2.0",
        type=read.text(document, "type"),
        ipam=_ipam(read, read.member(document, "ipam", "ipam")),
        mtu=read.integer(document, "mtu", "mtu", 0, 65535),
        policy_type=read.text(policy, "type", "policy.type"),
        policy_setup_timeout=float(
            read.integer(
                document,
                "policy_setup_timeout_seconds",
                "policy_setup_timeout_seconds",
                0,
                3600,
                30,
            )
        ),
        allow_ip_forwarding=read.boolean(
            read.member(document, "container_settings", "container_settings"),
            "allow_ip_forwarding",
            "container_settings.allow_ip_forwarding",
        ),
        floating_ips=bool(features)
        and read.boolean(features, "floating_ips", "feature_control.floating_ips"),
        addresses_without_ipam=bool(features)
        and read.boolean(features, "ip_addrs_no_ipam", "feature_control.ip_addrs_no_ipam"),
        log_level=_log_level(document),
        store=named_store(read, document),
        kubernetes=named_access(read, policy, read.member(document, "kubernetes", "kubernetes")),
        readiness_gates=_gates(read, document),
        labels=_labels(args_cni) or _mesos_labels(args),
        annotations=_strings(runtime.get(POD_ANNOTATIONS)),
        requested_ips=_requested_ips(read, runtime, args_cni),
        mac=read.mac(runtime.get("mac"), "runtimeConfig.mac"),
        prev_result=read.member(document, "prevResult", "prevResult") or None,
        valid_attachments=_attachments(document),
        document=document,
    )


def _check_kinds(read: Reader, document: Document) -> None:
    """What selects another make of pod network than the one there is (CAL-07, CAL-20).

    `netkit` is served by a veth, as Calico does where the kernel has none.
    """
    if KINDS.isdisjoint(document):
        return
    read.word(document, "device_type", "device_type", DEVICES, "veth")
    options = read.member(document, "dataplane_options", "dataplane_options")
    read.word(options, "type", "dataplane_options.type", DATAPLANES, "linux")


def _log_level(document: Document) -> str:
    """The configured level; a value that is no level means the default (CAL-18)."""
    level = document.get("log_level")
    return level if isinstance(level, str) else ""


def _gates(read: Reader, document: Document) -> tuple[str, ...]:
    if "readiness_gates" not in document:
        return ()
    gates = read.texts(document.get("readiness_gates"), "readiness_gates")
    if not all(gate.startswith(("http://", "https://")) for gate in gates):
        read.refuse("readiness_gates", "a list of http or https URLs")
        return ()
    return gates


def _ipam(read: Reader, ipam: Document) -> IPAM:
    return IPAM(
        type=read.text(ipam, "type", "ipam.type"),
        assign_ipv4=read.boolean(ipam, "assign_ipv4", "ipam.assign_ipv4", True),
        assign_ipv6=read.boolean(ipam, "assign_ipv6", "ipam.assign_ipv6"),
        ipv4_pools=read.texts(ipam.get("ipv4_pools"), "ipam.ipv4_pools"),
        ipv6_pools=read.texts(ipam.get("ipv6_pools"), "ipam.ipv6_pools"),
    )


def _folded(document: Document) -> dict[str, object]:
    return {key.lower(): value for key, value in document.items()}


def _labels(args_cni: Document) -> dict[str, str]:
    """Labels of the CNI conventions: a list of {key, value}; anything else is ignored (CFG-07)."""
    labels = args_cni.get("labels")
    return _strings(labels) if isinstance(labels, Mapping) else _pairs(labels)


def _mesos_labels(args: Document) -> dict[str, str]:
    """Labels as Mesos hands them over, ignored where the shape is another (CAL-21)."""
    here: object = args.get(MESOS)
    for name in ("network_info", "labels", "labels"):
        here = here.get(name) if isinstance(here, Mapping) else None
    return _pairs(here)


def _pairs(labels: object) -> dict[str, str]:
    if not isinstance(labels, list):
        return {}
    pairs = [entry for entry in labels if isinstance(entry, Mapping)]
    return {
        entry["key"]: entry["value"]
        for entry in pairs
        if isinstance(entry.get("key"), str) and isinstance(entry.get("value"), str)
    }


def _strings(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, str)}


def _requested_ips(read: Reader, runtime: Document, args_cni: Document) -> tuple[str, ...]:
    declared = read.addresses(runtime.get("ips"), "runtimeConfig.ips")
    if declared:
        return declared
    hinted = args_cni.get("ips")
    if not isinstance(hinted, list):
        return ()
    return tuple(ip for ip in hinted if isinstance(ip, str) and is_address(ip))


def _attachments(document: Document) -> tuple[Attachment, ...] | None:
    """The set that GC keeps, whichever of the two keys names it (GC-02, GC-06, GC-13).

    A malformed list is an error also where the rest is read leniently: guessing would delete.
    """
    for key in ("cni.dev/valid-attachments", "cni.dev/attachments"):
        if key not in document:
            continue
        entries = document[key]
        if entries is None:
            return ()
        if not isinstance(entries, list):
            raise invalid(key, "a list of {containerID, ifname}")
        return tuple(_attachment(entry, f"{key}[{index}]") for index, entry in enumerate(entries))
    return None


def _attachment(entry: object, where: str) -> Attachment:
    if not isinstance(entry, Mapping):
        raise invalid(where, "an object")
    container, ifname = entry.get("containerID"), entry.get("ifname", "")
    if not isinstance(container, str) or not container or not isinstance(ifname, str):
        raise invalid(where, "an object with the strings containerID and ifname")
    return Attachment(container, ifname)
