"""Rules of one policy rule, whichever resource it stands in
(docs/reference/data-model.md#networkpolicy, #ports-and-protocols).

A rule that contradicts itself, or that no data plane could match, is refused where it is
written: a data plane could only skip it in silence.
Tested in tests/libcalico/test_validate_policy.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from libcalico.model.resources.rules import EntityRule, HTTPMatch, ICMPFields, Rule, ServiceMatch
from libcalico.model.validation.checks import Problems, indexed

ACTIONS = ("Allow", "Deny", "Log", "Pass")
PROTOCOLS = ("TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite")
WITH_PORTS: frozenset[int | str] = frozenset({"TCP", "UDP", "SCTP", 6, 17, 132})
ICMP: frozenset[int | str | None] = frozenset({"ICMP", 1})
ICMPV6: frozenset[int | str | None] = frozenset({"ICMPv6", 58})
TCP: frozenset[int | str | None] = frozenset({"TCP", 6, None})
MAX_RULES, MAX_NETS, MAX_PORTS = 1024, 256, 50
MAX_HTTP, MAX_PATH = 20, 1024
GLOBAL = "global()"


def check_rules(problems: Problems, field: str, rules: Sequence[Rule]) -> None:
    """Check the rules of one direction of a policy or profile."""
    problems.entries(field, rules, MAX_RULES)
    for where, rule in indexed(field, rules):
        _rule(problems, where, rule)


def check_direction(problems: Problems, field: str, rules: Sequence[Rule], ingress: bool) -> None:
    """Check the matches that a policy may have in one direction only: services and HTTP."""
    wrong = "destination" if ingress else "source"
    for where, rule in indexed(field, rules):
        if getattr(rule, wrong).services is not None:
            rule_text = "services stand in the source of ingress or the destination of egress rules"
            problems.add(f"{where}.{wrong}.services", "...", rule_text)
        if rule.http is not None and not ingress:
            problems.add(f"{where}.http", "...", "is not allowed in an egress rule")


def _rule(problems: Problems, where: str, rule: Rule) -> None:
    problems.one_of(f"{where}.action", rule.action, ACTIONS, empty=False)
    if rule.ipVersion not in (None, 4, 6):
        problems.add(f"{where}.ipVersion", rule.ipVersion, "must be 4 or 6")
    for name in ("protocol", "notProtocol"):
        _protocol(problems, f"{where}.{name}", getattr(rule, name), rule.ipVersion)
    for name in ("icmp", "notICMP"):
        _icmp(problems, f"{where}.{name}", getattr(rule, name))
    if rule.icmp is not None and rule.protocol not in ICMP | ICMPV6:
        problems.add(f"{where}.icmp", "...", "needs protocol ICMP or ICMPv6")
    for side in ("source", "destination"):
        _entity(problems, f"{where}.{side}", getattr(rule, side), rule.protocol)
    _families(problems, where, rule)
    if rule.http is not None:
        _http(problems, f"{where}.http", rule.http, rule)
    if rule.metadata is not None:
        problems.annotations(f"{where}.metadata.annotations", rule.metadata.annotations)


def _protocol(
    problems: Problems, field: str, protocol: int | str | None, version: int | None
) -> None:
    if protocol is None:
        return
    if isinstance(protocol, str):
        if protocol not in PROTOCOLS:
            rule = f"must be one of {', '.join(PROTOCOLS)}, or a number from 1 to 255"
            problems.add(field, protocol, rule)
    elif not 1 <= protocol <= 255:
        problems.add(field, protocol, "must be 1 to 255")
    if protocol in ICMP and version == 6:
        problems.add(field, protocol, "ICMP is of IPv4: ipVersion must be 4 or absent")
    if protocol in ICMPV6 and version == 4:
        problems.add(field, protocol, "ICMPv6 is of IPv6: ipVersion must be 6 or absent")


def _icmp(problems: Problems, field: str, icmp: ICMPFields | None) -> None:
    if icmp is None:
        return
    problems.limits(f"{field}.type", icmp.type, 0, 254)
    problems.limits(f"{field}.code", icmp.code, 0, 255)
    if icmp.code is not None and icmp.type is None:
        problems.add(f"{field}.code", icmp.code, "needs a type")


def _entity(problems: Problems, where: str, entity: EntityRule, protocol: int | str | None) -> None:
    problems.selector(f"{where}.selector", entity.selector)
    problems.selector(f"{where}.notSelector", entity.notSelector)
    if entity.namespaceSelector.replace(" ", "").replace("\t", "") != GLOBAL:
        problems.selector(f"{where}.namespaceSelector", entity.namespaceSelector)
    for name in ("nets", "notNets"):
        _nets(problems, f"{where}.{name}", getattr(entity, name), name == "notNets")
    for name in ("ports", "notPorts"):
        _ports(problems, f"{where}.{name}", getattr(entity, name), protocol)
    accounts = entity.serviceAccounts
    if accounts is not None:
        problems.selector(f"{where}.serviceAccounts.selector", accounts.selector)
        for field, name in indexed(f"{where}.serviceAccounts.names", accounts.names):
            if "'" in name or '"' in name:
                # Names become a selector, whose strings have no escapes.
                problems.add(field, name, "must hold no quotes")
    if entity.services is not None:
        _services(problems, where, entity, entity.services)


def _nets(problems: Problems, field: str, nets: Sequence[str], negated: bool) -> None:
    problems.entries(field, nets, MAX_NETS)
    for where, net in indexed(field, nets):
        before = len(problems)
        if "/" not in net:
            problems.add(where, net, "must be a CIDR with a prefix length, such as 10.0.0.1/32")
        else:
            problems.network(where, net)
        if negated and len(problems) == before and ip_network(net).prefixlen == 0:
            problems.add(where, net, "must not be everything: the rule would match nothing")


def _ports(
    problems: Problems, field: str, ports: Sequence[int | str], protocol: int | str | None
) -> None:
    problems.entries(field, ports, MAX_PORTS)
    numeric = False
    for where, port in indexed(field, ports):
        canonical = problems.port(where, port)
        if isinstance(canonical, str) and ":" not in canonical:
            problems.port_name(where, canonical)
        elif canonical is not None:
            numeric = True
    if protocol is None and numeric:
        problems.add(field, list(ports), "numeric ports need protocol TCP, UDP or SCTP")
    elif protocol is not None and ports and protocol not in WITH_PORTS:
        problems.add(
            field, list(ports), f"protocol {protocol} has no ports; TCP, UDP and SCTP have"
        )


def _services(problems: Problems, where: str, entity: EntityRule, services: ServiceMatch) -> None:
    problems.name(f"{where}.services.name", services.name, "must name a service")
    problems.name(f"{where}.services.namespace", services.namespace)
    excluded = ["selector", "notSelector", "namespaceSelector", "nets", "notNets"]
    if where.endswith(".destination"):
        excluded += ["ports", "notPorts"]
    for name in excluded:
        if getattr(entity, name):
            problems.add(f"{where}.{name}", getattr(entity, name), "not together with services")
    if entity.serviceAccounts is not None:
        problems.add(f"{where}.serviceAccounts", "...", "not together with services")


def _families(problems: Problems, where: str, rule: Rule) -> None:
    """Networks of both sides, positive and negative, are of one family, and of ipVersion's."""
    first: int | None = None
    for side in ("source", "destination"):
        for name in ("nets", "notNets"):
            nets = getattr(getattr(rule, side), name)
            for field, net in indexed(f"{where}.{side}.{name}", nets):
                try:
                    version = ip_network(net, strict=False).version
                except ValueError:
                    continue
                if rule.ipVersion in (4, 6) and version != rule.ipVersion:
                    problems.add(field, net, f"must be of IPv{rule.ipVersion} as ipVersion says")
                elif first is not None and version != first:
                    problems.add(field, net, f"must be of IPv{first} as other networks of the rule")
                first = first or version


def _http(problems: Problems, field: str, http: HTTPMatch, rule: Rule) -> None:
    if rule.action != "Allow":
        problems.add(field, "...", "is allowed in rules with action Allow only")
    if rule.protocol not in TCP:
        problems.add(field, "...", "needs protocol TCP, or none")
    problems.entries(f"{field}.methods", http.methods, MAX_HTTP)
    problems.entries(f"{field}.paths", http.paths, MAX_HTTP)
    for index, method in enumerate(http.methods):
        if method in http.methods[:index]:
            problems.add(f"{field}.methods[{index}]", method, "is there already")
    for where, path in indexed(f"{field}.paths", http.paths):
        if bool(path.exact) == bool(path.prefix):
            problems.add(where, path.exact, "must have one of exact and prefix")
            continue
        text = path.exact or path.prefix
        name = "exact" if path.exact else "prefix"
        problems.length(f"{where}.{name}", text, MAX_PATH)
        if not text.startswith("/") or any(character in text for character in "?# "):
            rule_text = "must begin with / and have no '?', '#' or space"
            problems.add(f"{where}.{name}", text, rule_text)
