"""From what the operator typed to answers, and to the node's own word on them.

Tested in `tests/calicoctl/test_explain.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from calicoctl.explaining import live, text
from felix.explain import report
from felix.explain.ends import find
from felix.explain.flow import TCP, Kind, kind_of, read_protocol
from felix.explain.path import Questions
from felix.explain.report import Answer
from felix.explain.world import World
from libcalico.errors import InvalidValue, MuslinError


@dataclass(frozen=True, slots=True)
class Wish:
    """What was typed."""

    source: str
    destination: str
    namespace: str
    protocol: str | None = None
    port: int | None = None
    source_port: int | None = None
    icmp: tuple[int | None, int | None] = (None, None)
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The answers to a wish."""

    questions: Questions
    version: int
    answers: list[Answer]


def ask(world: World, wish: Wish) -> Found:
    """The answers. Raises MuslinError for what there is not, InvalidValue for what cannot be."""
    source = find(world, wish.source, wish.namespace)
    destination = find(world, wish.destination, wish.namespace)
    questions = Questions(world, source, destination)
    version = _version(questions, wish.version)
    kind, protocol = _kind(wish, version)
    answers = report.answers(questions, version, kind=kind, protocol=protocol)
    return Found(questions, version, answers)


def _version(questions: Questions, wanted: int | None) -> int:
    ends = (questions.source, questions.destination)
    able = questions.versions()
    if wanted is None:
        # An address says which family is meant.
        said = {end.addresses[0].version for end in ends if end.addresses}
        wanted = next((v for v in able if said == {v} or (v == 6 and 6 in said)), None)
        wanted = wanted or next(iter(able), None)
    if wanted in able:
        assert wanted is not None
        return wanted
    family = "no family in common" if wanted is None else f"not both an IPv{wanted} address"
    raise MuslinError(f"{ends[0].title} and {ends[1].title} have {family}")


def _kind(wish: Wish, version: int) -> tuple[Kind | None, int | None]:
    """The one kind that is asked about, or the protocol whose kinds are (None: all)."""
    given = wish.icmp != (None, None)
    if wish.protocol is None:
        if given:
            raise InvalidValue("--icmp-type", wish.icmp[0], "needs --proto icmp")
        if wish.port is None:
            if wish.source_port is not None:
                raise InvalidValue("--source-port", wish.source_port, "needs --port")
            return None, None
        protocol = TCP
    else:
        protocol = read_protocol(wish.protocol)
    kind = kind_of(protocol, version, port=wish.port, source_port=wish.source_port, icmp=wish.icmp)
    if (kind.has_ports and wish.port is None) or (not kind.has_ports and not given):
        if wish.source_port is not None:
            raise InvalidValue("--source-port", wish.source_port, "needs --port")
        return None, kind.protocol
    return kind, None


async def ask_node(found: Found) -> live.Told:
    """What felix of this node says about the same packets."""
    return await live.ask(found.questions, found.version, found.answers)


def complaint(told: live.Told) -> str:
    """What an operator must not overlook of the node's word; empty where there is nothing."""
    return live.complaint(told)


def as_text(found: Found, told: live.Told | None) -> str:
    """Everything for people."""
    lines = [_unasked(found)] if told is None else live.as_lines(told)
    return text.answers_text(found.questions, found.answers, lines)


def _unasked(found: Found) -> str:
    """What an answer without `--live` is about."""
    ends = (found.questions.source, found.questions.destination)
    nodes = sorted({end.node for end in ends if end.node})
    where = f" On {' and '.join(nodes)}, as root, --live compares it." if nodes else ""
    return f"So says the datastore. What felix and the kernel do was not asked.{where}"


def as_json(found: Found, told: live.Told | None) -> str:
    """Everything as one object."""
    tree = report.as_tree(found.questions, found.answers)
    tree["basis"] = "datastore" if told is None else f"datastore, compared with node {told.node}"
    if told is not None:
        tree["live"] = live.as_tree(told)
    return json.dumps(tree, indent=2)
