"""The chains of a policy or profile: what its rules become
(docs/reference/dataplane.md#policy-chains).

A chain never decides by itself: it sets a mark and returns, and the endpoint's chain reads the
mark; only a denied packet ends here, in two steps (mark, then drop), so that a match can be
counted. A chain is the same for every endpoint that the policy selects.

What cannot be enforced in full never widens access (POL-1, `felix.rules.fragments`).

Invariants:
  POL-3  The chain of a missing profile denies everything.
  POL-4  A chain leaves `accept` and `pass` as they were unless one of its rules decided.
Tested in tests/felix/rules/test_policy_rules.py (Calico's hashes), test_policy_truth.py and, with
packets through the kernel, in tests/felix/kernel/test_policy_packets.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from felix.calc.policy_model import ResolvedPolicy, ResolvedRule, Verb
from felix.rules import names, nflog_prefix
from felix.rules.blocks import block_rules
from felix.rules.endpoints import Verdicts
from felix.rules.fragments import fragments
from felix.rules.model import (
    Action,
    Chain,
    Condition,
    InSet,
    Log,
    Marks,
    Nothing,
    Return,
    Rule,
    is_set,
    set_bits,
)
from felix.rules.nflog_prefix import Tell, Verdict

MOST_LOG_PREFIX = 29
MOST_NOTES = 16
"""Annotations beside one rule: iptables-restore takes 254 words and 10 KiB a line."""
MOST_MADE = 40_000
"""Rules whose translation is remembered: policies of a kind share them (felix.calc.policy)."""
_DENY_ALL = (ResolvedRule(Verb.DENY),)
_SAID = {Verb.DENY: Verdict.DENIED, Verb.ALLOW: Verdict.ALLOWED, Verb.PASS: Verdict.PASSED}
_NOT_IN_PREFIX = re.compile(r"[^\w @%+=:,./-]", re.ASCII)
_SPECIFIER = re.compile("%[tknp]")


def policy_chains(
    policy: ResolvedPolicy,
    version: int,
    marks: Marks,
    verdicts: Verdicts,
    unusable: frozenset[str] = frozenset(),
) -> tuple[Chain, Chain]:
    """The chains of ingress and egress in one family.

    `unusable`: ids of sets that the kernel does not hold as wanted; a rule that needs one is
    treated as one that cannot be enforced (POL-1).
    """
    profile = policy.key.kind == "Profile"
    ingress = names.PROFILE_INGRESS if profile else names.POLICY_INGRESS
    egress = names.PROFILE_EGRESS if profile else names.POLICY_EGRESS
    return (
        _chain(ingress, policy, "ingress", policy.ingress, version, marks, verdicts, unusable),
        _chain(egress, policy, "egress", policy.egress, version, marks, verdicts, unusable),
    )


def sets_of(chain: Chain) -> frozenset[str]:
    """The ipsets, by their names in the kernel, that a chain's rules name."""
    return frozenset(
        match.name for rule in chain.rules for match in rule.match if isinstance(match, InSet)
    )


def making(
    policy: ResolvedPolicy, version: int, marks: Marks, verdicts: Verdicts
) -> Iterator[tuple[Rule, ...]]:
    """Make the rules of a policy ahead, one resolved rule a step: `policy_chains` finds them made.

    Rules that name their policy are made there.
    """
    made = _made(version, marks, verdicts, policy.key.kind == "Profile")
    for rule in (*policy.ingress, *policy.egress):
        if not _names_policy(rule, verdicts):
            yield made.rules(rule, version, marks, verdicts, profile=False)


def _names_policy(rule: ResolvedRule, verdicts: Verdicts) -> bool:
    """Whether the policy stands in what is made of this rule."""
    return verdicts.tell is not Tell.NOTHING or rule.verb is Verb.LOG


def _told(verb: Verb, tell: Tell, *, profile: bool) -> bool:
    """Whether a rule of this verb tells; a profile's pass decides nothing (`_verdict`)."""
    if verb is Verb.DENY:
        return tell is not Tell.NOTHING
    return tell is Tell.FLOWS and (verb is Verb.ALLOW or (verb is Verb.PASS and not profile))


