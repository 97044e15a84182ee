"""A proposal as text: YAML that `apply` takes, and beside it what it was proved by.

Tested in tests/calicoctl/test_recommend.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from calicoctl import yamltext
from felix.explain.flow import protocol_name
from felix.explain.plan_report import as_tree
from felix.explain.recommend.proposal import Proposal
from felix.explain.recommend.seen import Talk
from flows.record import End

MOST_TOLD = 10
"""Lines of one list that people are told."""


def as_yaml(proposal: Proposal) -> str:
    """The documents, in the order of their names."""
    return "---\n".join(yamltext.dump(document) for document in proposal.documents)


def as_json(proposal: Proposal) -> str:
    """Everything as one JSON object."""
    tree = {
        "policies": list(proposal.documents),
        "selects": {name: list(titles) for name, titles in proposal.names.items()},
        "seen": len(proposal.seen.talks),
        "deniedWhenSeen": [_talk(talk) for talk in proposal.seen.denied],
        "leftOut": [{"talk": _talk(one.talk), "reason": one.reason} for one in proposal.left_out],
        "proof": {
            "packets": proposal.proof.asked,
            "denied": [_talk(talk) for talk in proposal.proof.denied],
            "deniedToday": [_talk(talk) for talk in proposal.proof.before],
            "notAsked": [_talk(talk) for talk in proposal.proof.unasked],
        },
        "notSelected": list(proposal.quiet),
        "notes": list(proposal.notes),
        "plan": as_tree(proposal.plan),
    }
    return json.dumps(tree, indent=2) + "\n"


def remarks(proposal: Proposal) -> Iterator[str]:
    """What an operator must know besides the documents, a line each."""
    proof = proposal.proof
    for name, titles in proposal.names.items():
        yield f"{name} selects {_some(titles)}"
    if proof.denied:
        yield "*** the proposal would deny connections that were seen:"
        yield from _listed(map(_words, proof.denied), len(proof.denied))
    else:
        allowed = len(proposal.seen.talks) - len(proposal.left_out)
        yield (
            f"proved: none of {_ends(allowed)} that it allows would be denied"
            f" ({proof.asked} packets asked of both worlds)"
        )
    reasons = Counter(one.reason for one in proposal.left_out)
    for reason, count in reasons.items():
        yield f"*** NOT allowed, though seen: {_ends(count)}: {reason}"
        those = [_words(one.talk) for one in proposal.left_out if one.reason == reason]
        yield from _listed(those, count)
    for talks, what in (
        (proof.before, "seen, which policy denies today"),
        (proof.unasked, "seen, and no pod is left to ask about"),
        (proposal.seen.denied, "only ever denied: the proposal does not allow that"),
    ):
        if talks:
            yield f"{_ends(len(talks))} {what}"
            yield from _listed(map(_words, talks), len(talks))
    if proposal.quiet:
        yield f"without flows, and selected by none of these policies: {_some(proposal.quiet)}"
    yield from (f"note: {note}" for note in proposal.notes)


def _ends(count: int) -> str:
    return "1 end of a connection" if count == 1 else f"{count} ends of connections"


def _some(titles: tuple[str, ...]) -> str:
    shown = ", ".join(titles[:MOST_TOLD])
    more = len(titles) - MOST_TOLD
    return f"{shown} and {more} more" if more > 0 else shown or "no pod that is left"


def _listed(lines: Iterator[str] | list[str], count: int) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == MOST_TOLD:
            yield f"  and {count - MOST_TOLD} more"
            return
        yield f"  {line}"


def _words(talk: Talk) -> str:
    ends = (talk.peer, talk.own) if talk.ingress else (talk.own, talk.peer)
    direction = "ingress" if talk.ingress else "egress"
    port = f" {talk.port}" if talk.port else ""
    protocol = protocol_name(talk.protocol)
    return f"{direction}: {_end(ends[0])} -> {_end(ends[1])}, {protocol}{port}"


def _end(end: End) -> str:
    name = f"{end.namespace}/{end.name}" if end.namespace else end.name
    return f"{end.kind.name.lower().replace('_', ' ')} {name}"


def _talk(talk: Talk) -> dict[str, object]:
    own, peer = (
        {"kind": end.kind.name.lower(), "namespace": end.namespace, "name": end.name}
        for end in (talk.own, talk.peer)
    )
    return {
        "direction": "ingress" if talk.ingress else "egress",
        "of": own,
        "peer": peer,
        "protocol": protocol_name(talk.protocol),
        "port": talk.port,
    }
