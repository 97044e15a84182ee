"""From stored rules to resolved rules: selectors become sets, texts become values.

What Calico accepts and the data plane lacks (services, http) is left in `unenforced`, so
that the rule model can keep access from widening (POL-1): it leaves out such an allow rule
and applies such a deny rule without the match. Two verbs are settled here: a pass rule
becomes a deny rule, for without it a later allow rule could take what the pass was to send
to the next tier; a log rule, which decides nothing, is left out.

What Calico refuses raises `InvalidValue`: nobody knows what such a rule means, and its whole
policy closes (`felix.calc.policy.facts`).

Tested in tests/felix/test_policy_rules_resolved.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from felix.calc.labels import WITH_PORTS, protocol_number
from felix.calc.policy.items import IPNetwork, read_network
from felix.calc.policy.sets import SetNeed, port_set, selector_set
from felix.calc.policy_model import EntityMatch, ResolvedRule, Verb
from libcalico.errors import InvalidValue
from libcalico.model import EntityRule, Rule
from libcalico.model.rules import ICMPFields
from libcalico.policy_selectors import entity_selector
from libcalico.selectors import Selector, parse

VERBS = {"allow": Verb.ALLOW, "deny": Verb.DENY, "pass": Verb.PASS, "log": Verb.LOG}
ICMP_VERSIONS = {1: 4, 58: 6}
DEFAULT_PORT_PROTOCOL = 6
EVERYONE = parse("all()")


@dataclass(frozen=True, slots=True)
class Rules:
    """Resolved rules, the sets they need (each once), and what of them is not enforced."""

    rules: tuple[ResolvedRule, ...]
    needs: tuple[SetNeed, ...] = ()
    unenforced: tuple[str, ...] = ()


def resolve(rules: Sequence[Rule], field: str, namespace: str = "") -> Rules:
    """The rules of one direction, `field` being its name (`spec.ingress`).

    `namespace` is that of a NetworkPolicy, else empty. Raises InvalidValue naming the field.
    """
    needs: dict[str, SetNeed] = {}
    found: list[ResolvedRule] = []
    unenforced: list[str] = []
    for number, rule in enumerate(rules):
        where = f"{field}[{number}]"
        resolved = _Reader(where, namespace, needs).rule(rule)
        unenforced += [f"{where}.{lacking}" for lacking in resolved.unenforced]
        if resolved.unenforced and resolved.verb is Verb.LOG:
            continue
        found.append(resolved)
    return Rules(tuple(found), tuple(needs.values()), tuple(unenforced))


class _Reader:
    def __init__(self, where: str, namespace: str, needs: dict[str, SetNeed]) -> None:
        self._where, self._namespace, self._needs = where, namespace, needs

    def rule(self, rule: Rule) -> ResolvedRule:
        protocol = self._protocol("protocol", rule.protocol)
        not_protocol = self._protocol("notProtocol", rule.notProtocol)
        icmp = self._icmp("icmp", rule.icmp, protocol)
        not_icmp = self._icmp("notICMP", rule.notICMP, protocol)
        unenforced = [
            f"{side}.services"
            for side, entity in (("source", rule.source), ("destination", rule.destination))
            if entity.services is not None
        ]
        if rule.http is not None:
            unenforced.append("http")
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

    def _icmp(
        self, field: str, value: ICMPFields | None, protocol: int | None
    ) -> tuple[int | None, int | None] | None:
        if value is None:
            return None
        if protocol not in ICMP_VERSIONS:
            raise self._bad(field, protocol, "needs protocol ICMP or ICMPv6")
        if value.type is None and value.code is not None:
            raise self._bad(f"{field}.code", value.code, "needs a type")
        for name, number, most in (("type", value.type, 254), ("code", value.code, 255)):
            if number is not None and not 0 <= number <= most:
                raise self._bad(f"{field}.{name}", number, f"must be 0 to {most}")
        return (value.type, value.code)

    def _version(self, rule: Rule, protocol: int | None, icmp: object) -> int | None:
        version = rule.ipVersion
        if version not in (None, 4, 6):
            raise self._bad("ipVersion", version, "must be 4 or 6")
        if icmp is None or protocol is None:
            return version
        wanted = ICMP_VERSIONS[protocol]
        if version not in (None, wanted):
            raise self._bad("ipVersion", version, f"must be {wanted} with this protocol")
        return wanted

    def _entity(self, side: str, entity: EntityRule, protocol: int | None) -> EntityMatch:
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
        return EntityMatch(
            nets=self._nets(f"{side}.nets", entity.nets),
            not_nets=self._nets(f"{side}.notNets", entity.notNets),
            sets=() if selector is None or covered else (self._need(selector_set(selector)),),
            not_sets=() if excluded is None else (self._need(selector_set(excluded)),),
            ports=ports,
            named_ports=tuple(self._need(port_set(scope, kind, name)) for name in names),
            not_ports=not_ports,
            not_named_ports=tuple(self._need(port_set(scope, kind, name)) for name in not_names),
            services=self._services(entity),
        )

    def _need(self, need: SetNeed) -> str:
        self._needs[need.id] = need
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
        ranges, names = [], []
        for value in values:
            if isinstance(value, int):
                ranges.append((value, value))
            elif ":" in value:
                first, _, last = value.partition(":")
                ranges.append((int(first), int(last)))
            else:
                names.append(value)
        allowed = {*WITH_PORTS, None} if names and not ranges else {*WITH_PORTS}
        if values and protocol not in allowed:
            raise self._bad(field, list(values), "needs protocol TCP, UDP or SCTP")
        return tuple(dict.fromkeys(ranges)), tuple(dict.fromkeys(names))

    def _services(self, entity: EntityRule) -> tuple[str, ...]:
        if entity.services is None:
            return ()
        return (f"{entity.services.namespace or self._namespace}/{entity.services.name}",)