def _chain(
    prefix: str,
    policy: ResolvedPolicy,
    direction: str,
    resolved: tuple[ResolvedRule, ...],
    version: int,
    marks: Marks,
    verdicts: Verdicts,
    unusable: frozenset[str],
) -> Chain:
    profile = policy.key.kind == "Profile"
    rules: list[Rule] = []
    made = _made(version, marks, verdicts, profile)
    for number, rule in enumerate(_DENY_ALL if policy.missing else resolved):
        if unusable or _names_policy(rule, verdicts):
            log, said = _log(policy, verdicts.log_prefix), ""
            if verdicts.tell is not Tell.NOTHING:
                said = nflog_prefix.by_rule(policy.key, number, ingress=direction == "ingress")
            rules += _rule(rule, version, marks, verdicts, log, unusable, said, profile=profile)
            continue
        rules += made.rules(rule, version, marks, verdicts, profile=profile)
    # At the end of a chain a packet returns anyway.
    while rules and rules[-1].action == Return():
        rules.pop()
    if not rules:
        rules.append(Rule(Nothing()))
    comment = f"{_title(policy)} {direction}"
    first = rules[0]
    rules[0] = Rule(first.action, first.match, (comment, *first.comments))
    return Chain(names.policy_chain(prefix, policy.key), tuple(rules))


@lru_cache(maxsize=8)
def _made(version: int, marks: Marks, verdicts: Verdicts, profile: bool) -> Made:
    """What was made of rules that do not name their policy, by the rule's identity."""
    return Made()


class Made(dict[int, tuple[ResolvedRule, tuple[Rule, ...]]]):
    """Rendered rules by the identity of the resolved rule, which is kept so that the id stays its
    own. The oldest entries go.
    """

    def rules(
        self,
        rule: ResolvedRule,
        version: int,
        marks: Marks,
        verdicts: Verdicts,
        *,
        profile: bool,
    ) -> tuple[Rule, ...]:
        """What this resolved rule becomes."""
        known = self.get(id(rule))
        if known is None:
            rendered = _rule(rule, version, marks, verdicts, None, frozenset(), "", profile=profile)
            known = self[id(rule)] = (rule, tuple(rendered))
        return known[1]

    def __setitem__(self, key: int, value: tuple[ResolvedRule, tuple[Rule, ...]]) -> None:
        if len(self) >= MOST_MADE:
            del self[next(iter(self))]
        super().__setitem__(key, value)


def _title(policy: ResolvedPolicy) -> str:
    key = policy.key
    name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    return f"{key.kind} {name}"


def _rule(
    rule: ResolvedRule,
    version: int,
    marks: Marks,
    verdicts: Verdicts,
    log: Log | None,
    unusable: frozenset[str],
    said: str,
    *,
    profile: bool,
) -> list[Rule]:
    compiled = fragments(rule, version, unusable)
    if compiled is None:
        return []
    match = compiled.match
    if compiled.blocks:
        match = (*match, is_set(marks.scratch0))
    rules = block_rules(compiled.blocks, marks)
    if said and _told(compiled.verb, verdicts.tell, profile=profile):
        # What cannot be enforced may deny (POL-1): the verb is the one that is in force.
        said = nflog_prefix.with_verdict(said, _SAID[compiled.verb])
    else:
        said = ""
    rules += _verdict(compiled.verb, match, marks, verdicts, log, said, profile=profile)
    if rule.annotations:
        notes = tuple(f"{name}={value}" for name, value in rule.annotations[:MOST_NOTES])
        rules = [replace(each, comments=notes) for each in rules]
    return rules


def _verdict(
    verb: Verb,
    match: tuple[Condition, ...],
    marks: Marks,
    verdicts: Verdicts,
    log: Log | None,
    said: str,
    *,
    profile: bool,
) -> list[Rule]:
    def marked(bit: int, then: Action) -> list[Rule]:
        mark, decide = Rule(set_bits(bit), match), Rule(then, (is_set(bit),))
        if not said:
            return [mark, decide]
        ingress = nflog_prefix.says_ingress(said)
        return [
            mark,
            nflog_prefix.telling(verdicts.tell, said, decide.match, ingress=ingress),
            decide,
        ]

    match verb:
        case Verb.ALLOW:
            return marked(marks.accept, Return())
        case Verb.PASS if profile:
            # The mark may still stand from a tier; the next profile is asked all the same.
            return [Rule(Return(), match)]
        case Verb.PASS:
            return marked(marks.passed, Return())
        case Verb.DENY:
            return marked(marks.drop, verdicts.deny)
        case Verb.LOG:
            assert log is not None
            limit = () if verdicts.log_limit is None else (verdicts.log_limit,)
            return [Rule(log, (*match, *limit))]


def _log(policy: ResolvedPolicy, template: str) -> Log:
    """`%t` tier, `%k` kind, `%n` name, `%p` namespace and name; cut to what iptables takes."""
    key = policy.key
    words = {
        "%t": policy.tier,
        "%k": key.kind,
        "%n": key.name,
        "%p": f"{key.namespace}/{key.name}" if key.namespace else key.name,
    }
    text = _SPECIFIER.sub(lambda specifier: words[specifier.group()], template)
    return Log(f"{_NOT_IN_PREFIX.sub('_', text)[: MOST_LOG_PREFIX - 2]}: ")
