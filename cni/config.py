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

import ipaddress
from collections.abc import Mapping
from typing import Any

import msgspec

from cni.errors import CNIError, Code

POD_ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
Document = Mapping[str, Any]


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
    read = _Reader(lenient)
    version = document.get("cniVersion") or ""
    args_cni = read.member(read.member(document, "args", quiet=True), "cni", quiet=True)
    runtime = _folded(read.member(document, "runtimeConfig", "runtimeConfig"))
    return NetworkConfig(
        name=document.get("name") or "",
        version=version or "0.1.0",
        result_version=version or "0.2.0",
        type=read.text(document, "type"),
        ipam=_ipam(read, read.member(document, "ipam", "ipam")),
        mtu=read.integer(document, "mtu", "mtu", 0, 65535),
        policy_type=read.text(read.member(document, "policy", "policy"), "type", "policy.type"),
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
        labels=_labels(args_cni),
        annotations=_strings(runtime.get(POD_ANNOTATIONS)),
        requested_ips=_requested_ips(read, runtime, args_cni),
        mac=read.mac(runtime.get("mac"), "runtimeConfig.mac"),
        prev_result=read.member(document, "prevResult", "prevResult") or None,
        valid_attachments=_attachments(document),
        document=document,
    )


def _ipam(read: _Reader, ipam: Document) -> IPAM:
    return IPAM(
        type=read.text(ipam, "type", "ipam.type"),
        assign_ipv4=read.boolean(ipam, "assign_ipv4", "ipam.assign_ipv4", True),
        assign_ipv6=read.boolean(ipam, "assign_ipv6", "ipam.assign_ipv6"),
        ipv4_pools=read.texts(ipam.get("ipv4_pools"), "ipam.ipv4_pools"),
        ipv6_pools=read.texts(ipam.get("ipv6_pools"), "ipam.ipv6_pools"),
    )


def _folded(document: Document) -> dict[str, Any]:
    return {key.lower(): value for key, value in document.items()}


def _labels(args_cni: Document) -> dict[str, str]:
    """Labels of the CNI conventions: a list of {key, value}; anything else is ignored (CFG-07)."""
    labels = args_cni.get("labels")
    if isinstance(labels, Mapping):
        return _strings(labels)
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


def _requested_ips(read: _Reader, runtime: Document, args_cni: Document) -> tuple[str, ...]:
    declared = read.addresses(runtime.get("ips"), "runtimeConfig.ips")
    if declared:
        return declared
    hinted = args_cni.get("ips")
    if not isinstance(hinted, list):
        return ()
    return tuple(ip for ip in hinted if isinstance(ip, str) and _is_address(ip))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return True


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
            raise _invalid(key, "a list of {containerID, ifname}")
        return tuple(_attachment(entry, f"{key}[{index}]") for index, entry in enumerate(entries))
    return None


def _attachment(entry: object, where: str) -> Attachment:
    if not isinstance(entry, Mapping):
        raise _invalid(where, "an object")
    container, ifname = entry.get("containerID"), entry.get("ifname", "")
    if not isinstance(container, str) or not container or not isinstance(ifname, str):
        raise _invalid(where, "an object with the strings containerID and ifname")
    return Attachment(container, ifname)


def _invalid(where: str, rule: str) -> CNIError:
    return CNIError(Code.INVALID_CONFIG, f"invalid network configuration: {where} must be {rule}")


class _Reader:
    """Reads members by type; a wrong type raises, or gives the default when lenient."""

    def __init__(self, lenient: bool) -> None:
        self._lenient = lenient

    def _refuse(self, where: str, rule: str) -> None:
        if not self._lenient:
            raise _invalid(where, rule)

    def member(
        self, document: Document, key: str, where: str = "", quiet: bool = False
    ) -> Document:
        value = document.get(key)
        if isinstance(value, Mapping):
            return value
        if value is not None and not quiet:
            self._refuse(where or key, "an object")
        return {}

    def text(self, document: Document, key: str, where: str = "") -> str:
        value = document.get(key)
        if isinstance(value, str):
            return value
        if value is not None:
            self._refuse(where or key, "a string")
        return ""

    def texts(self, value: object, where: str) -> tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        if value is not None:
            self._refuse(where, "a list of strings")
        return ()

    def addresses(self, value: object, where: str) -> tuple[str, ...]:
        texts = self.texts(value, where)
        for text in texts:
            if not _is_address(text):
                self._refuse(where, f"a list of IP addresses, and {text!r} is none")
        return tuple(text for text in texts if _is_address(text))

    def integer(
        self, document: Document, key: str, where: str, low: int, high: int, default: int = 0
    ) -> int:
        value = document.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        if value is not None:
            self._refuse(where, f"an integer from {low} to {high}")
        return default

    def boolean(self, document: Document, key: str, where: str, default: bool = False) -> bool:
        value = document.get(key)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if value is not None and value != "":
            self._refuse(where, 'true or false, or the strings "true" or "false"')
        return default

    def mac(self, value: object, where: str) -> str:
        if value is None or value == "":
            return ""
        if isinstance(value, str):
            parts = value.lower().replace("-", ":").split(":")
            if len(parts) == 6 and all(_is_octet(part) for part in parts):
                return ":".join(parts)
        self._refuse(where, "a MAC address such as 7e:11:22:33:44:55")
        return ""


def _is_octet(text: str) -> bool:
    return len(text) == 2 and all(digit in "0123456789abcdef" for digit in text)
