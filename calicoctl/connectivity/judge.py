"""What the results mean: each fault is named once, with where it lies. Pure.

The order is from the larger to the smaller: what a dead node explains is no missing route, and what
a missing route explains is no broken service. Tested in
`tests/calicoctl/test_connectivity_judge.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from calicoctl.connectivity.model import (
    ALLOWED,
    DENIED,
    HOST,
    NODES,
    OPEN,
    OTHER_PORT,
    OUTSIDE,
    POD,
    PODS,
    SERVICE,
    Finding,
    Result,
)

LARGE = ("large-out", "large-in")
Pair = tuple[str, str]


def judged(results: Sequence[Result]) -> list[Finding]:
    """Everything that is wrong, in words; none where all results are right."""
    wrong = [one for one in results if not one.right]
    opened = [one for one in results if one.probe.phase == OPEN]
    dead = dict(_dead(opened))
    findings = [Finding("dead node", node, sentence) for node, sentence in sorted(dead.items())]
    left = [one for one in wrong if not _touches(one, dead)]
    findings += _large(left)
    pairs = _pairs(left, opened)
    findings += _routes(pairs)
    left = [one for one in left if one.outcome not in LARGE and _pair(one) not in pairs]
    findings += _ports(left, opened)
    findings += _services(left, opened)
    findings += _others(left)
    findings += _policies(left)
    return list(dict.fromkeys(findings))


def _touches(result: Result, nodes: Iterable[str]) -> bool:
    return result.probe.source.node in nodes or result.probe.target.node in nodes


def _pair(result: Result) -> Pair:
    return result.probe.source.node, result.probe.target.node


def _dead(opened: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Nodes to which and from which nothing passes, or on which no probe could run."""
    between = [one for one in opened if one.probe.target.node and one.outcome != "not run"]
    for node in sorted({one.probe.source.node for one in opened}):
        own = [one for one in opened if one.probe.source.node == node]
        stuck = [one for one in own if one.outcome == "not run"]
        touching = [one for one in between if _touches(one, [node]) and len(set(_pair(one))) == 2]
        if len(stuck) == len(own):
            reached = any(one.reached for one in touching)
            yield (
                node,
                (
                    f"no probe could run on node {node}: {stuck[0].error}"
                    + (
                        ""
                        if reached
                        else "; nothing reaches it either: the node is dead or cut off"
                    )
                ),
            )
        elif touching and not any(one.reached or one.outcome in LARGE for one in touching):
            others = {name for one in touching for name in _pair(one)} - {node}
            if len(others) > 1 or any(one.probe.target.kind == NODES for one in touching):
                yield (
                    node,
                    (
                        f"nothing passes between node {node} and any other, its own address"
                        " included: the node is dead, or its link is"
                    ),
                )


def _large(wrong: Sequence[Result]) -> Iterator[Finding]:
    """Pairs between which small packets pass, and large ones do not."""
    lost: dict[Pair, Result] = {}
    for one in wrong:
        if one.outcome in LARGE:
            lost.setdefault(_pair(one), one)
    for (near, far), one in sorted(lost.items()):
        way = f"from {near} to {far}" if one.outcome == "large-out" else f"from {far} to {near}"
        yield Finding(
            "MTU",
            f"{near} -> {far}",
            f"large packets {way} are lost, small ones pass: the MTU of pods is greater than the"
            " path's, or ICMP that says so is filtered",
        )


def _pairs(wrong: Sequence[Result], opened: Sequence[Result]) -> dict[Pair, list[Result]]:
    """Pairs of nodes between whose pods nothing passes at all."""
    asked: dict[Pair, list[Result]] = defaultdict(list)
    for one in opened:
        of_pods = one.probe.source.kind == POD and one.probe.target.kind in (PODS, OTHER_PORT)
        if of_pods and one.outcome != "not run":
            asked[_pair(one)].append(one)
    failed = {
        pair: group
        for pair, group in asked.items()
        if not any(one.outcome in ("answer", "refused", *LARGE) for one in group)
    }
    seen = {_pair(one) for one in wrong}
    return {pair: group for pair, group in failed.items() if pair in seen}


def _routes(pairs: dict[Pair, list[Result]]) -> Iterator[Finding]:
    paired: set[frozenset[str]] = set()
    for (near, far), group in sorted(pairs.items()):
        if near == far:
            yield Finding(
                "same node",
                near,
                f"pods of node {near} do not reach each other: a policy denies it, or the node's"
                " rules or routes of pods are gone",
            )
            continue
        ends = frozenset((near, far))
        if ends in paired:
            continue
        paired.add(ends)
        both = (far, near) in pairs
        how = sorted({one.error or one.outcome for one in group})
        yield Finding(
            "route",
            f"{near} -> {far}",
            f"pods of node {near} do not reach pods of node {far}"
            f"{', nor the other way' if both else ''} ({', '.join(how)}): a route to the pods of"
            f" {far} is missing on {near} or of {near} on {far}, or a firewall between them drops"
            f" (calicoctl bgp routes --node {near} --ask 10)",
        )


