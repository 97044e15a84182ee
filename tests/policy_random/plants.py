"""Bugs to plant in the renderer: what a comparison must notice, or it is worth nothing.

Each is a change of the rule that the renderer is given, and has a twin among the mutations of
documents (coverage.MUTATIONS), so that what the buggy product does can be predicted exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from felix.calc.policy_model import EntityMatch, ResolvedRule, Verb

Change = Callable[[ResolvedRule], ResolvedRule]
Ranges = tuple[tuple[int, int], ...]


def sides(edit: Callable[[EntityMatch], EntityMatch]) -> Change:
    """A change of both sides."""
    return lambda rule: replace(rule, source=edit(rule.source), destination=edit(rule.destination))


def verb(old: Verb, new: Verb) -> Change:
    """One verb taken for another."""
    return lambda rule: replace(rule, verb=new) if rule.verb is old else rule


def longer(ranges: Ranges) -> Ranges:
    """Ranges (not single ports) that end one late."""
    return tuple((low, high + 1 if high > low else high) for low, high in ranges)


def without_code(
    icmp: tuple[int | None, int | None] | None,
) -> tuple[int | None, int | None] | None:
    """The type alone."""
    return None if icmp is None else (icmp[0], None)


PLANTS: dict[str, Change] = {
    "notNets ignored": sides(lambda side: replace(side, not_nets=())),
    "pass is allow": verb(Verb.PASS, Verb.ALLOW),
    "ranges end one late": sides(
        lambda side: replace(side, ports=longer(side.ports), not_ports=longer(side.not_ports))
    ),
    "only the first of several nets": sides(lambda side: replace(side, nets=side.nets[:1])),
    "only the first of several notNets": sides(
        lambda side: replace(side, not_nets=side.not_nets[:1])
    ),
    "negated sets ignored": sides(lambda side: replace(side, not_sets=())),
    "sets ignored": sides(lambda side: replace(side, sets=())),
    "notPorts ignored": sides(lambda side: replace(side, not_ports=())),
    "negated named ports ignored": sides(lambda side: replace(side, not_named_ports=())),
    "notProtocol ignored": lambda rule: replace(rule, not_protocol=None),
    "ICMP codes ignored": lambda rule: replace(rule, icmp=without_code(rule.icmp)),
    "notICMP ignored": lambda rule: replace(rule, not_icmp=None),
    "ipVersion ignored": lambda rule: replace(rule, version=None),
    "log ends the chain": verb(Verb.LOG, Verb.PASS),
    "deny goes on": verb(Verb.DENY, Verb.LOG),
    "source and destination swapped": lambda rule: replace(
        rule, source=rule.destination, destination=rule.source
    ),
}
