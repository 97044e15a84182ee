"""Where in the kernel a decision stands: table, chain, and the number of the rule in it.

Chains are rendered as felix renders them and looked at. A rule's number counts from 1, as
`iptables -L --line-numbers` does; nftables has the same rules in the same order, in the chain
`TABLE-CHAIN` of the table `calico`.

Tested in tests/felix/explain/test_places.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from felix.calc.policy_model import EndpointPolicy, ResolvedPolicy, ResolvedRule, Verb
from felix.explain.path import Questions
from felix.explain.stations import FORWARD, HOST, TABLES, Station
from felix.explain.walk import By
from felix.rules import names
from felix.rules.endpoints import endpoint_chains, endpoint_rules
from felix.rules.hosts import host_chains
from felix.rules.inputs import RuleSettings
from felix.rules.model import Chain, set_bits
from felix.rules.policy import policy_chains

_LAST = ResolvedRule(Verb.DENY)


@dataclass(frozen=True, slots=True)
class Place:
    """Rules `first` to `last` of a chain; `rule` is the one that counts what it matches."""

    table: str
    chain: str
    first: int = 0
    last: int = 0
    rule: int = 0

    def __str__(self) -> str:
        return f"{self.table} {self.chain}" + (f" rule {self.rule}" if self.rule else "")


def spans(
    policy: ResolvedPolicy, version: int, settings: RuleSettings, *, ingress: bool
) -> list[int]:
    """How many rules of the chain each resolved rule became."""

    def rendered(*rules: ResolvedRule) -> int:
        return len(_policy_chain(replace(policy, ingress=rules, egress=rules), version,
                                 settings, ingress=ingress).rules)  # fmt: skip

    # With a rule behind it, none of its own is left out as superfluous at a chain's end.
    rest = rendered(_LAST)
    rules = policy.ingress if ingress else policy.egress
    return [rendered(rule, _LAST) - rest for rule in rules]


def _policy_chain(
    policy: ResolvedPolicy, version: int, settings: RuleSettings, *, ingress: bool
) -> Chain:
    chains = policy_chains(policy, version, settings.marks, settings.verdicts)
    return chains[0 if ingress else 1]


def rule_place(
    policy: ResolvedPolicy,
    number: int,
    version: int,
    settings: RuleSettings,
    *,
    ingress: bool,
    table: str = "filter",
) -> Place:
    """Where a resolved rule of a policy or profile stands."""
    chain = _policy_chain(policy, version, settings, ingress=ingress)
    if policy.missing:
        return Place(table, chain.name, 1, len(chain.rules), 1)
    counts = spans(policy, version, settings, ingress=ingress)
    first = sum(counts[:number]) + 1
    if first > len(chain.rules):
        # A profile's last pass: the chain's end does the same, so it was left out.
        return Place(table, chain.name)
    last = min(first + counts[number] - 1, len(chain.rules))
    marks = settings.marks
    verdicts = {set_bits(bit) for bit in (marks.accept, marks.passed, marks.drop)}
    span = range(first, last + 1)
    rule = next((n for n in span if chain.rules[n - 1].action in verdicts), first)
    return Place(table, chain.name, first, last, rule)


def rule_at(
    policy: ResolvedPolicy, number: int, version: int, settings: RuleSettings, *, ingress: bool
) -> int | None:
    """The resolved rule that rule `number` (from 1) of the chain belongs to."""
    end = 0
    for resolved, count in enumerate(spans(policy, version, settings, ingress=ingress)):
        end += count
        if number <= end:
            return resolved
    return None


def endpoint_chain(
    interface: str, policy: EndpointPolicy, settings: RuleSettings, *, ingress: bool
) -> Chain:
    """The chain of a workload's interface in one direction."""
    rules = endpoint_rules(interface, policy)
    chains = endpoint_chains(rules, settings.marks, settings.verdicts)
    return chains[0 if ingress else 1]


def host_chain(
    interface: str, policy: EndpointPolicy, stage: str, settings: RuleSettings, *, ingress: bool
) -> Chain | None:
    """The chain of a host endpoint for one stage and direction."""
    table = TABLES[stage]
    verdicts = settings.verdicts_of(table)
    into, out = names.FROM_HOST, names.TO_HOST
    if stage == FORWARD:
        into, out = names.FROM_HOST_FORWARD, names.TO_HOST_FORWARD
    prefix = into if ingress else out
    chains = host_chains(interface, policy, table, settings.marks, verdicts)
    return next((c for c in chains if c.name.startswith(prefix)), None)


def place_of(questions: Questions, station: Station, version: int) -> Place | None:
    """Where a station's decision stands in the kernel of its node."""
    node, ruling = station.end.node, station.ruling
    table = TABLES[station.stage]
    if station.stage == HOST:
        return Place(table, names.WORKLOAD_TO_HOST) if ruling.by is By.SETTING else None
    if ruling.by is By.FAILSAFE:
        return Place(table, names.FAILSAFE_IN if station.ingress else names.FAILSAFE_OUT)
    settings = questions.settings(node, version)
    if ruling.policy is not None and ruling.by in (By.RULE, By.MISSING_PROFILE):
        policy = questions.matcher(node).policy(ruling.policy)
        return rule_place(
            policy,
            ruling.rule or 0,
            version,
            replace(settings, verdicts=settings.verdicts_of(table)),
            ingress=station.ingress,
            table=table,
        )
    chain = _own_chain(questions, station, settings)
    if chain is None or ruling.by not in (By.TIER_END, By.NO_PROFILE):
        return None
    comment = "Drop if no profiles matched"
    if ruling.by is By.TIER_END:
        comment = f"End of tier {ruling.tier}. "
    return _commented(chain, table, comment)


def _own_chain(questions: Questions, station: Station, settings: RuleSettings) -> Chain | None:
    engine = questions.calculation(station.end.node).engine
    key = station.end.endpoint
    if key is None or not station.interface:
        return None
    ingress = station.ingress
    if key.kind == "WorkloadEndpoint":
        policy = engine.endpoint(key)
        if policy is None:
            return None
        return endpoint_chain(station.interface, policy, settings, ingress=ingress)
    host = engine.host_endpoints.get(key)
    if host is None:
        return None
    return host_chain(station.interface, host.policy, station.stage, settings, ingress=ingress)


def _commented(chain: Chain, table: str, beginning: str) -> Place:
    for number, rule in enumerate(chain.rules, 1):
        if any(comment.startswith(beginning) for comment in rule.comments):
            return Place(table, chain.name, number, number, number)
    return Place(table, chain.name)
