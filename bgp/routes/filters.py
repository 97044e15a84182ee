"""BGPFilter: what a rule matches and what it does. Pure.

A peering names filters in order; each holds rules for a direction and family. The first rule
that matches a route decides, over all filters; where none matches, the filters say nothing
and the caller's own rule holds (docs/reference/data-model.md#bgpfilter,
docs/reference/dataplane.md#communities-and-filters).

A route's *priority* is the kernel metric that newer Calico carries in LOCAL_PREF, as
2147483647 less the metric (docs/reference/dataplane.md#routes-into-the-kernel): smaller is
preferred.

  FLT-1  A rule with several conditions matches only what meets all of them.
  FLT-2  A rule that cannot be read makes its filter unusable, never wider.
Tested in tests/bgp/test_filters.py.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network

from bgp.speaker.interface import IPNetwork
from libcalico.model.resources.bgpfilter import (
    BGPFilterOperation,
    BGPFilterRule,
    BGPFilterSpec,
)
from libcalico.model.validation.bgpfilter import MAX_OPERATIONS, MAX_PREPENDED

MAX_PRIORITY = 2_147_483_647
NORMAL_PRIORITY = 1024
EXPORT, IMPORT = "export", "import"
_COMMUNITY = re.compile(r"[0-9]{1,10}:[0-9]{1,10}(:[0-9]{1,10})?")


def local_pref_of(priority: int) -> int:
    """The LOCAL_PREF that carries a priority."""
    return MAX_PRIORITY - priority


def priority_of(local_pref: int | None) -> int:
    """The priority that a LOCAL_PREF carries; the normal one where it carries none.

    A speaker that knows nothing of priorities sends 100, or none at all, and
    does not mean a metric beyond 2^30 by that.
    """
    if local_pref is None or local_pref <= MAX_PRIORITY // 2:
        return NORMAL_PRIORITY
    return MAX_PRIORITY - local_pref


@dataclass(frozen=True, slots=True)
class Subject:
    """A route as filters see it, and what they made of it.

    `internal`: the session it travels over is iBGP. `learned`: from a peer. `interface`:
    where packets to it leave, empty if unknown.
    """

    prefix: IPNetwork
    internal: bool
    learned: bool
    interface: str = ""
    as_path: tuple[int, ...] = ()
    communities: tuple[str, ...] = ()
    large_communities: tuple[str, ...] = ()
    priority: int = NORMAL_PRIORITY
    prepended: tuple[int, ...] = ()
    priority_set: bool = False

    def tagged(self, values: Iterable[str]) -> Subject:
        """With these communities added, each once: `a:b` is standard, `a:b:c` large."""
        standard, large = list(self.communities), list(self.large_communities)
        for value in values:
            table = large if value.count(":") == 2 else standard
            if value not in table:
                table.append(value)
        return replace(self, communities=tuple(standard), large_communities=tuple(large))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of filters: `accepted` None means that no rule matched."""

    accepted: bool | None
    subject: Subject


_Test = Callable[[Subject], bool]
_Step = Callable[[Subject], Subject]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, ready to run."""

    tests: tuple[_Test, ...]
    accept: bool
    steps: tuple[_Step, ...]

    def matches(self, subject: Subject) -> bool:
        """Whether all conditions hold (FLT-1)."""
        return all(test(subject) for test in self.tests)


Rules = Mapping[tuple[str, int], tuple[Rule, ...]]
"""Rules by direction and IP version."""


def compiled(name: str, spec: BGPFilterSpec) -> Rules:
    """The rules of one BGPFilter. Raises `ValueError` that names field and value (FLT-2)."""
    rules = {}
    for direction in (EXPORT, IMPORT):
        for version in (4, 6):
            field = f"{direction}V{version}"
            rules[direction, version] = tuple(
                _rule(rule, version, f"BGPFilter({name}): spec.{field}[{index}]")
                for index, rule in enumerate(getattr(spec, field))
            )
    return rules


def run(filters: Sequence[Rules], direction: str, subject: Subject) -> Verdict:
    """The decision of a peering's filters about a route, in their order."""
    key = (direction, subject.prefix.version)
    for rules in filters:
        for rule in rules[key]:
            if rule.matches(subject):
                if rule.accept:
                    for step in rule.steps:
                        subject = step(subject)
                return Verdict(rule.accept, subject)
    return Verdict(None, subject)


