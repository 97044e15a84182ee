"""Rules of the first generation as v3 rules.

Differences: `net` beside `nets`, tags beside selectors, lower-case actions and protocols,
networks with bits behind the mask, the label `calico/k8s_ns`.

Calico's own migration joined `notSelector` and `notTag` by "and", so it let an endpoint through
that only one of the two excluded. Both exclude, so they are joined by "or" here.
Tested in tests/libcalico/test_legacy.py and tests/calicoctl/test_legacy.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

import msgspec

from libcalico.errors import InvalidValue
from libcalico.legacy.shapes import V1EntityRule, V1Rule

OLD_NAMESPACE_LABEL, NAMESPACE_LABEL = "calico/k8s_ns", "projectcalico.org/namespace"
_ACTIONS = {"allow": "Allow", "deny": "Deny", "log": "Log", "pass": "Pass", "next-tier": "Pass"}
_PROTOCOLS = ("TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite")
_BY_NAME = {protocol.lower(): protocol for protocol in _PROTOCOLS}


def rules(legacy_rules: Sequence[V1Rule], where: str, subject: str) -> list[dict[str, object]]:
    """The v3 trees of rules. Raises InvalidValue for an action or a network that is none."""
    return [_rule(rule, f"{where}[{index}]", subject) for index, rule in enumerate(legacy_rules)]


def selector(text: str) -> str:
    """A selector with the namespace's label as v3 names it."""
    return text.replace(OLD_NAMESPACE_LABEL, NAMESPACE_LABEL)


def protocol(value: int | str | None) -> int | str | None:
    """A protocol with its v3 name; other text stays, for validation to name."""
    return _BY_NAME.get(value.lower(), value) if isinstance(value, str) else value


def _rule(rule: V1Rule, where: str, subject: str) -> dict[str, object]:
    action = _ACTIONS.get(rule.action.lower())
    if action is None:
        allowed = "must be one of allow, deny, log, pass"
        raise InvalidValue(f"{where}.action", rule.action, allowed, subject)
    tree: dict[str, object] = {
        "action": action,
        "ipVersion": rule.ipVersion,
        "protocol": protocol(rule.protocol),
        "icmp": msgspec.to_builtins(rule.icmp),
        "notProtocol": protocol(rule.notProtocol),
        "notICMP": msgspec.to_builtins(rule.notICMP),
        "source": _side(rule.source, f"{where}.source", subject),
        "destination": _side(rule.destination, f"{where}.destination", subject),
    }
    return {name: value for name, value in tree.items() if value not in (None, {})}


def _side(side: V1EntityRule, where: str, subject: str) -> dict[str, object]:
    tree = {
        "nets": _networks(side.nets, side.net, f"{where}.net", subject),
        "selector": _joined(side.selector, side.tag, "&&"),
        "ports": list(side.ports),
        "notNets": _networks(side.notNets, side.notNet, f"{where}.notNet", subject),
        "notSelector": _joined(side.notSelector, side.notTag, "||"),
        "notPorts": list(side.notPorts),
    }
    return {name: value for name, value in tree.items() if value}


def _joined(text: str, tag: str, operator: str) -> str:
    text = selector(text)
    if not tag:
        return text
    return f"({text}) {operator} {tag} == ''" if text else f"{tag} == ''"


def _networks(several: Sequence[str], single: str, where: str, subject: str) -> list[str]:
    networks = []
    named = [(f"{where}s[{index}]", text) for index, text in enumerate(several)]
    for field, text in [*named, *([(where, single)] if single else [])]:
        try:
            networks.append(str(ip_network(text, strict=False)))
        except ValueError:
            raise InvalidValue(field, text, "must be a CIDR or an address", subject) from None
    return networks
