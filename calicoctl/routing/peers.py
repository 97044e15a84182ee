"""The sessions of all nodes as a table and as one object, those that are down first. Pure.

Tested in `tests/calicoctl/test_bgp_live.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from calicoctl import borders
from calicoctl.routing.topology import Topology
from calicoctl.status.values import DOWN, STATE_WORDS, UNKNOWN, UP, ClusterStatus, Session

HEADINGS = ("NODE", "PEER", "ADDRESS", "TYPE", "STATE", "SINCE", "WHY")
WIDE = ("AS", "RECEIVED", "SENT", "REFUSED", "FROM")
ORDER = {DOWN: 0, UNKNOWN: 1, UP: 2}


def of_status(status: ClusterStatus, configured: Topology | None = None) -> list[Session]:
    """What the nodes tell; for those that tell nothing, what they are configured to hold."""
    sessions = [one for node in status.nodes for one in node.sessions]
    silent = {node.name for node in status.nodes if not node.sessions}
    if configured is not None:
        sessions += [
            Session(link.near, str(link.address), UNKNOWN, link.kind, peer=link.far, asn=link.asn)
            for link in configured.links
            if link.near in silent
        ]
    return sorted(sessions, key=lambda one: (ORDER[one.state], one.node, one.address))


def chosen(sessions: Iterable[Session], nodes: Sequence[str], down: bool) -> list[Session]:
    """Those of some nodes (of all without names), and with `down` those that are not up."""
    return [
        one
        for one in sessions
        if (not nodes or one.node in nodes) and not (down and one.state == UP)
    ]


def table(sessions: Sequence[Session], sources: dict[str, str], wide: bool = False) -> str:
    """A session a line. `sources`: where the state of each node comes from."""
    if not sessions:
        return "No BGP sessions.\n"
    rows = [_row(one, sources, wide) for one in sessions]
    counts = Counter(one.state for one in sessions)
    counted = ", ".join(f"{counts[state]} {word}" for state, word in STATE_WORDS.items())
    return borders.render(HEADINGS + (WIDE if wide else ()), rows) + f"Sessions: {counted}\n"


def _row(one: Session, sources: dict[str, str], wide: bool) -> list[str]:
    row = [
        one.node,
        one.peer or one.address,
        one.address,
        one.kind,
        STATE_WORDS[one.state],
        one.since,
        one.why,
    ]
    if wide:
        numbers = (one.asn, one.received, one.sent, one.refused)
        row += ["" if number is None else str(number) for number in numbers]
        row.append(sources.get(one.node, ""))
    return row


def as_tree(
    sessions: Sequence[Session], sources: dict[str, str], missing: Sequence[str]
) -> dict[str, object]:
    """`sessions`, each with the `source` of its state, and `missing`: what is not known."""
    listed = [{**asdict(one), "source": sources.get(one.node, "")} for one in sessions]
    return {"sessions": listed, "missing": list(missing)}
