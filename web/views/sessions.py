"""Each node's BGP sessions: as configured, with what is known of their state, and from where.

A node's own word (its status file) says cause and remedy; a CalicoNodeStatus says the state alone.
Where neither is there the state is not known, and the view says how to learn it.
Tested in tests/web/test_sessions_view.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from calicoctl.node.processes import Process
from calicoctl.routing.topology import Link
from calicoctl.status.reports import is_current
from libcalico.model.resources.nodestatus import CalicoNodeStatus
from web.facts.facts import Facts
from web.facts.words import Word
from web.views.state import State

ESTABLISHED = "Established"
NOT_ASKED = (
    "Its state is not known: no aggregator carries this node's word, and no CalicoNodeStatus with"
    " the class BGP reports on it. On the node: calicoctl node status"
)
TOO_OLD = (
    "Its state is not known: CalicoNodeStatus {} is of {}, too old to tell. On the node: calicoctl"
    " node status"
)
CAUSE_ON_NODE = (
    "CalicoNodeStatus tells no cause. On the node `calicoctl node status` does; with an aggregator"
    " it stands here"
)


@dataclass(frozen=True, slots=True)
class Session:
    """A session from `node`'s end. `cause` is one word, `seen` and `fix` are sentences."""

    node: str
    peer: str
    address: str
    kind: str
    asn: int
    state: State
    info: str = ""
    since: str = ""
    cause: str = ""
    seen: str = ""
    fix: str = ""
    received: str = ""
    sent: str = ""
    refused: str = ""
    source: str = ""

    @property
    def why(self) -> str:
        """Cause, what was seen and what to do, as one text; empty where nothing is wrong."""
        if self.state is State.UP:
            return ""
        parts = [part for part in (self.cause, self.seen) if part]
        return "; ".join(filter(None, [": ".join(parts), self.fix]))


def sessions(facts: Facts) -> dict[str, list[Session]]:
    """The sessions of every node, worst first."""
    expected = _expected(facts)
    hubs = facts.topology.hubs
    spokes = {link.near: [link] for link in facts.topology.links if link.far in hubs}
    result: dict[str, list[Session]] = {}
    for node in facts.nodes:
        word = facts.words.get(node)
        if word is not None and word.bgp.status:
            made = list(_of_word(node, word, expected.get(node, {}), facts))
        elif (status := facts.statuses.get(node)) is not None:
            made = list(_of_status(node, status, expected.get(node, {}), facts))
        else:
            made = [_unknown(node, link) for link in expected.get(node, {}).values()]
            made += [_unknown(node, link) for link in spokes.get(node, ())]
        result[node] = sorted(made, key=lambda one: (-one.state.rank, one.peer, one.address))
    return result


def _expected(facts: Facts) -> dict[str, dict[str, Link]]:
    """The configured sessions of every node by the peer's address, from both ends of a link.

    The spokes of a folded mesh are no sessions and are left out.
    """
    nodes = facts.view.nodes
    asn = {place.name: place.asn for place in facts.topology.places}
    hubs = facts.topology.hubs
    result: dict[str, dict[str, Link]] = {}
    for link in facts.topology.links:
        if link.far in hubs:
            continue
        result.setdefault(link.near, {})[str(link.address)] = link
        far, near = nodes.get(link.far), nodes.get(link.near)
        if far is None or near is None or link.one_sided:
            continue
        back = near.address(link.address.version)
        if back is not None:
            other = Link(link.far, link.near, back, link.kind, asn.get(link.near, 0))
            result.setdefault(link.far, {})[str(back)] = other
    return result


def _one_sided(node: str, link: Link) -> Session:
    return Session(
        node,
        link.far,
        str(link.address),
        link.kind,
        link.asn,
        State.DOWN,
        cause="one-sided",
        seen=link.note,
        fix=f"give {link.far} the session too (a BGPPeer that selects both ends), or remove this",
        source="configuration",
    )


def _unknown(node: str, link: Link, fix: str = NOT_ASKED) -> Session:
    if link.one_sided:
        return _one_sided(node, link)
    address, asn = str(link.address), link.asn
    return Session(node, link.far, address, link.kind, asn, State.UNKNOWN, fix=fix)


def _of_word(
    node: str, word: Word, expected: Mapping[str, Link], facts: Facts
) -> Iterator[Session]:
    reported = {str(one.get("address", "")): one for one in word.bgp.objects("peers")}
    for address, peer in reported.items():
        link = expected.get(address)
        up = peer.get("state") == "up" and word.bgp.running
        cause, seen, fix = (str(peer.get(name, "")) for name in ("cause", "seen", "fix"))
        if not word.bgp.running:
            cause, seen = "speaker gone", word.bgp.last_seen()
            fix = f"start calico-node on {node}: its routes stay meanwhile"
        elif not up and link is not None and link.one_sided and not cause:
            cause, seen = "one-sided", link.note
        name = str(peer.get("node", "")) or (link.far if link else "") or _name(facts, address)
        yield Session(
            node,
            name or address,
            address,
            str(peer.get("type", "")),
            _number(peer.get("asn")),
            State.UP if up else State.DOWN,
            str(peer.get("info", "")),
            str(peer.get("since", "")),
            cause,
            seen,
            fix,
            str(peer.get("received", "")),
            str(peer.get("sent", "")),
            str(peer.get("refused", "")),
            word.source,
        )
    for address, link in expected.items():
        if address not in reported:
            yield _missing(node, link, word.bgp)


def _missing(node: str, link: Link, bgp: Process) -> Session:
    if link.one_sided:
        return _one_sided(node, link)
    seen = f"{node} does not know this session yet"
    if not bgp.running:
        seen = bgp.last_seen()
    return Session(
        node, link.far, str(link.address), link.kind, link.asn, State.DOWN,
        cause="not held", seen=seen, fix=f"look at calico-node's log on {node}", source="word",
    )  # fmt: skip


def _of_status(
    node: str, status: CalicoNodeStatus, expected: Mapping[str, Link], facts: Facts
) -> Iterator[Session]:
    bgp = status.status.bgp
    reported = {peer.peerIP: peer for peer in (*bgp.peersV4, *bgp.peersV6)}
    if "BGP" not in status.spec.classes:
        yield from (_unknown(node, link) for link in expected.values())
        return
    if not is_current(status, facts.at.timestamp()):
        fix = TOO_OLD.format(status.metadata.name, status.status.lastUpdated)
        yield from (_unknown(node, link, fix) for link in expected.values())
        return
    source = f"CalicoNodeStatus {status.metadata.name}, {status.status.lastUpdated}"
    for address, peer in reported.items():
        link = expected.get(address)
        up = peer.state == ESTABLISHED
        note = link.note if link is not None and link.one_sided and not up else ""
        yield Session(
            node,
            (link.far if link else "") or _name(facts, address) or address,
            address,
            link.kind if link else peer.type,
            link.asn if link else 0,
            State.UP if up else State.DOWN,
            peer.state,
            peer.since,
            "one-sided" if note else "",
            note,
            "" if up else CAUSE_ON_NODE,
            source=source,
        )
    for address, link in expected.items():
        if address not in reported:
            yield _unknown(node, link)


def _name(facts: Facts, address: str) -> str:
    for name, node in facts.view.nodes.items():
        if address in map(str, node.addresses):
            return name
    return ""


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
