"""Labels of pods, carried to the endpoints that their node wrote when they started.

The node writes the whole endpoint at ADD. Later changes of a pod's labels reach it here; nothing
is created or deleted (docs/reference/data-model.md#mirrors-of-kubernetes). An endpoint is a pod's
only if it lies on the pod's node and has one of the pod's addresses: a new pod of an old name must
not label its predecessor.

Invariant (tests/controllers/test_endpoint_labels.py):
  ELB-1  Of an endpoint only its labels and its service account change, and only where they
         differ from the pod's.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from msgspec.structs import replace

from controllers.addresses.pods import Pods
from controllers.endpoints.endpoint_rows import Brief, EndpointRows, mark
from controllers.mirror.mirror import PERIOD
from controllers.mirror.objects import Pod
from controllers.queue import WorkQueue
from libcalico import names
from libcalico.datastore.interface import CommitConflict, Datastore, Put, Selection
from libcalico.datastore.syncer import Syncer
from libcalico.errors import MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.names import Name
from libcalico.model import WorkloadEndpoint
from libcalico.model.keys import ResourceKey

log = logging.getLogger(__name__)

LABEL = "projectcalico.org/"
MAX_LABEL = 63


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The fields of a pod that its endpoint copies."""

    node: str
    account: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]


def facts_of(pod: Pod) -> PodFacts | None:
    """Of a pod that has an endpoint of ours: scheduled, not in the host's network, with an
    address."""
    addresses = {one.ip for one in pod.status.podIPs or ()} | {pod.status.podIP}
    addresses.discard("")
    if pod.spec.hostNetwork or not pod.spec.nodeName or not addresses:
        return None
    intern = sys.intern  # pods of one owner share nearly all of this
    labels = {intern(name): intern(value) for name, value in (pod.metadata.labels or {}).items()}
    return PodFacts(
        intern(pod.spec.nodeName),
        intern(pod.spec.serviceAccountName),
        labels,
        tuple(sorted(addresses)),
    )


def endpoint_labels(facts: PodFacts, namespace: str) -> dict[str, str]:
    """The labels of a pod's endpoint (docs/reference/data-model.md#labels-and-profiles-of-pods)."""
    labels = {
        **facts.labels,
        LABEL + "namespace": namespace,
        LABEL + "orchestrator": names.KUBERNETES,
    }
    labels.pop(LABEL + "serviceaccount", None)
    if facts.account and len(facts.account) < MAX_LABEL:
        labels[LABEL + "serviceaccount"] = facts.account
    return labels


def relabelled(endpoint: WorkloadEndpoint, facts: PodFacts) -> WorkloadEndpoint | None:
    """The endpoint as it should be, or None where it is, or is not this pod's. Pure."""
    spec = endpoint.spec
    own = {text.partition("/")[0] for text in spec.ipNetworks}
    if (
        spec.orchestrator != names.KUBERNETES
        or spec.node != facts.node
        or own.isdisjoint(facts.addresses)
    ):
        return None
    labels = endpoint_labels(facts, endpoint.metadata.namespace)
    account = facts.account or spec.serviceAccountName
    if labels == endpoint.metadata.labels and account == spec.serviceAccountName:
        return None
    return replace(
        endpoint,
        metadata=replace(endpoint.metadata, labels=dict(sorted(labels.items()))),
        spec=replace(spec, serviceAccountName=account),
    )


def differs(endpoint: Brief, facts: PodFacts, namespace: str) -> bool:
    """Whether `relabelled` has something to write, told from the few that is kept. Pure."""
    if (
        endpoint.orchestrator != names.KUBERNETES
        or endpoint.node != facts.node
        or not any(one in facts.addresses for one in endpoint.addresses)
    ):
        return False
    if facts.account and facts.account != endpoint.account:
        return True
    return mark(endpoint_labels(facts, namespace)) != endpoint.labels


class EndpointLabels:
    """Keeps the labels equal while `run` runs. `writes` counts what it wrote.

    `pods`, if given, must run beside it.
    """

    name = "workloadendpoint"

    def __init__(
        self,
        client: Client,
        store: Datastore,
        *,
        workers: int = 1,
        period: float = PERIOD,
        pods: Pods | None = None,
    ) -> None:
        self._store, self._workers, self._period = store, workers, period
        self._pods: dict[Name, PodFacts] = {}
        self._endpoints = EndpointRows(self._look)
        self.queue: WorkQueue[Name] = WorkQueue()
        self._source = pods or Pods(client)
        self._source.takers.append(self)
        self._follows = pods is None
        self.reflector = self._source.reflector
        self.writes = self.failures = 0
        self._whole = False

    @property
    def ready(self) -> bool:
        """Whether both sides were read whole."""
        return self._whole and self.reflector.has_listed

    @property
    def in_sync(self) -> bool:
        """Whether, besides, nothing waits."""
        return self.ready and not len(self.queue)

    def put(self, name: Name, value: Pod) -> None:
        """Store a pod."""
        facts = facts_of(value)
        if facts is None:
            self._pods.pop(name, None)
            return
        self._pods[name] = facts
        self._look(name)

    def gone(self, name: Name) -> None:
        """A pod is gone; its endpoint is its node's to remove."""
        self._pods.pop(name, None)

    def listed(self) -> None:
        """Note that the list is complete."""

    async def run(self) -> None:
        """Follow both sides and write, until cancelled."""
        beside = [self._follow(), self._resync()]
        if self._follows:
            beside.append(self._source.run())
        await self.queue.serve(self._settle, *beside, workers=self._workers)

    async def _follow(self) -> None:
        sinks = {"WorkloadEndpoint": self._endpoints}
        syncer = Syncer(self._store, [Selection("WorkloadEndpoint")], sinks=sinks)
        async with aclosing(syncer.batches()) as batches:  # type: ignore[type-var]
            async for batch in batches:
                self._whole = self._whole or batch.in_sync

    def _look(self, name: Name) -> None:
        if self._changes(name):
            self.queue.add(name)

    def _changes(self, name: Name) -> list[ResourceKey]:
        facts = self._pods.get(name)
        if facts is None:
            return []
        known = self._endpoints.of(name)
        return [key for key, endpoint in known if differs(endpoint, facts, name.namespace)]

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            for name in list(self._pods):
                self._look(name)

    async def _settle(self, name: Name) -> bool:
        try:
            for key in self._changes(name):
                entry = await self._store.get(key)
                facts = self._pods.get(name)
                fresh = relabelled(entry.value, facts) if entry and facts else None
                if entry and fresh:
                    await self._store.commit([Put(key, fresh, entry.revision, entry)])
                    self.writes += 1
                    log.info("labelled", extra={"object": str(key)})
        except CommitConflict:
            return False
        except MuslinError as error:
            self.failures += 1
            log.warning("not labelled, tried again: %s", error, extra={"object": str(name)})
            return False
        return True
