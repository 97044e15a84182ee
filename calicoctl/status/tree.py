"""A cluster's status as one object, for JSON, YAML and the page. Pure.

Tested in `tests/calicoctl/test_status_text.py`.
"""

from __future__ import annotations

from dataclasses import asdict

from calicoctl.status.values import ClusterStatus, NodeState, PoolState, Session


def of_status(status: ClusterStatus) -> dict[str, object]:
    """`grade`, `cluster`, `sessions` counted, `nodes` and `pools` worst first, `missing`, ..."""
    return {
        "grade": status.grade.word,
        "cluster": {"version": status.version, "type": status.kind},
        "sessions": dict(sorted(status.sessions.items())),
        "nodes": [of_node(node) for node in status.nodes],
        "pools": [of_pool(pool) for pool in status.pools],
        "unanswered": [{"node": node, "reason": why} for node, why in status.unanswered],
        "missing": list(status.missing),
        "unreadable": list(status.unreadable),
    }


def of_node(node: NodeState) -> dict[str, object]:
    """One node."""
    return {
        "name": node.name,
        "grade": node.grade.word,
        "why": list(node.why),
        "addresses": list(node.addresses),
        "version": node.version,
        "source": node.source,
        "seen": node.seen,
        "draining": node.draining,
        "unanswered": node.unanswered,
        "endpoints": node.endpoints,
        "endpointsInForce": node.endpoints_in_force,
        "sessions": [of_session(one) for one in node.sessions],
        "conditions": [
            {"process": one.process, "object": one.subject, "reason": one.reason}
            for one in node.conditions
        ],
    }


def of_session(session: Session) -> dict[str, object]:
    """One session; what its source does not tell is null or empty."""
    return asdict(session)


def of_pool(pool: PoolState) -> dict[str, object]:
    """One pool; counts are addresses."""
    return {
        "name": pool.name,
        "cidr": pool.cidr,
        "grade": pool.grade.word,
        "why": pool.why,
        "capacity": pool.capacity,
        "inUse": pool.in_use,
        "free": pool.free,
        "blocks": pool.blocks,
        "disabled": pool.disabled,
    }
