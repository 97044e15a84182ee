"""The rules in CEL of policies and their rules, staged ones and all.

Tested in tests/libcalico/test_crds.py and tests/apiserver/test_crds.py.
"""

from __future__ import annotations

from libcalico.crds.cel_words import Rule, among, some, true
from libcalico.model.base.base import Struct
from libcalico.model.validation.rules import ICMP, ICMPV6, TCP, WITH_PORTS

POLICY_RULE = (
    Rule(
        f"!has(self.icmp) || (has(self.protocol) && {among('protocol', ICMP | ICMPV6)})",
        "icmp needs protocol ICMP or ICMPv6",
        "icmp",
    ),
    *(
        Rule(
            f"!(has(self.ipVersion) && has(self.{name}) && self.ipVersion == {version})"
            f" || !{among(name, protocols)}",
            f"{name} is not of the family that ipVersion says",
            name,
        )
        for name in ("protocol", "notProtocol")
        for version, protocols in ((6, ICMP), (4, ICMPV6))
    ),
    Rule("!has(self.http) || self.action == 'Allow'", "http is allowed in Allow rules", "http"),
    Rule(
        f"!(has(self.http) && has(self.protocol)) || {among('protocol', TCP)}",
        "http needs protocol TCP, or none",
        "http",
    ),
    *(
        Rule(
            f"!(has(self.{side}) && has(self.{side}.{ports}) && size(self.{side}.{ports}) > 0)"
            f" || (has(self.protocol) ? {among('protocol', WITH_PORTS)}"
            f" : self.{side}.{ports}.all(p, type(p) == string))",
            f"{ports} need protocol TCP, UDP or SCTP",
            f"{side}.{ports}",
        )
        for side in ("source", "destination")
        for ports in ("ports", "notPorts")
    ),
    *(
        Rule(
            f"!(has(self.{side}) && has(self.{side}.services) && has(self.{side}.{name})"
            f" && size(self.{side}.{name}) > 0)",
            f"{name} is not allowed together with services",
            f"{side}.{name}",
        )
        for side in ("source", "destination")
        for name in ("selector", "notSelector", "namespaceSelector", "nets", "notNets")
    ),
    *(
        Rule(
            f"!(has(self.destination) && has(self.destination.services)"
            f" && has(self.destination.{name}) && size(self.destination.{name}) > 0)",
            f"{name} are not allowed together with services",
            f"destination.{name}",
        )
        for name in ("ports", "notPorts")
    ),
    *(
        Rule(
            f"!(has(self.{side}) && has(self.{side}.services) && has(self.{side}.serviceAccounts))",
            "serviceAccounts is not allowed together with services",
            f"{side}.serviceAccounts",
        )
        for side in ("source", "destination")
    ),
)

_FORWARD = "{0} needs applyOnForward"
GLOBAL_POLICY = (
    Rule(
        f"!({true('doNotTrack')} && {true('preDNAT')})",
        "preDNAT is not allowed together with doNotTrack",
        "preDNAT",
    ),
    *(
        Rule(f"!{true(name)} || {true('applyOnForward')}", _FORWARD.format(name), "applyOnForward")
        for name in ("doNotTrack", "preDNAT")
    ),
    Rule(
        f"!({true('preDNAT')} && {some('egress')})",
        "egress rules are not allowed with preDNAT",
        "egress",
    ),
    Rule(
        f"!{true('preDNAT')} || !has(self.types) || !self.types.exists(t, t == 'Egress')",
        "type Egress is not allowed with preDNAT",
        "types",
    ),
    *(
        Rule(
            f"!has(self.{direction}) || self.{direction}.all(r, !has(r.{side})"
            f" || !has(r.{side}.services) || has(r.{side}.services.namespace))",
            "services need a namespace in a GlobalNetworkPolicy",
            direction,
        )
        for direction, side in (("ingress", "source"), ("egress", "destination"))
    ),
)


def directions() -> tuple[Rule, ...]:
    """Matches that a policy's rules (not a profile's) may have in one direction only."""
    rules = [
        Rule(
            f"!has(self.{direction}) || self.{direction}.all(r, !has(r.{side})"
            f" || !has(r.{side}.services))",
            "services stand in the source of ingress or the destination of egress rules",
            direction,
        )
        for direction, side in (("ingress", "destination"), ("egress", "source"))
    ]
    rule = "!has(self.egress) || self.egress.all(r, !has(r.http))"
    return (*rules, Rule(rule, "http is not allowed in egress rules", "egress"))


def deleting(type_: type[Struct]) -> tuple[Rule, ...]:
    """A staged policy that stands for a deletion has no other field."""
    rules = []
    for name in type_.__struct_fields__:
        if name in ("stagedAction", "tier"):
            continue
        empty = f"!has(self.{name})"
        if name in ("doNotTrack", "preDNAT", "applyOnForward"):
            empty += f" || !self.{name}"
        elif name == "podSelector":
            empty += (
                " || ((!has(self.podSelector.matchLabels) || size(self.podSelector.matchLabels)"
                " == 0) && (!has(self.podSelector.matchExpressions)"
                " || size(self.podSelector.matchExpressions) == 0))"
            )
        elif name != "order":
            empty += f" || size(self.{name}) == 0"
        if name == "types":
            empty += " || self.types == ['Ingress']"
        message = f"{name} must be empty with stagedAction Delete"
        deleting = "(has(self.stagedAction) && self.stagedAction == 'Delete')"
        rules.append(Rule(f"!{deleting} || {empty}", message, name))
    return tuple(rules)
