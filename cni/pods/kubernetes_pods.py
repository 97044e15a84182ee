"""Pods and namespaces from the Kubernetes API, so that an ADD waits for no request.

A runtime names the pod and nothing more; its labels decide which policy covers it, and its
annotations which addresses it gets. The pods of this node and all namespaces are followed from
the start, so the answer is in memory when the runtime calls. The kubelet starts a pod as soon as
it has heard of it, which may be before we have: such a pod is asked for once, by name.

Invariants (tests/apiserver/test_pods.py):
  POD-2  A pod that is known costs no request, also while the API is away.
  POD-3  Facts of an older pod of the same name are never given to its successor: where the runtime
         says the pod's uid and what is known has another, the API is asked.
  POD-4  A pod that cannot be asked for is no pod without labels: the ADD fails with code 11
         within `SECONDS`, and the runtime tries again.

Source: docs/reference/data-model.md#labels-and-profiles-of-pods, #add-of-a-pod; conformance CAL-13.
Credentials: `cni.request.kubernetes_access`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from cni.pods.pod_source import DEFAULT_SERVICE_ACCOUNT, PodFacts
from cni.request.errors import CNIError, Code
from cni.request.kubernetes_access import as_cni_error
from cni.request.request import Request
from libcalico.kubernetes.access import Source
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.decoding import Query
from libcalico.kubernetes.errors import KubernetesError, NoAccess, ObjectNotFound
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import NAMESPACES, PODS, Container, Namespace, Pod
from libcalico.kubernetes.reflector import Reflector
from libcalico.model import WorkloadEndpointPort
from libcalico.process import tasks

log = logging.getLogger(__name__)

SECONDS = 5.0
"""How long one request may take, and with it an ADD of a pod that is not known yet."""

STATIC_UIDS = ("kubernetes.io/config.hash", "kubernetes.io/config.mirror")
"""Annotations of a static pod's image in the API; the runtime is told this uid of it."""

PROTOCOLS = ("TCP", "UDP", "SCTP")


class KubernetesPods:
    """A PodSource. `run` keeps it warm; it answers without, at the cost of a request each."""

    def __init__(self, source: Source, node: str, *, seconds: float = SECONDS) -> None:
        self._client = Client(source, timeout=seconds)
        self._pods, self._spaces = _PodTable(), _NamespaceTable()
        self._asked: dict[Name, asyncio.Task[_Known]] = {}
        self._following: list[Reflector[Pod] | Reflector[Namespace]] = [
            Reflector(self._client, PODS, self._pods, Query(fields=f"spec.nodeName={node}")),
            Reflector(self._client, NAMESPACES, self._spaces),
        ]
        self.requests = 0
        """How many pods had to be asked for."""

    @property
    def error(self) -> str:
        """Why it cannot follow the API; empty when it can."""
        return next((each.error for each in self._following if each.error), "")

    @property
    def warm(self) -> bool:
        """Whether pods and namespaces have been listed."""
        return all(each.has_listed for each in self._following)

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for each in self._following:
                    group.create_task(each.run())
        finally:
            await self._client.close()

    async def facts(self, request: Request) -> PodFacts:
        """Facts of the pod that the request names.

        Raises CNIError 11, or 7 for unusable credentials."""
        assert request.pod is not None
        name = Name(*request.pod)
        uid = request.args.get("K8S_POD_UID", "")
        known, space = self._pods.known.get(name), self._spaces.known.get(name.namespace)
        if known is None or not known.may_be(uid):
            known = await self._ask(name)
            if not known.may_be(uid):
                raise CNIError(
                    Code.TRY_AGAIN_LATER,
                    f"pod {name} is another one meanwhile: the Kubernetes API knows uid"
                    f" {known.uid}, and the runtime started {uid}",
                )
        if space is None:
            space = await self._ask_namespace(name.namespace)
        return replace(known.facts, namespace_annotations=space) if space else known.facts

    async def _ask(self, name: Name) -> _Known:
        task = self._asked.get(name)
        if task is None:
            task = tasks.start(self._get(name), f"question for pod {name}")
            self._asked[name] = task
            task.add_done_callback(lambda _: self._asked.pop(name, None))
        # Another call of the same pod may wait for the same answer.
        return await asyncio.shield(task)

    async def _get(self, name: Name) -> _Known:
        self.requests += 1
        log.debug("pod %s is not known yet: it is asked for", name)
        try:
            return _known(await self._client.get(PODS, name.name, name.namespace))
        except KubernetesError as error:
            raise _refusal(f"pod {name}", error) from error

    async def _ask_namespace(self, name: str) -> Mapping[str, str]:
        try:
            namespace = await self._client.get(NAMESPACES, name)
        except KubernetesError as error:
            raise _refusal(f"namespace {name}", error) from error
        return namespace.metadata.annotations or {}


