"""From stored rules to resolved rules: selectors become sets, texts become values.

What Calico accepts and the data plane lacks stays in `unenforced`: http, and services whose
endpoints are unknown or where Calico takes none. So the rule model can keep access from
widening (POL-1): it leaves out such an allow rule and applies such a deny rule without the
match.

Two actions are decided here. A pass rule becomes a deny rule: without it a later allow rule
could accept what the pass was to send to the next tier. A log rule, which decides nothing, is
left out.

What Calico refuses raises `InvalidValue`. The meaning of such a rule is unknown, so its whole
policy closes (`felix.calc.policy.facts`).

Tested in tests/felix/calc/policy/test_rules.py, test_services.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from felix.calc.policy.rule_reader import ICMP_VERSIONS, RuleReader
from felix.calc.policy_model import ResolvedRule, Verb
from felix.calc.sets.service_sets import Need
from libcalico.errors import InvalidValue
from libcalico.model import Rule

SERVICE_SIDES = {"spec.ingress": "source", "spec.egress": "destination"}
"""The only side of a rule that may name a service, by direction
(docs/reference/data-model.md#networkpolicy)."""

AT_ONCE = 20
"""Rules that are read in one step: some milliseconds."""
MOST_KNOWN = 40_000
"""Rules that were read once: policies of a kind repeat them, and then share what they mean."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Resolved rules, the sets they need (each once), and what of them is not enforced."""

    rules: tuple[ResolvedRule, ...]
    needs: tuple[Need, ...] = ()
    unenforced: tuple[str, ...] = ()


_known: dict[tuple[bytes, str, str | None], Rules] = {}
_encode = msgspec.msgpack.Encoder().encode


def resolve(
    rules: Sequence[Rule], field: str, namespace: str = "", *, services: bool = False
) -> Rules:
    """The rules of one direction, `field` being its name (`spec.ingress`).

    `namespace` is that of a NetworkPolicy, else empty; `services`: whether the endpoints of
    services are known. Raises InvalidValue naming the field.
    """
    needs: dict[str, Need] = {}
    resolved: list[ResolvedRule] = []
    unenforced: list[str] = []
    for number, rule in enumerate(rules):
        where = f"{field}[{number}]"
        known = _once(rule, where, namespace, SERVICE_SIDES.get(field) if services else None)
        resolved += known.rules
        for need in known.needs:
            needs[need.id] = need
        unenforced += [f"{where}.{lacking}" for lacking in known.unenforced]
    return Rules(tuple(resolved), tuple(needs.values()), tuple(unenforced))


def reading(
    rules: Sequence[Rule], field: str, namespace: str = "", *, services: bool = False
) -> Iterator[None]:
    """Resolve these rules ahead of time, in steps; `resolve` then uses the results."""
    side = SERVICE_SIDES.get(field) if services else None
    for number, rule in enumerate(rules):
        try:
            _once(rule, f"{field}[{number}]", namespace, side)
        except InvalidValue:
            return
        if number % AT_ONCE == 0:
            yield


def _once(rule: Rule, where: str, namespace: str, side: str | None) -> Rules:
    key = (_encode(rule), namespace, side)
    known = _known.get(key)
    if known is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        known = _known[key] = _read(RuleReader(where, namespace, {}, side), rule)
    return known


def _read(reader: RuleReader, rule: Rule) -> Rules:
    """What one rule means; `unenforced` names fields of it. Raises InvalidValue."""
    resolved = reader.rule(rule)
    rules = _spread(resolved)
    if resolved.unenforced and resolved.verb is Verb.LOG:
        rules = []
    return Rules(tuple(rules), tuple(reader.needs.values()), resolved.unenforced)


def _spread(rule: ResolvedRule) -> list[ResolvedRule]:
    """The rule, or for a negated type of any protocol: other protocols, and other types."""
    if rule.not_icmp is None or rule.protocol is not None:
        return [rule]
    spread = []
    for protocol, version in ICMP_VERSIONS.items():
        if rule.version in (None, version):
            spread.append(replace(rule, version=version, not_protocol=protocol, not_icmp=None))
            spread.append(replace(rule, version=version, protocol=protocol))
    return spread
