"""From facts to a judged `ClusterStatus`: what is wrong with each node and pool. Pure.

A node is judged by the best source there is: its own answer, its CalicoNodeStatus, its life signs.
Old news never count as the present: the sessions of a report that is too old are unknown. Tested
in `tests/calicoctl/test_status_judge.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_interface

from bgp.cluster.nodes import DRAIN
from calicoctl.status import pools, reports
from calicoctl.status.documents import of_documents
from calicoctl.status.facts import Answer, Facts, Signs
from calicoctl.status.sentences import listed, of_sessions
from calicoctl.status.values import (
    DOWN,
    LIVE,
    NOTHING,
    REPORT,
    ClusterStatus,
    Grade,
    NodeState,
)
from libcalico.model import Node
from libcalico.model.base.meta import seconds_at

FELIX_SILENT = 180.0
"""Seconds after which a felix that does not renew its life sign is worth a word."""


def judged(facts: Facts) -> ClusterStatus:
    """The cluster's status, worst first."""
    named = peers_by_address(facts.nodes)
    merged = reports.by_node(facts.reports, facts.now, named)
    nodes = [_node(name, facts.nodes[name], facts, merged.get(name), named) for name in facts.names]
    nodes.sort(key=_badness)
    return ClusterStatus(
        nodes=tuple(nodes),
        pools=pools.judged(facts.pools, facts.blocks, facts.reserved),
        version=facts.version,
        kind=facts.kind,
        missing=(*facts.missing, *_unknown(nodes)),
        unreadable=facts.unreadable,
    )


def peers_by_address(nodes: Mapping[str, Node]) -> dict[str, str]:
    """The node of each BGP address."""
    return {address: name for name, node in nodes.items() for address in addresses(node)}


def addresses(node: Node) -> tuple[str, ...]:
    """The BGP addresses of a node; what is no address is left out."""
    bgp = node.spec.bgp
    texts = []
    for text in (bgp.ipv4Address, bgp.ipv6Address) if bgp is not None else ():
        try:
            texts.append(str(ip_interface(text).ip))
        except ValueError:
            continue
    return tuple(texts)


def _badness(node: NodeState) -> tuple[int, bool, int, str]:
    down = sum(one.state == DOWN for one in node.sessions)
    return -node.grade, not node.unanswered, -down, node.name


def _node(
    name: str,
    node: Node,
    facts: Facts,
    report: reports.Merged | None,
    named: Mapping[str, str],
) -> NodeState:
    answer = facts.answers.get(name)
    state = _by_answer(name, answer, named)
    signs = facts.signs.get(name, Signs())
    grade, why = _life(signs, facts.now)
    if state is None and report is not None:
        if grade is Grade.BAD:
            report = report.forgotten()
        state = _by_report(name, report)
        if report.current and grade is Grade.UNKNOWN:
            grade, why = Grade.FINE, []  # what reports lives
    if state is None:
        state = NodeState(name, Grade.UNKNOWN, ())
        if grade is Grade.FINE:
            # It lives; of its sessions nothing is known.
            why = ["its sessions are not known"]
    elif state.source == LIVE and grade in (Grade.UNKNOWN, Grade.BAD) and signs.ready is None:
        grade, why = Grade.FINE, []  # it has just answered: its keys say less
    unanswered = "" if answer is None else answer.error
    if unanswered:
        why.append(f"it did not answer: {unanswered}")
        grade = max(grade, Grade.WARNING)
    draining = node.metadata.annotations.get(DRAIN) == "true"
    if draining:
        why.append("it drains (calicoctl node bgp undrain ends that)")
    return NodeState(
        name=name,
        grade=max(grade, state.grade, Grade.WARNING if draining else Grade.FINE),
        why=(*why, *state.why),
        addresses=addresses(node),
        version=state.version,
        source=state.source,
        seen=state.seen or _last_seen(signs),
        draining=draining,
        unanswered=unanswered,
        sessions=state.sessions,
        conditions=state.conditions,
        endpoints=state.endpoints,
        endpoints_in_force=state.endpoints_in_force,
    )


def _by_answer(name: str, answer: Answer | None, named: Mapping[str, str]) -> NodeState | None:
    if answer is None or answer.error:
        return None
    return of_documents(name, answer.documents, named)


def _by_report(name: str, report: reports.Merged) -> NodeState:
    grade, why = of_sessions(report.sessions)
    if not report.current:
        grade = max(grade, Grade.UNKNOWN)
        why.append(f"its report of {report.seen or 'an unknown time'} is too old to count")
    elif report.not_ready:
        grade = Grade.BAD
        why.append("its BGP agent is not ready")
    return NodeState(
        name,
        grade,
        tuple(why),
        version=report.version,
        source=REPORT if report.current else NOTHING,
        seen=report.seen,
        sessions=report.sessions,
    )


def _life(signs: Signs, now: float) -> tuple[Grade, list[str]]:
    """What the life signs alone say."""
    if signs.ready is not None:
        if not signs.ready:
            return Grade.BAD, [
                f"its kubelet says that it is not ready: {signs.reason}".rstrip(": ")
            ]
        if signs.network is True:
            return Grade.BAD, [f"its network is not available: {signs.reason}".rstrip(": ")]
        return Grade.FINE, []
    last = signs.felix or signs.last
    seen = None if last is None else seconds_at(last.time)
    silent = seen is not None and now - seen > FELIX_SILENT
    if signs.felix is not None or (signs.machine is not None and not silent):
        return Grade.FINE, []
    if signs.machine is not None and last is not None:
        return Grade.BAD, [f"calico-node lives, and felix was last seen at {last.time}"]
    if last is not None:
        return Grade.BAD, [f"it gives no sign of life; felix was last seen at {last.time}"]
    return Grade.UNKNOWN, ["nothing tells whether it lives: no agent has given a sign"]


def _last_seen(signs: Signs) -> str:
    for sign in (signs.felix, signs.machine, signs.last):
        if sign is not None:
            return sign.time
    return ""


def _unknown(nodes: list[NodeState]) -> list[str]:
    """What no source told, and how to get it."""
    reported = sum(node.source == REPORT for node in nodes)
    sentences = [
        f"Conditions, causes of sessions that are down, and counts of paths of {reported} nodes are"
        " not known: only the nodes themselves tell them (--aggregator, docs/flows.md)."
    ]
    names = [node.name for node in nodes if node.source == NOTHING]
    if not names:
        return sentences if reported else []
    return [
        *(sentences if reported else ()),
        f"The sessions of {listed(names)} are not known: ask with --ask, keep a CalicoNodeStatus"
        " of each node, or run the aggregator (docs/bgp-status.md).",
    ]
