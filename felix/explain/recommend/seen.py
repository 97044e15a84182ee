"""What the workloads of a namespace were seen to do: flows as talks, each direction for itself.

A flow is reports at its source, its destination, or both; what one end allowed says nothing about
the other. Where only one end reports of it, its word counts for both.

Tested in tests/policy_recommend/test_parts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from felix.calc.labels import protocol_number
from flows.record import Action, End, EndKind, Flow, Reporter

_SPELLED = {"icmp6": 58, "ipv6-icmp": 58, "udp-lite": 136}
Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Talk:
    """What `own`, a workload of the namespace, does with `peer`: it answers (`ingress`) or asks."""

    ingress: bool
    own: End
    peer: End
    protocol: int
    port: int

    @property
    def rank(self) -> tuple[object, ...]:
        """An order that does not depend on the order of flows."""
        ends = [(e.namespace, e.name, int(e.kind)) for e in (self.own, self.peer)]
        return (self.ingress, *ends, self.protocol, self.port)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen. `denied`: talks that were only ever denied; `labels`: of ends, as told."""

    talks: tuple[Talk, ...]
    denied: tuple[Talk, ...]
    labels: Mapping[End, Labels] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


def seen_in(flows: Iterable[Flow], namespace: str) -> Seen:
    """The talks of the workloads of a namespace."""
    reports: dict[tuple[End, End, int, int], dict[Reporter, set[Action]]] = {}
    labels: dict[End, Labels] = {}
    unreadable: dict[str, None] = {}
    for flow in flows:
        key = flow.key
        if not (_inside(key.source, namespace) or _inside(key.destination, namespace)):
            continue
        protocol = number_of(key.protocol)
        if protocol is None:
            unreadable[f"protocol {key.protocol!r} of a flow is not known"] = None
            continue
        for end, texts in ((key.source, flow.source_labels),
                         (key.destination, flow.destination_labels)):  # fmt: skip
            known = labels.setdefault(end, texts)
            if known != texts:
                labels[end] = tuple(label for label in known if label in texts)
        which = (key.source, key.destination, protocol, key.port)
        reports.setdefault(which, {}).setdefault(key.reporter, set()).add(key.action)
    allowed: list[Talk] = []
    denied: list[Talk] = []
    for (source, destination, protocol, port), said in reports.items():
        for own, peer, ingress, reporter in (
            (source, destination, False, Reporter.SOURCE),
            (destination, source, True, Reporter.DESTINATION),
        ):
            if not _inside(own, namespace):
                continue
            words = said.get(reporter) or set().union(*said.values())
            talk = Talk(ingress, own, peer, protocol, port)
            (allowed if Action.ALLOW in words else denied).append(talk)
    order = sorted(allowed, key=lambda talk: talk.rank), sorted(denied, key=lambda talk: talk.rank)
    return Seen(tuple(order[0]), tuple(order[1]), labels, tuple(unreadable))


def _inside(end: End, namespace: str) -> bool:
    return end.kind is EndKind.WORKLOAD and end.namespace == namespace


def number_of(protocol: str) -> int | None:
    """The number of a protocol as flows spell it; None for what is none."""
    if protocol in _SPELLED:
        return _SPELLED[protocol]
    text = protocol.strip()
    return protocol_number(int(text) if text.isascii() and text.isdigit() else text)
