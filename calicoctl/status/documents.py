"""The status files of a node as its state: what felix, bgp and cni say of themselves. Pure.

The schemas are those of `felix.reports.status_document` and `bgp.sessions.status`. Every value is
taken as text from another machine, perhaps of another version: what is not of the right type is
left out. Tested in `tests/calicoctl/test_status_judge.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calicoctl.status.reports import moment
from calicoctl.status.sentences import of_sessions
from calicoctl.status.values import (
    DOWN,
    LIVE,
    UP,
    Condition,
    Grade,
    NodeState,
    Session,
)

Document = Mapping[str, object]

PROCESSES = ("felix", "bgp", "cni")
SILENT = 60.0
"""Seconds by which a status file may be older than the newest one: each is written every ten."""
WITHOUT_BGP = ("vxlan", "none")


def of_documents(
    name: str, documents: Mapping[str, Document], named: Mapping[str, str]
) -> NodeState:
    """The state of a node that answered. `named`: the node of each address."""
    stale = _stale(documents)
    documents = {process: one for process, one in documents.items() if process not in stale}
    felix, bgp = documents.get("felix", {}), documents.get("bgp", {})
    sessions = tuple(_sessions(name, bgp, named))
    conditions = tuple(_conditions(documents))
    grade, why = Grade.FINE, list[str]()
    for worse, sentence in (
        *_absent(documents, stale),
        *_felix(felix),
        *_of_sessions(sessions),
        *_refused(bgp),
    ):
        grade = max(grade, worse)
        why.append(sentence)
    for one in conditions:
        # The reason of a session that is down is told with the session.
        if not one.subject.startswith("BGP peer "):
            grade = max(grade, Grade.WARNING)
            why.append(f"{one.process}: {one.subject}: {one.reason}")
    return NodeState(
        name,
        grade,
        tuple(why),
        version=_text(felix, "version"),
        source=LIVE,
        seen=max((_text(one, "time") for one in documents.values()), default=""),
        sessions=sessions,
        conditions=conditions,
        endpoints=_count(felix, "endpoints"),
        endpoints_in_force=_count(felix, "endpoints_in_force"),
    )


def _stale(documents: Mapping[str, Document]) -> dict[str, str]:
    """The processes whose file is much older than the newest one, with its time.

    Times of one machine are compared with each other, so that no clock has to agree with ours.
    """
    times = {process: moment(_text(one, "time")) for process, one in documents.items()}
    newest = max(times.values(), default=0.0)
    return {
        process: _text(documents[process], "time")
        for process, when in times.items()
        if newest - when > SILENT
    }


def _absent(
    documents: Mapping[str, Document], stale: Mapping[str, str]
) -> Iterator[tuple[Grade, str]]:
    without_bgp = documents.get("felix", {}).get("networking") in WITHOUT_BGP
    for process in PROCESSES:
        if documents.get(process) or (process == "bgp" and without_bgp):
            continue
        seen = f": it was last seen at {stale[process]}" if stale.get(process) else ""
        yield Grade.BAD, f"calico-{process} does not run{seen}"


def _felix(felix: Document) -> Iterator[tuple[Grade, str]]:
    if not felix:
        return
    if felix.get("datastore_connected") is False:
        yield Grade.BAD, f"felix does not reach the datastore: {_text(felix, 'datastore_error')}"
    if felix.get("ready") is False:
        yield Grade.BAD, "felix has not brought the kernel up to date since its start"
    if felix.get("bgp_connected") is False and felix.get("networking") not in WITHOUT_BGP:
        yield Grade.WARNING, "felix gets no routes: calico-bgp is not connected to it"
    there, in_force = _count(felix, "endpoints"), _count(felix, "endpoints_in_force")
    if there is not None and in_force is not None and in_force < there:
        yield Grade.WARNING, f"{there - in_force} of {there} endpoints are not in force"


def _of_sessions(sessions: tuple[Session, ...]) -> Iterator[tuple[Grade, str]]:
    grade, why = of_sessions(sessions)
    for sentence in why:
        yield grade, sentence


def _refused(bgp: Document) -> Iterator[tuple[Grade, str]]:
    for one in _objects(bgp, "refused"):
        yield Grade.WARNING, f"{_text(one, 'peer')} is not held: {_text(one, 'reason')}"


def _sessions(name: str, bgp: Document, named: Mapping[str, str]) -> Iterator[Session]:
    for peer in _objects(bgp, "peers"):
        address = _text(peer, "address")
        yield Session(
            node=name,
            address=address,
            state=UP if peer.get("state") == "up" else DOWN,
            kind=_text(peer, "type"),
            peer=_text(peer, "node") or named.get(address, ""),
            info=_text(peer, "info"),
            since=_text(peer, "since"),
            asn=_count(peer, "asn"),
            received=_count(peer, "received"),
            sent=_count(peer, "sent"),
            refused=_count(peer, "refused"),
            cause=_text(peer, "cause"),
            seen=_text(peer, "seen"),
            fix=_text(peer, "fix"),
            leaving=peer.get("leaving") is True,
        )


def _conditions(documents: Mapping[str, Document]) -> Iterator[Condition]:
    for process in PROCESSES:
        for one in _objects(documents.get(process, {}), "conditions"):
            yield Condition(f"calico-{process}", _text(one, "object"), _text(one, "reason"))


def _objects(document: Document, key: str) -> list[Document]:
    items = document.get(key)
    return [one for one in items if isinstance(one, Mapping)] if isinstance(items, list) else []


def _text(document: Document, key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) else ""


def _count(document: Document, key: str) -> int | None:
    value = document.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
