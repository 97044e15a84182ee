"""Host endpoints that every node gets by itself: which, from the Node and the configuration.

Pure. Source: docs/reference/data-model.md#automatic-host-endpoints. Tested in
tests/controllers/test_node_rules.py.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from libcalico import goregex
from libcalico.errors import InvalidValue
from libcalico.model import HostEndpoint, HostEndpointSpec, Metadata, Node
from libcalico.model.keys import IPNetwork
from libcalico.model.resources.controllers import AutoHostEndpointConfig, Template
from libcalico.model.resources.profile import DEFAULT_ALLOW
from libcalico.model.validation.network_values import address_of
from libcalico.selectors import selectors

CREATED_BY, CREATOR = "projectcalico.org/created-by", "calico-kube-controllers"
ENABLED, DISABLED = "Enabled", "Disabled"
SUFFIX = "auto-hep"
MAX_NAME = 253


def is_ours(endpoint: HostEndpoint) -> bool:
    """Whether a controller made it: every other one belongs to a user."""
    return endpoint.metadata.labels.get(CREATED_BY) == CREATOR


def desired(node: Node, config: AutoHostEndpointConfig | None) -> dict[str, HostEndpoint]:
    """The host endpoints of a node by name; none where they are not switched on.

    Raises InvalidValue for a template whose selector, pattern or CIDR cannot be read.
    """
    if config is None or config.autoCreate != ENABLED:
        return {}
    endpoints: list[HostEndpoint] = []
    if config.createDefaultHostEndpoint != DISABLED:
        endpoints.append(_endpoint(node, [], "*", addresses(node), Template()))
    for template in config.templates:
        if selectors.parse(template.nodeSelector or "all()").matches(node.metadata.labels):
            endpoints += _of_template(node, template)
    return {one.metadata.name: one for one in endpoints}


def _of_template(node: Node, template: Template) -> list[HostEndpoint]:
    inside = _inside(addresses(node), template.interfaceCIDRs)
    words = [template.generateName]
    if not template.interfacePattern:
        return [_endpoint(node, words, "", inside, template)] if inside else []
    if reason := goregex.problem(template.interfacePattern):
        raise InvalidValue(
            "spec.controllers.node.hostEndpoint.templates.interfacePattern",
            template.interfacePattern,
            reason,
        )
    pattern = re.compile(template.interfacePattern)
    return [
        _endpoint(node, [*words, one.name], one.name, _unique([*inside, *one.addresses]), template)
        for one in node.spec.interfaces
        if pattern.search(one.name)
    ]


def addresses(node: Node) -> list[str]:
    """Every address of a node that its Node names, each once, in Calico's order.

    What is no address is left out: a cloud may tell a name as InternalIP.
    """
    spec, texts = node.spec, []
    if spec.bgp:
        texts += [spec.bgp.ipv4Address, spec.bgp.ipv6Address, spec.bgp.ipv4IPIPTunnelAddr]
    texts += [spec.ipv4VXLANTunnelAddr, spec.ipv6VXLANTunnelAddr]
    if spec.wireguard:
        texts += [spec.wireguard.interfaceIPv4Address, spec.wireguard.interfaceIPv6Address]
    texts += [one.address for one in spec.addresses if one.type == "InternalIP"]
    texts += [text for one in spec.interfaces for text in one.addresses]
    return _unique(text.partition("/")[0] for text in texts)


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if address_of(text) is not None))


def _network(cidr: str) -> IPNetwork:
    try:
        return ip_network(cidr, strict=False)
    except ValueError:
        field = "spec.controllers.node.hostEndpoint.templates.interfaceCIDRs"
        raise InvalidValue(field, cidr, "must be a network such as 10.0.0.0/8") from None


def _inside(texts: Iterable[str], cidrs: Iterable[str]) -> list[str]:
    networks = [_network(cidr) for cidr in cidrs]
    return [
        text
        for text in texts
        if any(one.version == (a := ip_address(text)).version and a in one for one in networks)
    ]


def _endpoint(
    node: Node, words: list[str], interface: str, expected: list[str], template: Template
) -> HostEndpoint:
    name = "-".join([node.metadata.name, *words, SUFFIX])
    if len(name) > MAX_NAME:
        digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).decode()
        short = digest.rstrip("=").replace("-", "").replace("_", "").lower()
        name = f"{short}-{SUFFIX}"
    return HostEndpoint(
        metadata=Metadata(
            name=name,
            labels={**node.metadata.labels, **template.labels, CREATED_BY: CREATOR},
            annotations=dict(template.annotations),
        ),
        spec=HostEndpointSpec(
            node=node.metadata.name,
            interfaceName=interface,
            expectedIPs=expected,
            profiles=[DEFAULT_ALLOW],
        ),
    )
