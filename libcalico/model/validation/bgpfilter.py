"""Rules of BGPFilter (docs/reference/data-model.md#bgpfilter). Tested in
tests/libcalico/test_invalid_documents.py."""

from __future__ import annotations

import re
from collections.abc import Sequence

from libcalico.model.resources.bgpfilter import BGPFilter, BGPFilterOperation, BGPFilterRule
from libcalico.model.validation.bgp import MAX_PRIORITY, check_community
from libcalico.model.validation.checks import INTERFACE_PATTERN, Problems, indexed

OPERATORS = ("Equal", "NotEqual", "In", "NotIn")
_COMMUNITY = re.compile(r"(0|[1-9]\d{0,9}):(0|[1-9]\d{0,9})(:(0|[1-9]\d{0,9}))?", re.ASCII)
"""Without leading zeros, other than in BGPConfiguration."""
MAX_OPERATIONS = MAX_PREPENDED = 10
MAX_CIDR = {4: 18, 6: 43}


def check(filters: BGPFilter, problems: Problems) -> None:
    """Check a filter."""
    for version in (4, 6):
        for direction in ("export", "import"):
            name = f"{direction}V{version}"
            _rules(problems, f"spec.{name}", getattr(filters.spec, name), version)


def _rules(problems: Problems, field: str, rules: Sequence[BGPFilterRule], version: int) -> None:
    for where, rule in indexed(field, rules):
        _network(problems, where, rule, version)
        problems.one_of(f"{where}.source", rule.source, ("RemotePeers",))
        problems.pattern(
            f"{where}.interface",
            rule.interface,
            INTERFACE_PATTERN,
            "must be 1 to 15 letters, digits, '_', '.', '-' and '*'",
        )
        problems.one_of(f"{where}.peerType", rule.peerType, ("eBGP", "iBGP"))
        if rule.communities is not None:
            values = rule.communities.values
            if len(values) != 1:
                problems.add(f"{where}.communities.values", values, "must hold one community")
            for path, value in indexed(f"{where}.communities.values", values):
                check_community(problems, path, value, _COMMUNITY)
        problems.limits(f"{where}.priority", rule.priority, 1, MAX_PRIORITY)
        if rule.action not in ("Accept", "Reject"):
            problems.add(f"{where}.action", rule.action, "must be Accept or Reject")
        _operations(problems, where, rule)


def _network(problems: Problems, where: str, rule: BGPFilterRule, version: int) -> None:
    if rule.cidr:
        problems.network(f"{where}.cidr", rule.cidr, version)
        problems.length(f"{where}.cidr", rule.cidr, MAX_CIDR[version])
    if bool(rule.cidr) != bool(rule.matchOperator):
        missing = "matchOperator" if rule.cidr else "cidr"
        problems.add(
            f"{where}.{missing}", "", "cidr and matchOperator are set together or not at all"
        )
    problems.one_of(f"{where}.matchOperator", rule.matchOperator, OPERATORS)
    lengths = rule.prefixLength
    if lengths is not None:
        if not rule.cidr:
            problems.add(f"{where}.prefixLength", "...", "needs a cidr")
        longest = 32 if version == 4 else 128
        problems.limits(f"{where}.prefixLength.min", lengths.min, 0, longest)
        problems.limits(f"{where}.prefixLength.max", lengths.max, 0, longest)


def _operations(problems: Problems, where: str, rule: BGPFilterRule) -> None:
    if rule.operations and rule.action != "Accept":
        problems.add(f"{where}.operations", "...", "only with action Accept")
    problems.entries(f"{where}.operations", rule.operations, MAX_OPERATIONS)
    for path, operation in indexed(f"{where}.operations", rule.operations):
        _operation(problems, path, operation)


def _operation(problems: Problems, where: str, operation: BGPFilterOperation) -> None:
    names = ("addCommunity", "prependASPath", "setPriority")
    chosen = [name for name in names if getattr(operation, name) is not None]
    if len(chosen) != 1:
        problems.add(where, chosen, "must be exactly one of " + ", ".join(names))
    if (added := operation.addCommunity) is not None:
        check_community(problems, f"{where}.addCommunity.value", added.value, _COMMUNITY)
    if operation.prependASPath is not None:
        count = len(operation.prependASPath.prefix)
        if not 1 <= count <= MAX_PREPENDED:
            rule = f"must hold 1 to {MAX_PREPENDED} AS numbers"
            problems.add(f"{where}.prependASPath.prefix", f"{count} numbers", rule)
    if operation.setPriority is not None:
        value = operation.setPriority.value
        if value is None:
            problems.add(f"{where}.setPriority.value", None, "is required")
        problems.limits(f"{where}.setPriority.value", value, 1, MAX_PRIORITY)
