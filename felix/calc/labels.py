"""What policy sees of an endpoint: a workload's labels, and named ports.

The labels that Calico adds (docs/reference/data-model.md#labels-and-profiles-of-pods) are added
over what the object itself says, so no workload can claim to lie in another namespace.

Tested in tests/felix/calc/policy/test_items.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from libcalico.model import ResourceKey, WorkloadEndpoint
from libcalico.model.resources.endpoint import WorkloadEndpointPort
from libcalico.model.resources.hostendpoint import EndpointPort
from libcalico.policy_selectors import NAMESPACE_LABEL, SERVICE_ACCOUNT_LABEL

ORCHESTRATOR_LABEL = "projectcalico.org/orchestrator"
LONGEST_ACCOUNT = 62

Labels = tuple[tuple[str, str], ...]
PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "sctp": 132, "udplite": 136}
WITH_PORTS = {6: "tcp", 17: "udp", 132: "sctp"}


class NamedPort(NamedTuple):
    """A port that a workload declares: `protocol` is tcp, udp or sctp."""

    name: str
    protocol: str
    number: int


def workload_labels(key: ResourceKey, value: WorkloadEndpoint) -> Labels:
    """The labels of an endpoint, sorted; those it inherits from profiles are not among them."""
    labels = dict(value.metadata.labels)
    labels[NAMESPACE_LABEL] = key.namespace
    labels[ORCHESTRATOR_LABEL] = value.spec.orchestrator
    account = value.spec.serviceAccountName
    if 0 < len(account) <= LONGEST_ACCOUNT:
        labels[SERVICE_ACCOUNT_LABEL] = account
    return tuple(sorted(labels.items()))


def named_ports(ports: Iterable[WorkloadEndpointPort | EndpointPort]) -> tuple[NamedPort, ...]:
    """The ports of an endpoint that have a name and a protocol with ports; others match nothing."""
    named = []
    for port in ports:
        number = protocol_number(port.protocol)
        if port.name and number in WITH_PORTS and 0 < port.port < 65536:
            named.append(NamedPort(port.name, WITH_PORTS[number], port.port))
    return tuple(dict.fromkeys(named))


def protocol_number(protocol: int | str) -> int | None:
    """The number of a protocol given by number or name, in any case; None if there is none."""
    if isinstance(protocol, str):
        return PROTOCOLS.get(protocol.lower())
    return protocol if 0 < protocol < 256 else None
