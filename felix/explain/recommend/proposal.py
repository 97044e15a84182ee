"""`policy recommend`: the smallest policies of a namespace that allow what was seen.

Each group of workloads that was seen gets one policy that closes both directions but for what was
seen. What cannot be allowed without a choice of the operator's is told and left out.

Invariants:
  REC-2  Every talk that was seen is allowed by a policy of the proposal, or told with the reason.
  REC-3  The plan of the proposal denies none of the talks that it allows.
Tested in tests/policy_recommend/test_worlds.py, test_proposal.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from felix.explain.plan_report import PlanReport, compare, reported
from felix.explain.recommend.crowd import Crowd
from felix.explain.recommend.groups import Group, groups_of
from felix.explain.recommend.peers import NO_CHOICES, Choices, Peers
from felix.explain.recommend.policies import (
    Document,
    calico,
    kubernetes,
    policy_name,
    unsayable,
)
from felix.explain.recommend.proof import Proof, Prover
from felix.explain.recommend.rules import Permit, permits
from felix.explain.recommend.seen import Seen, Talk, seen_in
from felix.explain.world import World
from flows.record import Flow
from libcalico.conversion.network_policy import network_policy
from libcalico.errors import MuslinError
from libcalico.model import codec, defaults, key_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for."""

    namespace: str
    choices: Choices = NO_CHOICES
    kubernetes: bool = False
    staged: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A talk that no policy of the proposal allows, and why."""

    talk: Talk
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """Documents, and what is to be known about them. `quiet`: pods that no policy selects."""

    documents: tuple[Document, ...]
    seen: Seen
    left_out: tuple[LeftOut, ...]
    proof: Proof
    plan: PlanReport
    quiet: tuple[str, ...]
    notes: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def propose(
    world: World, flows: Iterable[Flow], asked: Wanted, late: Callable[[], bool] = lambda: False
) -> Proposal:
    """The proposal. `late` bounds the plan. Raises MuslinError where nothing was seen."""
    seen = seen_in(flows, asked.namespace)
    if not seen.talks:
        raise MuslinError(
            f"no allowed flow of workloads of namespace {asked.namespace} was seen:"
            " there is nothing to recommend"
        )
    crowd = Crowd(world, seen.labels, accounts=not asked.kubernetes)
    peers = Peers(world, crowd, asked.namespace, asked.choices,
                  sets_by_labels=not asked.kubernetes)  # fmt: skip
    talks, left_out = _sorted_out(seen.talks, peers, asked)
    groups = groups_of({talk.own for talk in seen.talks}, crowd, asked.namespace)
    documents, enforced, names = _documents(world, groups, talks, peers, asked)
    changes = {key_of(each): each for each in map(_resource, enforced)}
    after = world.replaced(changes)
    comparison = compare(world, after, late)
    proof = Prover(comparison, crowd, peers).prove(talks)
    selected = {entry for group in groups for entry in group.members}
    there = crowd.by_namespace.get(asked.namespace, [])
    return Proposal(
        tuple(documents), seen, tuple(left_out), proof, reported(comparison, world, after),
        tuple(entry.title for entry in there if entry not in selected),
        (*seen.unreadable, *peers.notes), names,
    )  # fmt: skip


def _sorted_out(
    talks: Iterable[Talk], peers: Peers, asked: Wanted
) -> tuple[list[Talk], list[LeftOut]]:
    kept, left = [], []
    for talk in talks:
        sides = peers.of(talk.peer)
        reason = "" if sides else peers.lacking(talk.peer)
        if sides and asked.kubernetes:
            reasons = [unsayable(Permit(side, talk.protocol, (talk.port,))) for side in sides]
            lacks = next(filter(None, reasons), "")
            reason = f"policies of Kubernetes cannot say: {lacks}" if lacks else ""
        if reason:
            left.append(LeftOut(talk, reason))
        else:
            kept.append(talk)
    return kept, left


def _documents(
    world: World, groups: Iterable[Group], talks: Iterable[Talk], peers: Peers, asked: Wanted
) -> tuple[list[Document], list[Document], dict[str, tuple[str, ...]]]:
    documents, enforced = [], []
    names: dict[str, tuple[str, ...]] = {}
    kept = list(talks)
    for group in groups:
        name = policy_name(group.name, names)
        names[name] = tuple(entry.title for entry in group.members)
        both = [
            permits((t for t in kept if t.own in group.ends and t.ingress is ingress), peers.of)
            for ingress in (True, False)
        ]
        form = kubernetes if asked.kubernetes else partial(calico, world)
        written = partial(form, name, asked.namespace, group.choice.terms, *both)
        documents.append(written(staged=asked.staged))
        enforced.append(written(staged=False))
    return documents, enforced, names


def _resource(document: Document) -> Any:
    """The policy that enforces a document. Raises MuslinError where it is none: a defect."""
    if document["apiVersion"].startswith("networking"):
        policy, problems = network_policy(document)
        if problems:
            raise MuslinError(f"a proposed policy cannot be converted: {problems[0]}")
        return policy
    return defaults.apply_defaults(codec.resource_from_tree(document, strict=True))