def _rule(rule: BGPFilterRule, version: int, where: str) -> Rule:
    if rule.action not in ("Accept", "Reject"):
        raise ValueError(f"{where}.action: {rule.action!r} is not valid: Accept or Reject")
    tests: list[_Test] = []
    if rule.cidr:
        tests.append(_net_test(rule, version, where))
    elif rule.prefixLength is not None:
        raise ValueError(f"{where}.prefixLength: needs cidr")
    if rule.source:
        if rule.source != "RemotePeers":
            raise ValueError(f"{where}.source: {rule.source!r} is not valid: RemotePeers")
        tests.append(lambda subject: subject.learned)
    if rule.interface:
        pattern = re.compile(fnmatch.translate(rule.interface))
        tests.append(lambda subject: pattern.match(subject.interface) is not None)
    if rule.peerType:
        if rule.peerType not in ("iBGP", "eBGP"):
            raise ValueError(f"{where}.peerType: {rule.peerType!r} is not valid: iBGP or eBGP")
        internal = rule.peerType == "iBGP"
        tests.append(lambda subject: subject.internal is internal)
    if rule.communities is not None:
        patterns = tuple(_community(one, f"{where}.communities") for one in rule.communities.values)
        tests.append(lambda subject: any(_carries(subject, one) for one in patterns))
    if rule.asPathPrefix:
        start = tuple(rule.asPathPrefix)
        tests.append(lambda subject: (subject.prepended + subject.as_path)[: len(start)] == start)
    if rule.priority is not None:
        priority = rule.priority
        tests.append(lambda subject: subject.priority == priority)
    if len(rule.operations) > MAX_OPERATIONS:
        count = len(rule.operations)
        raise ValueError(f"{where}.operations: {count} are not valid: at most {MAX_OPERATIONS}")
    steps = tuple(
        _step(step, f"{where}.operations[{index}]") for index, step in enumerate(rule.operations)
    )
    return Rule(tuple(tests), rule.action == "Accept", steps)


def _net_test(rule: BGPFilterRule, version: int, where: str) -> _Test:
    try:
        cidr = ip_network(rule.cidr, strict=False)
    except ValueError:
        raise ValueError(f"{where}.cidr: {rule.cidr!r} is not valid: a network") from None
    if cidr.version != version:
        raise ValueError(f"{where}.cidr: {rule.cidr!r} is not valid: a network of IPv{version}")
    operator = rule.matchOperator
    if operator not in ("Equal", "NotEqual", "In", "NotIn"):
        rule_text = "Equal, NotEqual, In or NotIn"
        raise ValueError(f"{where}.matchOperator: {operator!r} is not valid: {rule_text}")
    low: int = cidr.prefixlen
    high: int = cidr.max_prefixlen
    if rule.prefixLength is not None:
        low = low if rule.prefixLength.min is None else rule.prefixLength.min
        high = high if rule.prefixLength.max is None else rule.prefixLength.max
    exact, positive = operator.endswith("Equal"), not operator.startswith("Not")

    def test(subject: Subject) -> bool:
        net = subject.prefix
        met = low <= net.prefixlen <= high and (
            net == cidr if exact else net.subnet_of(cidr)  # type: ignore[arg-type]
        )
        return met is positive

    return test


def community(value: str) -> str:
    """A standard (RFC 1997) or large community (RFC 8092) in its one spelling, or `ValueError`."""
    parts = [int(part) for part in value.split(":")] if _COMMUNITY.fullmatch(value) else []
    if not parts or max(parts) > (0xFFFF if len(parts) == 2 else 0xFFFFFFFF):
        rule = "aa:nn (16 bits each) or aa:nn:mm (32 bits each)"
        raise ValueError(f"{value!r} is not valid: {rule}")
    return ":".join(map(str, parts))


def _community(value: str, where: str) -> str:
    try:
        return community(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _carries(subject: Subject, community: str) -> bool:
    return community in subject.communities or community in subject.large_communities


def _step(operation: BGPFilterOperation, where: str) -> _Step:
    if operation.addCommunity is not None:
        value = _community(operation.addCommunity.value or "", f"{where}.addCommunity")
        return lambda subject: subject.tagged([value])
    if operation.prependASPath is not None:
        numbers = tuple(operation.prependASPath.prefix)
        if not 1 <= len(numbers) <= MAX_PREPENDED or not all(0 < each < 2**32 for each in numbers):
            field, rule = f"{where}.prependASPath.prefix", f"1 to {MAX_PREPENDED} AS numbers, not 0"
            raise ValueError(f"{field}: {list(numbers)[:20]} is not valid: {rule}")
        return lambda subject: replace(subject, prepended=numbers + subject.prepended)
    if operation.setPriority is not None and operation.setPriority.value is not None:
        priority = operation.setPriority.value
        if not 1 <= priority < MAX_PRIORITY:
            field, rule = f"{where}.setPriority.value", f"1 to {MAX_PRIORITY - 1}"
            raise ValueError(f"{field}: {priority} is not valid: {rule}")
        return lambda subject: replace(subject, priority=priority, priority_set=True)
    raise ValueError(f"{where}: needs one of addCommunity, prependASPath, setPriority")
