"""A cluster's status as text for people: a sentence, the nodes worst first, the pools, what to do.

Tested in `tests/calicoctl/test_status_text.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from calicoctl import borders
from calicoctl.status.sentences import listed
from calicoctl.status.values import (
    DOWN,
    UNKNOWN,
    UP,
    ClusterStatus,
    Grade,
    NodeState,
    PoolState,
)

NODES = ("NODE", "STATE", "VERSION", "SESSIONS", "CONDITIONS", "SEEN", "FROM")
WIDE_NODES = ("ADDRESSES", "ENDPOINTS")
POOLS = ("POOL", "CIDR", "STATE", "IN USE", "FREE", "BLOCKS")
FINE_SHOWN = 20
"""Nodes without a fault in the table; the rest is counted, and -o wide shows them."""


def of_status(status: ClusterStatus, wide: bool = False) -> str:
    """The whole text; `wide` has more columns and every node."""
    return "".join(_parts(status, wide))


def _parts(status: ClusterStatus, wide: bool) -> Iterator[str]:
    yield f"{headline(status)}\n"
    bad = [node for node in status.nodes if node.grade is not Grade.FINE]
    fine = [node for node in status.nodes if node.grade is Grade.FINE]
    shown = fine if wide else fine[:FINE_SHOWN]
    if status.nodes:
        headings = NODES + (WIDE_NODES if wide else ())
        yield "\nNodes\n"
        yield borders.render(headings, [_node_row(node, wide) for node in (*bad, *shown)])
        if len(fine) > len(shown):
            yield f"{len(fine) - len(shown)} more nodes are fine (-o wide shows them).\n"
    for node in status.nodes:
        for why in node.why:
            yield f"{node.name}: {why}\n"
    if status.pools:
        yield "\nPools\n"
        yield borders.render(POOLS, [_pool_row(pool) for pool in status.pools])
        yield from (f"{pool.name}: {pool.why}\n" for pool in status.pools if pool.why)
    if status.unanswered:
        names = [node for node, _ in status.unanswered]
        yield f"\nDid not answer: {listed(names)}\n"
    if status.missing or status.unreadable:
        yield "\n"
        yield from (f"{line}\n" for line in (*status.unreadable, *status.missing))


def headline(status: ClusterStatus) -> str:
    """How the cluster is, in one line."""
    about = " ".join(filter(None, (status.version, status.kind and f"({status.kind})")))
    nodes = Counter(node.grade for node in status.nodes)
    counted = [f"{nodes[grade]} {grade.word}" for grade in sorted(Grade, reverse=True)]
    sessions = status.sessions
    states = [f"{sessions[state]} {state}" for state in (UP, DOWN, UNKNOWN) if sessions[state]]
    return (
        f"Cluster {about or 'without a version'} is {status.grade.word}."
        f" Nodes: {len(status.nodes)} ({', '.join(counted)})."
        f" Sessions, each end counted: {', '.join(states) or 'none known'}."
        f" Pools: {len(status.pools)}."
    )


def _node_row(node: NodeState, wide: bool) -> list[str]:
    known = [one for one in node.sessions if one.state != UNKNOWN]
    sessions = f"{node.sessions_up}/{len(node.sessions)} up" if known else "-"
    row = [
        node.name,
        node.grade.word + (", drains" if node.draining else ""),
        node.version or "-",
        sessions,
        str(len(node.conditions)) if node.source == "live" else "-",
        node.seen or "-",
        node.source,
    ]
    if wide:
        there = "-" if node.endpoints is None else f"{node.endpoints_in_force}/{node.endpoints}"
        row += [",".join(node.addresses) or "-", there]
    return row


def _pool_row(pool: PoolState) -> list[str]:
    return [
        pool.name,
        pool.cidr,
        pool.grade.word + (", disabled" if pool.disabled else ""),
        f"{pool.in_use} ({100 * pool.share:.0f}%)",
        str(pool.free),
        str(pool.blocks),
    ]