def _ports(wrong: Sequence[Result], opened: Sequence[Result]) -> Iterator[Finding]:
    """One port is shut, while another of the same pods answers."""
    answers = {
        (one.probe.target.title, one.probe.source.title)
        for one in opened
        if one.outcome == "answer"
    }
    shut: dict[tuple[str, int, str], list[Result]] = defaultdict(list)
    for one in wrong:
        target = one.probe.target
        if one.probe.phase == OPEN and target.kind in (PODS, OTHER_PORT):
            shut[target.node, target.port, one.outcome].append(one)
    for (node, port, outcome), group in sorted(shut.items()):
        open_elsewhere = any(
            (one.probe.target.title, one.probe.source.title) in answers for one in group
        )
        sources = _named(one.probe.source.node for one in group)
        if outcome == "not run":
            continue
        why = "nothing listens there, or a rule rejects" if outcome == "refused" else "it is denied"
        rest = ", while another port of the same pods answers" if open_elsewhere else ""
        yield Finding(
            "port",
            f"{node}:{port}",
            f"port {port} of pods on node {node} is shut for {sources} ({outcome}){rest}: {why}"
            " by a policy or firewall (calicoctl explain shows which policy)",
        )


def _services(wrong: Sequence[Result], opened: Sequence[Result]) -> Iterator[Finding]:
    """A service does not answer where pods do."""
    broken: dict[str, list[Result]] = defaultdict(list)
    asked: dict[str, set[str]] = defaultdict(set)
    for one in opened:
        if one.probe.target.kind == SERVICE:
            asked[one.probe.target.title].add(one.probe.source.node)
    for one in wrong:
        if one.probe.target.kind == SERVICE and one.probe.phase == OPEN:
            broken[one.probe.target.title].append(one)
    for title, group in sorted(broken.items()):
        nodes = {one.probe.source.node for one in group}
        if nodes == asked[title] and len(nodes) > 1:
            where = "from no node: it has no endpoint that answers, or no kube-proxy serves it"
        else:
            where = f"from {_named(nodes)}: kube-proxy there does not serve it"
        outcomes = ", ".join(sorted({one.outcome for one in group}))
        yield Finding("service", title, f"service {title} does not answer ({outcomes}) {where}")


def _others(wrong: Sequence[Result]) -> Iterator[Finding]:
    """Nodes and places outside that are not reached, and probes that could not run."""
    lost: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for one in wrong:
        if one.probe.target.kind in (NODES, OUTSIDE) and one.probe.phase == OPEN:
            key = (one.probe.target.kind, one.probe.target.title, one.probe.source.kind)
            lost[key].add(one.probe.source.node)
    for (kind, title, source), nodes in sorted(lost.items()):
        who = "pods of" if source == POD else "the network of"
        name = "node" if kind == NODES else "outside"
        yield Finding(name, title, f"{title} ({name}) is not reached from {who} {_named(nodes)}")
    stuck = {one.probe.source.title: one.error for one in wrong if one.outcome == "not run"}
    for title, error in sorted(stuck.items()):
        yield Finding("probe", title, f"no probe could run in {title}: {error}")
    hosts = {
        _pair(one)
        for one in wrong
        if one.probe.source.kind == HOST and one.probe.target.kind in (PODS, OTHER_PORT)
    }
    for near, far in sorted(hosts):
        yield Finding(
            "node to pod", f"{near} -> {far}", f"node {near} does not reach pods of {far}"
        )


def _policies(wrong: Sequence[Result]) -> Iterator[Finding]:
    """What a policy should deny and does not, or should allow and does not."""
    leaks: dict[str, set[str]] = defaultdict(set)
    shut: dict[str, set[str]] = defaultdict(set)
    for one in wrong:
        if one.probe.phase not in (DENIED, ALLOWED) or one.outcome == "not run":
            continue
        side = shut if one.probe.open else leaks
        side[one.probe.target.node or one.probe.target.title].add(one.probe.source.node)
    for node, sources in sorted(leaks.items()):
        yield Finding(
            "policy not enforced",
            node,
            f"pods on {node} answer {_named(sources)} although a policy denies it: felix there does"
            " not enforce policies in time, or another policy allows it first",
        )
    for node, sources in sorted(shut.items()):
        yield Finding(
            "policy denies too much",
            node,
            f"pods on {node} do not answer {_named(sources)} although a policy allows it",
        )


def _named(nodes: Iterable[str], most: int = 4) -> str:
    names = sorted(set(nodes))
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more nodes" if rest > 0 else "")
