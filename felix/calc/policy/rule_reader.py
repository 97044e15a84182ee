"""Reads one stored rule: selectors become sets, texts become values.

Tested in tests/felix/calc/policy/test_rules.py, test_services.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from felix.calc.labels import WITH_PORTS, protocol_number
from felix.calc.policy_model import ANYONE, EntityMatch, ResolvedRule, Verb
from felix.calc.sets.items import IPNetwork, read_network
from felix.calc.sets.service_sets import Need, ServiceNeed, service_set
from felix.calc.sets.set_needs import port_set, selector_set
from libcalico.errors import InvalidValue
from libcalico.model import EntityRule, Rule
from libcalico.model.base import numorstring
from libcalico.model.resources.rules import ICMPFields
from libcalico.policy_selectors import entity_selector
from libcalico.selectors.selectors import Selector, parse

VERBS = {"allow": Verb.ALLOW, "deny": Verb.DENY, "pass": Verb.PASS, "log": Verb.LOG}
ICMP_VERSIONS = {1: 4, 58: 6}
DEFAULT_PORT_PROTOCOL = 6
EVERYONE = parse("all()")
NOTHING_SAID = EntityRule()


class RuleReader:
    """Reads one rule; `needs` collects the sets that it refers to."""

    def __init__(
        self, where: str, namespace: str, needs: dict[str, Need], service_side: str | None
    ) -> None:
        self._where, self._namespace, self.needs = where, namespace, needs
        self._service_side = service_side

    def rule(self, rule: Rule) -> ResolvedRule:
        """The rule with its selectors as sets and its texts as values. Raises InvalidValue."""
        protocol = self._protocol("protocol", rule.protocol)
        not_protocol = self._protocol("notProtocol", rule.notProtocol)
        icmp = self._icmp("icmp", rule.icmp)
        if rule.icmp is not None and protocol not in ICMP_VERSIONS:
            raise self._bad("icmp", protocol, "needs protocol ICMP or ICMPv6")
        # What is no ICMP has no type: nothing is excluded.
        exempt = protocol is not None and protocol not in ICMP_VERSIONS
        not_icmp = None if exempt else self._icmp("notICMP", rule.notICMP)
        unenforced = [
            f"{side}.services"
            for side, entity in (("source", rule.source), ("destination", rule.destination))
            if entity.services is not None and self._service(side, entity) is None
        ]
        if rule.http is not None:
            unenforced.append("http")
        # No one rule excludes a protocol and a type of another; and "no type" excludes what?
        crowded = not_icmp is None or (protocol is None and not_protocol is not None)
        if rule.notICMP is not None and not exempt and crowded:
            unenforced.append("notICMP")
            not_icmp = None
        annotations = rule.metadata.annotations if rule.metadata is not None else {}
        return ResolvedRule(
            verb=self._verb(rule.action, bool(unenforced)),
            version=self._version(rule, protocol, icmp or not_icmp),
            protocol=protocol,
            not_protocol=not_protocol,
            icmp=icmp,
            not_icmp=not_icmp,
            source=self._entity("source", rule.source, protocol),
            destination=self._entity("destination", rule.destination, protocol),
            annotations=tuple(sorted(annotations.items())),
            unenforced=tuple(unenforced),
        )

    def _bad(self, field: str, value: object, rule: str) -> InvalidValue:
        return InvalidValue(f"{self._where}.{field}", value, rule)

    def _verb(self, action: str, lacking: bool) -> Verb:
        verb = VERBS.get(action.lower())
        if verb is None:
            raise self._bad("action", action, "must be Allow, Deny, Log or Pass")
        return Verb.DENY if lacking and verb is Verb.PASS else verb

    def _protocol(self, field: str, value: int | str | None) -> int | None:
        if value is None:
            return None
        number = protocol_number(value)
        if number is None:
            raise self._bad(field, value, "must be a protocol's name or 1 to 255")
        return number

    def _icmp(self, field: str, value: ICMPFields | None) -> tuple[int | None, int | None] | None:
        if value is None:
            return None
        if value.type is None and value.code is not None:
            raise self._bad(f"{field}.code", value.code, "needs a type")
        for name, number, most in (("type", value.type, 254), ("code", value.code, 255)):
            if number is not None and not 0 <= number <= most:
                raise self._bad(f"{field}.{name}", number, f"must be 0 to {most}")
        return None if value.type is None else (value.type, value.code)

    def _version(self, rule: Rule, protocol: int | None, icmp: object) -> int | None:
        version = rule.ipVersion
        if version not in (None, 4, 6):
            raise self._bad("ipVersion", version, "must be 4 or 6")
        if icmp is None or protocol is None:
            return version
        implied = ICMP_VERSIONS[protocol]
        if version not in (None, implied):
            raise self._bad("ipVersion", version, f"must be {implied} with this protocol")
        return implied

    def _entity(self, side: str, entity: EntityRule, protocol: int | None) -> EntityMatch:
        if entity == NOTHING_SAID:
            return ANYONE
        selector = self._selector(f"{side}.selector", entity)
        excluded = self._parse(f"{side}.notSelector", entity.notSelector)
        if selector is not None and excluded is not None:
            selector = parse(f"({selector.text}) && (!({excluded.text}))")
            excluded = None
        ports, names = self._ports(f"{side}.ports", entity.ports, protocol)
        not_ports, not_names = self._ports(f"{side}.notPorts", entity.notPorts, protocol)
        scope = selector or EVERYONE
        kind = WITH_PORTS[protocol or DEFAULT_PORT_PROTOCOL] if names or not_names else ""
        # A set of named ports holds only whom the selector matches: it says all.
        covered = names and not ports
        service = self._service(side, entity)
        sets = [] if selector is None or covered else [self._need(selector_set(selector))]
        if service is not None and not service.ports:
            sets.append(self._need(service))
        return EntityMatch(
            nets=self._nets(f"{side}.nets", entity.nets),
            not_nets=self._nets(f"{side}.notNets", entity.notNets),
            sets=tuple(sets),
            not_sets=() if excluded is None else (self._need(selector_set(excluded)),),
            ports=ports,
            named_ports=tuple(self._need(port_set(scope, kind, name)) for name in names),
            not_ports=not_ports,
            not_named_ports=tuple(self._need(port_set(scope, kind, name)) for name in not_names),
            services=(self._need(service),) if service is not None and service.ports else (),
        )

    def _need(self, need: Need) -> str:
        self.needs[need.id] = need
        return need.id

    def _parse(self, field: str, text: str) -> Selector | None:
        if not text:
            return None
        try:
            return parse(text)
        except InvalidValue as error:
            raise self._bad(field, text, f"must be a selector: {error.rule}") from None

    def _selector(self, field: str, entity: EntityRule) -> Selector | None:
        # Alone first: texts are joined, and an odd parenthesis must not escape its own.
        self._parse(field, entity.selector)
        try:
            text = entity_selector(entity, self._namespace)
        except InvalidValue as error:
            raise self._bad(field, error.value, f"must be a selector: {error.rule}") from None
        return self._parse(field, text)

    def _nets(self, field: str, texts: Sequence[str]) -> tuple[IPNetwork, ...]:
        try:
            return tuple(dict.fromkeys(map(read_network, texts)))
        except ValueError:
            raise self._bad(field, list(texts), "must be CIDRs") from None

    def _ports(
        self, field: str, values: Sequence[int | str], protocol: int | None
    ) -> tuple[tuple[tuple[int, int], ...], tuple[str, ...]]:
        """Ranges and names."""
        if not values:
            return (), ()
        ranges: list[tuple[int, int]] = []
        names: list[str] = []
        for value in values:
            try:
                port = numorstring.port(value)
            except ValueError as error:
                raise self._bad(field, value, str(error)) from None
            if isinstance(port, int):
                ranges.append((port, port))
            elif ":" in port:
                first, _, last = port.partition(":")
                ranges.append((int(first), int(last)))
            else:
                names.append(port)
        allowed = {*WITH_PORTS, None} if names and not ranges else {*WITH_PORTS}
        if values and protocol not in allowed:
            raise self._bad(field, list(values), "needs protocol TCP, UDP or SCTP")
        return tuple(dict.fromkeys(ranges)), tuple(dict.fromkeys(names))

    def _service(self, side: str, entity: EntityRule) -> ServiceNeed | None:
        """The set of a service, with ports where it is what is reached; None: not enforced."""
        if entity.services is None or side != self._service_side:
            return None
        namespace = entity.services.namespace or self._namespace
        if not (namespace and entity.services.name):
            return None
        return service_set(namespace, entity.services.name, ports=side == "destination")
