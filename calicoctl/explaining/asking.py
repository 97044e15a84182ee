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
class FlowQuery:
    """The packet that the operator asks about, as typed."""

    source: str
    destination: str
    namespace: str
    protocol: str | None = None
    port: int | None = None
    source_port: int | None = None
    icmp: tuple[int | None, int | None] = (None, None)
    version: int | None = None


@dataclass(frozen=True, slots=True)
class FlowResult:
    """The answers to a query, and the IP version that was asked about."""

    questions: Questions
    version: int
    answers: list[Answer]


def ask(world: World, query: FlowQuery) -> FlowResult:
    """Answer a query. Raises MuslinError for a missing object, InvalidValue for a bad option."""
    source = find(world, query.source, query.namespace)
    destination = find(world, query.destination, query.namespace)
    questions = Questions(world, source, destination)
    version = _version(questions, query.version)
    kind, protocol = _kind(query, version)
    answers = report.answers(questions, version, kind=kind, protocol=protocol)
    return FlowResult(questions, version, answers)


def _version(questions: Questions, chosen: int | None) -> int:
    ends = (questions.source, questions.destination)
    able = questions.versions()
    if chosen is None:
        # An address says which family is meant.
        said = {end.addresses[0].version for end in ends if end.addresses}
        chosen = next((v for v in able if said == {v} or (v == 6 and 6 in said)), None)
        chosen = chosen or next(iter(able), None)
    if chosen in able:
        assert chosen is not None
        return chosen
    family = "no family in common" if chosen is None else f"not both an IPv{chosen} address"
    raise MuslinError(f"{ends[0].title} and {ends[1].title} have {family}")


def _kind(query: FlowQuery, version: int) -> tuple[Kind | None, int | None]:
    """The one kind that is asked about, or the protocol whose kinds are (None: all)."""
    given = query.icmp != (None, None)
    if query.protocol is None:
        if given:
            raise InvalidValue("--icmp-type", query.icmp[0], "needs --proto icmp")
        if query.port is None:
            if query.source_port is not None:
                raise InvalidValue("--source-port", query.source_port, "needs --port")
            return None, None
        protocol = TCP
    else:
        protocol = read_protocol(query.protocol)
    kind = kind_of(
        protocol, version, port=query.port, source_port=query.source_port, icmp=query.icmp
    )
    if (kind.has_ports and query.port is None) or (not kind.has_ports and not given):
        if query.source_port is not None:
            raise InvalidValue("--source-port", query.source_port, "needs --port")
        return None, kind.protocol
    return kind, None


async def ask_node(result: FlowResult) -> live.NodeAnswer:
    """Ask felix of this node about the same packets."""
    return await live.ask(result.questions, result.version, result.answers)


def complaint(answer: live.NodeAnswer) -> str:
    """What an operator must not overlook of the node's word; empty where there is nothing."""
    return live.complaint(answer)


def as_text(result: FlowResult, answer: live.NodeAnswer | None) -> str:
    """The answers, and the node's, as text."""
    lines = [_unasked(result)] if answer is None else live.as_lines(answer)
    return text.answers_text(result.questions, result.answers, lines)


def _unasked(result: FlowResult) -> str:
    """What an answer without `--live` is about."""
    ends = (result.questions.source, result.questions.destination)
    nodes = sorted({end.node for end in ends if end.node})
    where = f" On {' and '.join(nodes)}, as root, --live compares it." if nodes else ""
    return f"So says the datastore. What felix and the kernel do was not asked.{where}"


def as_json(result: FlowResult, answer: live.NodeAnswer | None) -> str:
    """The answers, and the node's, as one JSON object."""
    tree = report.as_tree(result.questions, result.answers)
    tree["basis"] = (
        "datastore" if answer is None else f"datastore, compared with node {answer.node}"
    )
    if answer is not None:
        tree["live"] = live.as_tree(answer)
    return json.dumps(tree, indent=2)
