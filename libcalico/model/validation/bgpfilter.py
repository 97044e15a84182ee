"""Rules of BGPFilter (docs/reference/data-model.md#bgpfilter). Tested in
tests/libcalico/test_invalid_documents.py."""

from __future__ import annotations

import re
from collections.abc import Sequence

from libcalico.model.resources.bgpfilter import BGPFilter, BGPFilterOperation, BGPFilterRule
from libcalico.model.validation.bgp import MAX_PRIORITY
from libcalico.model.validation.checks import INTERFACE_PATTERN, Problems

OPERATORS = ("Equal", "NotEqual", "In", "NotIn")
_COMMUNITY = re.compile(r"(0|[1-9]\d{0,9}):(0|[1-9]\d{0,9})(:(0|[1-9]\d{0,9}))?")
MAX_OPERATIONS = MAX_PREPENDED = 10
MAX_CIDR = {4: 18, 6: 43}


def check(filters: BGPFilter, found: Problems) -> None:
    """Everything that is wrong with a filter."""
    for version in (4, 6):
        for direction in ("export", "import"):
            name = f"{direction}V{version}"
            _rules(found, f"spec.{name}", getattr(filters.spec, name), version)


def _rules(found: Problems, field: str, rules: Sequence[BGPFilterRule], version: int) -> None:
    for index, rule in enumerate(rules):
        where = f"{field}[{index}]"
        _network(found, where, rule, version)
        found.one_of(f"{where}.source", rule.source, ("RemotePeers",))
        found.pattern(
            f"{where}.interface",
            rule.interface,
            INTERFACE_PATTERN,
            "must be 1 to 15 letters, digits, '_', '.', '-' and '*'",
        )
        found.one_of(f"{where}.peerType", rule.peerType, ("eBGP", "iBGP"))
        if rule.communities is not None:
            values = rule.communities.values
            if len(values) != 1:
                found.add(f"{where}.communities.values", values, "must hold one community")
            for number, value in enumerate(values):
                _community(found, f"{where}.communities.values[{number}]", value)
        found.limits(f"{where}.priority", rule.priority, 1, MAX_PRIORITY)
        if rule.action not in ("Accept", "Reject"):
            found.add(f"{where}.action", rule.action, "must be Accept or Reject")
        _operations(found, where, rule)


def _network(found: Problems, where: str, rule: BGPFilterRule, version: int) -> None:
    if rule.cidr:
        found.network(f"{where}.cidr", rule.cidr, version)
        found.length(f"{where}.cidr", rule.cidr, MAX_CIDR[version])
    if bool(rule.cidr) != bool(rule.matchOperator):
        missing = "matchOperator" if rule.cidr else "cidr"
        found.add(f"{where}.{missing}", "", "cidr and matchOperator are set together or not at all")
    found.one_of(f"{where}.matchOperator", rule.matchOperator, OPERATORS)
    lengths = rule.prefixLength
    if lengths is not None:
        if not rule.cidr:
            found.add(f"{where}.prefixLength", "...", "needs a cidr")
        most = 32 if version == 4 else 128
        found.limits(f"{where}.prefixLength.min", lengths.min, 0, most)
        found.limits(f"{where}.prefixLength.max", lengths.max, 0, most)


def _operations(found: Problems, where: str, rule: BGPFilterRule) -> None:
    if rule.operations and rule.action != "Accept":
        found.add(f"{where}.operations", "...", "only with action Accept")
    found.entries(f"{where}.operations", rule.operations, MAX_OPERATIONS)
    for index, operation in enumerate(rule.operations):
        _operation(found, f"{where}.operations[{index}]", operation)


def _operation(found: Problems, where: str, operation: BGPFilterOperation) -> None:
    names = ("addCommunity", "prependASPath", "setPriority")
    chosen = [name for name in names if getattr(operation, name) is not None]
    if len(chosen) != 1:
        found.add(where, chosen, "must be exactly one of " + ", ".join(names))
    if operation.addCommunity is not None:
        _community(found, f"{where}.addCommunity.value", operation.addCommunity.value)
    if operation.prependASPath is not None:
        count = len(operation.prependASPath.prefix)
        if not 1 <= count <= MAX_PREPENDED:
            rule = f"must hold 1 to {MAX_PREPENDED} AS numbers"
            found.add(f"{where}.prependASPath.prefix", f"{count} numbers", rule)
    if operation.setPriority is not None:
        value = operation.setPriority.value
        if value is None:
            found.add(f"{where}.setPriority.value", None, "is required")
        found.limits(f"{where}.setPriority.value", value, 1, MAX_PRIORITY)


def _community(found: Problems, field: str, value: str | None) -> None:
    """Without leading zeros, other than in BGPConfiguration."""
    good = value is not None and _COMMUNITY.fullmatch(value)
    parts = [int(part) for part in value.split(":")] if good and value else []
    if not parts or max(parts) > (0xFFFF if len(parts) == 2 else 0xFFFFFFFF):
        found.add(field, value, "must be aa:nn (16 bits each) or aa:nn:mm (32 bits each)")
