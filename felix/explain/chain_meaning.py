"""What a chain of the kernel stands for, as a value and as JSON.

Tested in tests/felix/explain/test_reverse.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from felix.rules import names
from libcalico.errors import MuslinError
from libcalico.model import ResourceKey

STATIC = {
    "cali-INPUT": "what arrives for the host itself",
    "cali-OUTPUT": "what the host itself sends",
    "cali-FORWARD": "what the host forwards",
    "cali-PREROUTING": "everything that arrives, before it is routed",
    "cali-POSTROUTING": "everything that leaves, after it was routed",
    "cali-rpf-skip": "workloads that may use other source addresses than their own",
    "cali-nat-outgoing": "what pods of pools with natOutgoing send beyond all pools",
    "cali-fip-dnat": "from a floating address to the pod that it leads to",
    "cali-fip-snat": "what a pod sends to its own floating address",
    "cali-cidr-block": "addresses of services that no proxy translated: they do not leave the node",
    "cali-ipvs-in": "what arrives for the host, of which IPVS may take some: marked",
    "cali-ipvs-out": "what IPVS sends on: the policy of its sender and of its receiver",
    "cali-ipvs-from": "from a pod's address to its egress chain",
    names.WORKLOAD_TO_HOST: "what pods send to their own node: their egress policy, then"
    " defaultEndpointToHostAction",
    names.FROM_WORKLOAD_DISPATCH: "from a pod's interface to its egress chain",
    names.TO_WORKLOAD_DISPATCH: "to a pod's interface: its ingress chain",
    names.FROM_HOST_DISPATCH: "from an interface of the host to its host endpoint's chain",
    names.TO_HOST_DISPATCH: "to an interface of the host: its host endpoint's chain",
    names.FROM_FORWARD_DISPATCH: "forwarded, in by an interface of the host: applyOnForward",
    names.TO_FORWARD_DISPATCH: "forwarded, out by an interface of the host: applyOnForward",
    names.FAILSAFE_IN: "failsafeInboundHostPorts of felix",
    names.FAILSAFE_OUT: "failsafeOutboundHostPorts of felix",
}
"""The chains that every node has, and what each is for."""


@dataclass(frozen=True, slots=True)
class KernelRule:
    """A rule of a chain, its number from 1: `field` and `written` of the rule behind it."""

    number: int
    text: str
    field: str = ""
    written: str = ""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a chain stands for, and its rules where they are known."""

    chain: str
    table: str
    title: str
    tier: str = ""
    policy: ResourceKey | None = None
    endpoint: ResourceKey | None = None
    node: str = ""
    direction: str = ""
    version: int = 4
    rules: tuple[KernelRule, ...] = field(default=())


def only(meaning: Meaning, number: int) -> Meaning:
    """The meaning with one rule of the chain. Raises MuslinError if there is none."""
    rules = tuple(rule for rule in meaning.rules if rule.number == number)
    if not rules:
        known = f"it has {len(meaning.rules)}" if meaning.rules else "its rules are not known here"
        raise MuslinError(f"{meaning.chain} has no rule {number}: {known}")
    return replace(meaning, rules=rules)


def as_tree(meaning: Meaning) -> dict[str, object]:
    """A meaning as plain values."""
    return {
        "chain": meaning.chain,
        "table": meaning.table,
        "title": meaning.title,
        "tier": meaning.tier,
        "policy": None if meaning.policy is None else meaning.policy._asdict(),
        "endpoint": None if meaning.endpoint is None else meaning.endpoint._asdict(),
        "node": meaning.node,
        "direction": meaning.direction,
        "ipVersion": meaning.version,
        "rules": [
            {
                "number": rule.number,
                "text": rule.text,
                "field": rule.field,
                "rule": json.loads(rule.written) if rule.written else None,
            }
            for rule in meaning.rules
        ],
    }
