"""Pools, nodes and BGP peers of the first generation as v3 trees.

Tested in tests/libcalico/test_legacy.py.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from libcalico.errors import InvalidValue
from libcalico.legacy import names
from libcalico.legacy.shapes import (
    V1IPIP,
    V1BGPPeerMetadata,
    V1BGPPeerSpec,
    V1IPPoolMetadata,
    V1IPPoolSpec,
    V1Named,
    V1NodeSpec,
)
from libcalico.model.base.numorstring import as_number

_MODES = {"": "Always", "always": "Always", "cross-subnet": "CrossSubnet"}


def pool(metadata: V1IPPoolMetadata, spec: V1IPPoolSpec, subject: str) -> dict[str, object]:
    """An IPPool, named after its network. Raises InvalidValue."""
    try:
        network = ip_network(metadata.cidr)
    except ValueError:
        rule = "must be a CIDR such as 192.168.0.0/16, without bits behind the mask"
        raise InvalidValue("metadata.cidr", metadata.cidr, rule, subject) from None
    mode = _ipip_mode(spec.ipip or V1IPIP(), subject)
    if network.version == 6 and mode != "Never":
        raise InvalidValue("spec.ipip.enabled", True, "IP-in-IP is for IPv4 only", subject)
    tree = {
        "cidr": str(network),
        "ipipMode": mode,
        "natOutgoing": spec.nat_outgoing,
        "disabled": spec.disabled,
    }
    return {"kind": "IPPool", "metadata": {"name": names.pool_name(network)}, "spec": tree}


def _ipip_mode(ipip: V1IPIP, subject: str) -> str:
    if ipip.mode.lower() not in _MODES:
        rule = "must be always or cross-subnet; enabled: false switches it off"
        raise InvalidValue("spec.ipip.mode", ipip.mode, rule, subject)
    return _MODES[ipip.mode.lower()] if ipip.enabled else "Never"


def bgp_peer(metadata: V1BGPPeerMetadata, spec: V1BGPPeerSpec, subject: str) -> dict[str, object]:
    """A BGPPeer, named after its node, if it has one, and its address. Raises InvalidValue."""
    try:
        address = ip_address(metadata.peerIP)
    except ValueError:
        field, rule = "metadata.peerIP", "must be an IP address"
        raise InvalidValue(field, metadata.peerIP, rule, subject) from None
    if metadata.scope not in ("global", "node"):
        field, rule = "metadata.scope", "must be global or node"
        raise InvalidValue(field, metadata.scope, rule, subject)
    if (metadata.scope == "node") != bool(metadata.node):
        rule = "stands with scope node, and only with it"
        raise InvalidValue("metadata.node", metadata.node, rule, subject)
    node = names.node_name(metadata.node)
    name = names.address_name(address)
    return {
        "kind": "BGPPeer",
        "metadata": {"name": f"{node}.{name}" if node else name},
        "spec": {
            **({"node": node} if node else {}),
            "peerIP": str(address),
            "asNumber": as_number(spec.asNumber),
        },
    }


def node(metadata: V1Named, spec: V1NodeSpec, subject: str) -> dict[str, object]:
    """A Node. Raises InvalidValue."""
    tree: dict[str, object] = {}
    if spec.bgp is not None:
        if not spec.bgp.ipv4Address and not spec.bgp.ipv6Address:
            rule = "must have an ipv4Address or an ipv6Address"
            raise InvalidValue("spec.bgp", "...", rule, subject)
        number = spec.bgp.asNumber
        bgp = {
            "asNumber": None if number is None else as_number(number),
            "ipv4Address": spec.bgp.ipv4Address,
            "ipv6Address": spec.bgp.ipv6Address,
        }
        tree["bgp"] = {name: value for name, value in bgp.items() if value not in (None, "")}
    if spec.orchRefs:
        tree["orchRefs"] = [
            {"nodeName": reference.nodeName, "orchestrator": reference.orchestrator}
            for reference in spec.orchRefs
        ]
    name = names.node_name(metadata.name)
    return {"kind": "Node", "metadata": {"name": name}, "spec": tree}
