"""Kinds of packets that policy can tell apart, and one example of each.

Where no port is asked for, the answer is told for all: ports fall into ranges between those
that the rules name, and one port of each range speaks for it. So does one protocol for all
that no rule names.

Invariants:
  CLS-1  Two packets of one class between the same addresses match the same rules.
Tested in tests/felix/explain/test_report.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from felix.calc.labels import WITH_PORTS as NAMED
from felix.calc.labels import NamedPort
from felix.calc.policy_model import ResolvedRule
from felix.explain.flow import (
    ECHO_OF,
    ICMP_OF,
    SOME_SOURCE_PORT,
    TCP,
    UDP,
    WITH_PORTS,
    Kind,
    protocol_name,
)

LAST_PORT = 65535
_NUMBERS = {name: number for number, name in NAMED.items()}


@dataclass(frozen=True, slots=True)
class Class:
    """Packets that no rule tells apart: `example` is one of them; ports as (first, last)."""

    example: Kind
    label: str
    ports: tuple[int, int] = (0, 0)
    sources: tuple[int, int] = (0, 0)


def classes(
    rules: Iterable[ResolvedRule],
    version: int,
    *,
    destination: Iterable[NamedPort] = (),
    source: Iterable[NamedPort] = (),
    protocol: int | None = None,
) -> list[Class]:
    """The classes that these rules make, of one family.

    `destination` and `source`: the ports that have names there. With `protocol`, its classes.
    """
    rules = [rule for rule in rules if rule.version in (None, version)]
    icmp = ICMP_OF[version]
    named = {n for rule in rules for n in (rule.protocol, rule.not_protocol) if n is not None}
    protocols = [protocol] if protocol is not None else sorted({TCP, UDP, icmp, *named})
    other_icmp = ICMP_OF[10 - version]
    result: list[Class] = []
    for number in protocols:
        if number == other_icmp and protocol is None:
            continue
        if number in WITH_PORTS:
            result += _with_ports(number, rules, tuple(destination), tuple(source))
        elif number == icmp:
            result += _messages(number, rules, version)
        else:
            result.append(Class(Kind(number, 0, 0), protocol_name(number)))
    if protocol is None:
        taken = {*protocols, *WITH_PORTS, other_icmp}
        rest = next(n for n in range(253, 0, -1) if n not in taken)
        result.append(Class(Kind(rest, 0, 0), "other protocols"))
    return result


def _with_ports(
    protocol: int,
    rules: Iterable[ResolvedRule],
    destination: tuple[NamedPort, ...],
    source: tuple[NamedPort, ...],
) -> Iterator[Class]:
    name = protocol_name(protocol)
    relevant = [r for r in rules if r.protocol in (None, protocol)]
    ends = [
        _ranges(
            [
                *(p for r in relevant for p in (*r.destination.ports, *r.destination.not_ports)),
                *_numbers(destination, protocol),
            ]
        ),
        _ranges(
            [
                *(p for r in relevant for p in (*r.source.ports, *r.source.not_ports)),
                *_numbers(source, protocol),
            ]
        ),
    ]
    for ports in ends[0]:
        for sources in ends[1]:
            label = f"{name} {_ports(ports)}" if len(ends[0]) > 1 else name
            example = SOME_SOURCE_PORT
            if len(ends[1]) > 1:
                label += f" from {_ports(sources)}"
            if not sources[0] <= example <= sources[1]:
                example = sources[0]
            yield Class(Kind(protocol, ports[0], example), label, ports, sources)


def _numbers(ports: Iterable[NamedPort], protocol: int) -> Iterator[tuple[int, int]]:
    return ((p.number, p.number) for p in ports if _NUMBERS[p.protocol] == protocol)


def _ranges(named: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """All ports, cut where a range begins or ends."""
    cuts = {0, LAST_PORT + 1}
    for first, last in named:
        cuts |= {first, last + 1}
    ordered = sorted(cut for cut in cuts if 0 <= cut <= LAST_PORT + 1)
    return [(low, high - 1) for low, high in itertools.pairwise(ordered)]


def _ports(ports: tuple[int, int]) -> str:
    return str(ports[0]) if ports[0] == ports[1] else f"{ports[0]}-{ports[1]}"


def _messages(protocol: int, rules: Iterable[ResolvedRule], version: int) -> Iterator[Class]:
    name = protocol_name(protocol)
    given = [m for rule in rules for m in (rule.icmp, rule.not_icmp) if m is not None]
    types = sorted({kind for kind, _ in given if kind is not None})
    echo = ECHO_OF[version]
    for kind in types:
        codes = sorted({code for other, code in given if other == kind and code is not None})
        for code in codes:
            yield Class(Kind(protocol, 0, 0, kind, code), f"{name} type {kind} code {code}")
        rest = next(n for n in range(256) if n not in codes)
        others = " other codes" if codes else ""
        yield Class(Kind(protocol, 0, 0, kind, rest), f"{name} type {kind}{others}")
    rest = echo if echo not in types else next(n for n in range(255) if n not in types)
    yield Class(Kind(protocol, 0, 0, rest, 0), f"{name} other types" if types else "icmp")


def merged(labels: list[str], of: int = 0) -> str:
    """Labels of classes that fare alike, as one text: ranges that touch are joined.

    `of`: how many classes there are; all of them are all packets.
    """
    if len(labels) == of:
        return "all packets"
    parts: list[tuple[str, int, int]] = []
    plain: list[str] = []
    for label in labels:
        name, _, ports = label.partition(" ")
        first, dash, last = ports.partition("-")
        if not first.isdigit() or not (last.isdigit() or not dash):
            plain.append(label)
            continue
        low, high = int(first), int(last or first)
        if parts and parts[-1][0] == name and parts[-1][2] + 1 == low:
            parts[-1] = (name, parts[-1][1], high)
        else:
            parts.append((name, low, high))
    words = []
    for name in dict.fromkeys(part[0] for part in parts):
        ranges = [(low, high) for other, low, high in parts if other == name]
        if ranges == [(0, LAST_PORT)]:
            words.append(name)
        else:
            words.append(f"{name} {','.join(map(_ports, ranges))}")
    plain.sort(key=lambda word: (word.startswith("other"), word))
    return "; ".join([*words, *plain])
