"""The controllers that the settings ask for, and what they read from.

Tested in tests/controllers/test_process.py.
"""

from __future__ import annotations

from typing import Protocol, TypedDict

from msgspec.structs import replace

from controllers.addresses.collection import Collection
from controllers.addresses.load_balancers import LoadBalancers
from controllers.addresses.pods import Pods
from controllers.endpoints.endpoint_labels import EndpointLabels
from controllers.mirror.cluster_policies import ClusterPolicies
from controllers.mirror.mirror import Mirror
from controllers.mirror.mirrored_kinds import ACCOUNT_PROFILES, NAMESPACE_PROFILES, POLICIES
from controllers.nodes.node_existence import NodeExistence
from controllers.nodes.node_view import NodeView
from controllers.nodes.nodes import Nodes
from controllers.settings import Settings
from libcalico.datastore.interface import Datastore
from libcalico.kubernetes.client import Client


class Part(Protocol):
    """A controller, or what it reads from."""

    async def run(self) -> None: ...


class Pace(TypedDict):
    """How a controller works: its workers, and the seconds between two full comparisons."""

    workers: int
    period: float


def build(
    settings: Settings, client: Client, store: Datastore, *, native: bool
) -> tuple[list[Part], Collection | None]:
    """The parts that these settings ask for, and the collection of addresses among them.

    `native`: Kubernetes is the datastore.
    """
    chosen, copies = settings.controllers, not native
    reports = not copies and chosen.policy is not None
    if not copies:
        # With Kubernetes as the datastore its own objects are read where they are.
        chosen = replace(
            chosen, policy=None, namespace=None, serviceAccount=None, workloadEndpoint=None
        )

    def common(member: str) -> Pace:
        return {"workers": settings.workers[member], "period": settings.period(member)}

    # Listed once for all: in a large cluster there is no more costly question.
    pods = Pods(client)
    parts: list[Part] = []
    if chosen.workloadEndpoint is not None or chosen.node is not None:
        parts.append(pods)
    if chosen.policy is not None:
        parts.append(Mirror(POLICIES, client, store, **common("policy")))
        parts.append(ClusterPolicies(client, store, **common("policy")))
    if reports:
        parts.append(ClusterPolicies(client, None, **common("policy")))
    if chosen.namespace is not None:
        parts.append(Mirror(NAMESPACE_PROFILES, client, store, **common("namespace")))
    if chosen.serviceAccount is not None:
        parts.append(Mirror(ACCOUNT_PROFILES, client, store, **common("serviceAccount")))
    if chosen.workloadEndpoint is not None:
        parts.append(EndpointLabels(client, store, pods=pods, **common("workloadEndpoint")))
    collection = None
    if chosen.node is not None:
        view = NodeView(client, store)
        presence = NodeExistence(store, client)
        collection = Collection(
            view, client, store, grace=settings.grace, handles=native, pods=pods, presence=presence
        )
        nodes = Nodes(
            view,
            client,
            store,
            sync_labels=copies and chosen.node.syncLabels != "Disabled",
            endpoints=chosen.node.hostEndpoint,
            removed=collection.look_soon,
            presence=presence,
            **common("node"),
        )
        parts += [view, nodes, collection]
    if chosen.loadBalancer is not None:
        parts.append(LoadBalancers(client, store, assign=chosen.loadBalancer.assignIPs))
    return parts, collection
