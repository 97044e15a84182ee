"""REC-2, REC-3: in random worlds the proposal allows what was seen, and the plan tells the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from felix.explain.plan_report import compare
from felix.explain.recommend import policies, rules
from felix.explain.recommend.proposal import Proposal, Wanted, propose
from felix.explain.recommend.rules import Permit
from tests.felix.explain.test_plan import planned
from tests.policy_random import flows
from tests.policy_random.generator import make_world
from tests.policy_random.oracle import Flow, Oracle
from tests.policy_recommend.seeing import pods, told
from tests.size import FULL
from tests.support.explaining import world_of

PODS = pods()
SEED, ROWS = 919, 4
WORLDS, KUBERNETES = (100, 20) if FULL else (12, 6)
NAMESPACE = "alpha"


def documents_of(number: int) -> list[dict[str, Any]]:
    """A world's documents; its hosts judge nothing here."""
    made = make_world(SEED, number, PODS, policies=number % 5 * 4)
    return [d for d in made.documents if d["kind"] != "HostEndpoint"]


def as_in_kubernetes(document: Any) -> Any:
    """Each namespace has its name as a label, and each pod the profile of its namespace."""
    spec = document["spec"]
    if document["kind"] == "Profile" and document["metadata"]["name"].startswith("kns."):
        name = document["metadata"]["name"].removeprefix("kns.")
        labels = {**spec.get("labelsToApply", {}), "pcns.kubernetes.io/metadata.name": name}
        return {**document, "spec": {**spec, "labelsToApply": labels}}
    own = f"kns.{document['metadata'].get('namespace')}"
    if document["kind"] == "WorkloadEndpoint" and own not in spec["profiles"]:
        return {**document, "spec": {**spec, "profiles": [own, *spec["profiles"]]}}
    return document


def normal(flow: Flow) -> Flow:
    """A flow as a record keeps it: without source port and message."""
    echo = {1: 8, 58: 128}.get(flow.protocol, 0)
    return replace(flow, source_port=49152 if flow.destination_port else 0,
                   icmp_type=echo, icmp_code=0)  # fmt: skip


def recommended(
    number: int, *, kubernetes: bool = False
) -> tuple[list[dict[str, Any]], list[Flow], list[Flow], Proposal] | None:
    """The documents, packets that were seen, packets that were not, and the proposal."""
    documents = documents_of(number)
    if kubernetes:
        documents = [as_in_kubernetes(document) for document in documents]
    oracle = Oracle(documents)
    sampled = list(dict.fromkeys(map(normal, flows.sample(PODS, 160, (SEED, number)))))
    sent, unseen = sampled[: len(sampled) // 2], sampled[len(sampled) // 2 :]
    seen = [flow for packet in sent for flow in told(packet, oracle)]
    here = f"{NAMESPACE}/"
    passed = [p for p in sent if oracle.allows(p)]
    if not any(here in (p.source[:6], p.destination[:6]) for p in passed):
        return None
    wanted = Wanted(NAMESPACE, kubernetes=kubernetes)
    return documents, passed, unseen, propose(world_of(documents), seen, wanted)


def differences(number: int, counted: Counter[str]) -> list[str]:
    """What is wrong with the proposal of a world."""
    found = recommended(number)
    if found is None:
        return []
    documents, passed, unseen, proposal = found
    then = [*documents, *proposal.documents]
    before, after = Oracle(documents), Oracle(then)
    wrong = [f"{talk} would be denied" for talk in proposal.proof.denied]
    wrong += [f"{flow} was seen, and is denied" for flow in passed if not after.allows(flow)]
    wrong += [f"{one.talk}: {one.reason}" for one in proposal.left_out]
    comparison = compare(world_of(documents), world_of(then))
    for flow in unseen[:30]:
        forbidden = before.allows(flow) and not after.allows(flow)
        counted["forbidden" if forbidden else "as before"] += 1
        if planned(comparison, flow) is not (before.allows(flow) is not after.allows(flow)):
            wrong.append(f"{flow}: the plan does not tell what becomes of it")
        if forbidden and not any(not g.becomes_allowed for g in proposal.plan.groups):
            wrong.append(f"{flow} is forbidden, and the plan has nothing that is")
    counted["policies"] += len(proposal.documents)
    counted["talks"] += len(proposal.seen.talks)
    return wrong


@pytest.mark.parametrize("row", range(ROWS))
def test_the_proposal_allows_what_was_seen(row: int) -> None:
    """REC-2, REC-3"""
    counted = Counter[str]()
    wrong = []
    for number in range(row, WORLDS, ROWS):
        wrong += [f"world {number}: {each}" for each in differences(number, counted)]
    assert not wrong, "\n".join(wrong[:5])
    assert counted["forbidden"] > 0
    assert counted["policies"] > 0


def test_policies_of_kubernetes_allow_what_they_can_say() -> None:
    counted = Counter[str]()
    for number in range(KUBERNETES):
        found = recommended(number, kubernetes=True)
        if found is None:
            continue
        proposal = found[3]
        counted["left out"] += len(proposal.left_out)
        counted["asked"] += proposal.proof.asked
        assert not proposal.proof.denied, f"world {number}"
        assert all(d["apiVersion"] == policies.KUBERNETES for d in proposal.documents)
        for one in proposal.left_out:
            assert "policies of Kubernetes cannot say" in one.reason
    assert min(counted["left out"], counted["asked"]) > 0


def test_a_planted_bug_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that forgets its last port, and one that forgets a peer."""

    def forgetful(found: list[Permit]) -> list[Permit]:
        return [replace(one, ports=one.ports[:-1] or (1,)) for one in found]

    honest = rules.permits
    monkeypatch.setattr(
        "felix.explain.recommend.proposal.permits",
        lambda talks, peers: forgetful(honest(talks, peers)),
    )
    for number in range(30):
        found = recommended(number)
        if found is not None and found[3].proof.denied:
            after = Oracle([*found[0], *found[3].documents])
            assert any(not after.allows(flow) for flow in found[1])
            return
    raise AssertionError("nothing noticed it")