class _Known:
    """One pod, as an ADD needs it."""

    __slots__ = ("_uids", "facts", "uid")

    def __init__(self, uid: str, static: set[str], facts: PodFacts) -> None:
        self.uid, self._uids, self.facts = uid, static | {uid}, facts

    def may_be(self, uid: str) -> bool:
        """Whether the runtime's pod is this one; it may not have said which it means."""
        return not uid or uid in self._uids


class _PodTable:
    """Sink of the pods of this node."""

    def __init__(self) -> None:
        self.known: dict[Name, _Known] = {}

    def put(self, name: Name, value: Pod) -> None:
        """A pod is so now."""
        self.known[name] = _known(value)

    def gone(self, name: Name) -> None:
        """A pod is gone."""
        self.known.pop(name, None)

    def listed(self) -> None:
        """All have been told."""
        log.info("%d pods of this node are known from the Kubernetes API", len(self.known))


class _NamespaceTable:
    """Sink of the namespaces: their annotations."""

    def __init__(self) -> None:
        self.known: dict[str, Mapping[str, str]] = {}

    def put(self, name: Name, value: Namespace) -> None:
        """A namespace is so now."""
        self.known[name.name] = value.metadata.annotations or {}

    def gone(self, name: Name) -> None:
        """A namespace is gone."""
        self.known.pop(name.name, None)

    def listed(self) -> None:
        """All have been told."""


def _known(pod: Pod) -> _Known:
    annotations = pod.metadata.annotations or {}
    static = {annotations[name] for name in STATIC_UIDS if name in annotations}
    return _Known(pod.metadata.uid, static, facts_of(pod))


def facts_of(pod: Pod) -> PodFacts:
    """What counts of a pod for its endpoint
    (docs/reference/data-model.md#labels-and-profiles-of-pods): its namespace's part is missing."""
    containers = (*(pod.spec.containers or ()), *(pod.spec.initContainers or ()))
    return PodFacts(
        labels=pod.metadata.labels or {},
        annotations=pod.metadata.annotations or {},
        ports=tuple(port for each in containers for port in _ports(each)),
        service_account=pod.spec.serviceAccountName or DEFAULT_SERVICE_ACCOUNT,
        generate_name=pod.metadata.generateName,
    )


def _ports(container: Container) -> list[WorkloadEndpointPort]:
    """Ports that a policy can name, and those of the host."""
    return [
        WorkloadEndpointPort(
            name=port.name,
            protocol=port.protocol or "TCP",
            port=port.containerPort,
            hostPort=port.hostPort,
            hostIP=port.hostIP,
        )
        for port in container.ports or ()
        if (port.name or port.hostPort) and (port.protocol or "TCP") in PROTOCOLS
    ]


def _refusal(what: str, error: KubernetesError) -> CNIError:
    if isinstance(error, NoAccess):
        return as_cni_error(error)
    if isinstance(error, ObjectNotFound):
        return CNIError(
            Code.TRY_AGAIN_LATER,
            f"{what} is not known to the Kubernetes API",
            "it was deleted meanwhile, or the runtime serves another cluster",
        )
    return CNIError(
        Code.TRY_AGAIN_LATER,
        f"{what} is not known yet, and the Kubernetes API does not tell: try again later",
        str(error),
    )
