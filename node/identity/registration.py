"""The Node resource as it should be, given what is stored and what the node is. Pure.

Invariants:
  NODE-1  What the operator or another program wrote beside our fields stays.
  NODE-2  An address that another node has is never taken.
Source: docs/reference/data-model.md#start-of-a-node. Tested in `tests/node/test_registration.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_interface

from msgspec.structs import replace

from libcalico.errors import MuslinError
from libcalico.model.base.meta import Metadata
from libcalico.model.resources.node import Node, NodeBGPSpec, NodeInterface, OrchRef
from node.identity.autodetect import Interface, IPAddress
from node.settings.environment import IPInterface, Settings


def stored_address(node: Node | None, version: int) -> IPInterface | None:
    """The address that the Node resource holds, None when it holds none that can be read."""
    if node is None or node.spec.bgp is None:
        return None
    text = node.spec.bgp.ipv4Address if version == 4 else node.spec.bgp.ipv6Address
    try:
        return ip_interface(text) if text else None
    except ValueError:
        return None


def desired(
    stored: Node | None,
    name: str,
    settings: Settings,
    ipv4: IPInterface | None,
    ipv6: IPInterface | None,
    interfaces: Sequence[Interface],
) -> Node:
    """The Node to store; equal to `stored` when nothing has to be written.

    `ipv4` and `ipv6` are the addresses chosen now, or None to keep what is stored.
    """
    node = stored or Node(metadata=Metadata(name=name))
    spec = node.spec
    if settings.backend != "none":
        bgp = spec.bgp or NodeBGPSpec()
        bgp = replace(
            bgp,
            ipv4Address=str(ipv4) if ipv4 else bgp.ipv4Address,
            ipv6Address=str(ipv6) if ipv6 else bgp.ipv6Address,
            asNumber=bgp.asNumber if settings.as_number is None else settings.as_number,
        )
        # Calico refuses an empty object.
        spec = replace(spec, bgp=bgp if bgp != NodeBGPSpec() else None)
    families = [
        version
        for version, setting in ((4, settings.ipv4), (6, settings.ipv6))
        if setting.mode in ("autodetect", "explicit")
    ]
    if families:
        spec = replace(spec, interfaces=_interfaces(interfaces, families))
    if settings.node_ref:
        others = [one for one in spec.orchRefs if one.orchestrator != "k8s"]
        spec = replace(
            spec, orchRefs=[*others, OrchRef(nodeName=settings.node_ref, orchestrator="k8s")]
        )
    return replace(node, spec=spec)


def _interfaces(interfaces: Iterable[Interface], families: Sequence[int]) -> list[NodeInterface]:
    entries = (
        NodeInterface(
            name=one.name,
            addresses=[
                str(address.ip)
                for address in one.addresses
                if address.version in families and not address.ip.is_link_local
            ],
        )
        for one in interfaces
    )
    return [one for one in entries if one.addresses]


def refuse_duplicates(name: str, node: Node, others: Iterable[Node]) -> None:
    """Raise `MuslinError` when another node has an address of `node` (NODE-2)."""
    mine = _addresses(node)
    for other in others:
        if other.metadata.name == name:
            continue
        for address in sorted(mine & _addresses(other), key=str):
            raise MuslinError(
                f"Node({name}): the address {address} belongs to Node({other.metadata.name})"
                " already: give this node another address (IP, IP_AUTODETECTION_METHOD) or"
                f" delete the other one (calicoctl delete node {other.metadata.name});"
                " DISABLE_NODE_IP_CHECK=true skips this check"
            )


def _addresses(node: Node) -> set[IPAddress]:
    stored = (stored_address(node, version) for version in (4, 6))
    return {address.ip for address in stored if address is not None}


def has_address(node: Node) -> bool:
    """Whether the node has an address of any family."""
    return bool(_addresses(node))
