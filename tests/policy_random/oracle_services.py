"""Services in the oracle: who stands behind one, and what a rule with one means.

Written from the data model (docs/reference/data-model.md#networkpolicy) and the dataplane reference
(docs/reference/dataplane.md#calculation): the source of an ingress rule is an
address of the service, the destination of an egress rule an address with a port of it. Where it
is not told which endpoints stand behind services, a rule with one must not be wider than asked: an
Allow rule is left out, a Deny rule applies without the match, a Pass rule denies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

Document = dict[str, Any]
Address = IPv4Address | IPv6Address
NUMBERS = {"TCP": 6, "UDP": 17, "SCTP": 132}
SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass
class Behind:
    """Who stands behind one service."""

    addresses: set[Address] = field(default_factory=set)
    ends: set[tuple[Address, int, int]] = field(default_factory=set)


def services(slices: Iterable[Document]) -> dict[tuple[str, str], Behind]:
    """(namespace, name) -> who stands behind it."""
    found: dict[tuple[str, str], Behind] = {}
    for one in slices:
        metadata = one["metadata"]
        key = (metadata["namespace"], metadata["labels"][SERVICE_LABEL])
        behind = found.setdefault(key, Behind())
        for endpoint in one["endpoints"]:
            for text in endpoint["addresses"]:
                address = ip_address(text)
                behind.addresses.add(address)
                behind.ends |= {
                    (address, NUMBERS[port["protocol"]], port["port"]) for port in one["ports"]
                }
    return found


def effective(raw: Document, known: bool) -> Document | None:
    """A rule as it is to be judged: None when it is left out."""
    named = [side for side in ("source", "destination") if (raw.get(side) or {}).get("services")]
    if known or not named:
        return raw
    if raw["action"] in ("Allow", "Log"):
        return None
    rest = {
        side: {name: value for name, value in raw[side].items() if name != "services"}
        for side in named
    }
    return {**raw, **rest, "action": "Deny"}
