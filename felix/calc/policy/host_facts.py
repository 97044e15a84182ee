"""What policy needs of a stored host endpoint, of this node or another.

Every host endpoint of the cluster contributes its expected addresses to sets; those of this
node are judged as well (`felix.calc.policy.hosts`).

Invariants:
  HEP-3  A part that cannot be read is left out and named; the rest stays in force.
Tested in tests/felix/calc/test_hosts.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from felix.calc.labels import named_ports
from felix.calc.policy_model import ANY_INTERFACE, IPAddress
from felix.calc.sets.items import Item
from libcalico.model import HostEndpoint, ResourceKey
from libcalico.policy_selectors import NAMESPACE_LABEL

_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host endpoint: whose, where, and what the sets see of it."""

    key: ResourceKey
    node: str
    interface: str
    addresses: frozenset[IPAddress]
    item: Item


def host_facts(key: ResourceKey, value: HostEndpoint) -> tuple[HostFacts, str]:
    """The facts of a stored host endpoint, and what of it cannot be read."""
    spec = value.spec
    trouble = []
    interface = spec.interfaceName
    addresses, bad = _addresses(spec.expectedIPs)
    if bad:
        trouble.append(f"spec.expectedIPs: {', '.join(map(repr, bad[:5]))}: no address, left out")
    where = frozenset(addresses)
    if interface not in ("", ANY_INTERFACE) and not _INTERFACE.fullmatch(interface):
        # Not found by its addresses either: they are not what it was to be found by.
        trouble.append(f"spec.interfaceName: {interface!r}: no interface has such a name")
        interface, where = "", frozenset()
    # What lies in no namespace must not claim to.
    labels = {k: v for k, v in value.metadata.labels.items() if k != NAMESPACE_LABEL}
    item = Item(
        tuple(sorted(labels.items())),
        tuple(spec.profiles),
        tuple(dict.fromkeys(map(str, addresses))),
        named_ports(value.spec.ports),
    )
    return HostFacts(key, spec.node, interface, where, item), "; ".join(trouble)


def _addresses(texts: list[str]) -> tuple[list[IPAddress], list[str]]:
    addresses, bad = [], []
    for text in texts:
        try:
            if "%" in text:
                raise ValueError(text)
            addresses.append(ip_address(text))
        except ValueError:
            bad.append(text)
    return addresses, bad
