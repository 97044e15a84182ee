"""Which source a call's pod is asked of: the configuration's API, the daemon's, or the runtime.

A network configuration may name a Kubernetes API (`kubernetes.kubeconfig`, `policy.k8s_*`): then
that is asked. Else the daemon's own is, if it has one: a kubeconfig or address in its environment,
or the service account that the kubelet mounts (M-239). Where it was told of one, an API that does
not answer makes an ADD fail (POD-4); it never makes a pod without labels. Where there is none at
all, and outside Kubernetes, the runtime's word counts (`RuntimePodSource`).

Each API is followed once, however many networks name it; a few configurations with other
credentials (a token that rotates in the file) are followed at a time, the oldest is let go.
Tested in tests/cni/test_pod_sources.py and tests/apiserver/test_pods.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from cni.pods.kubernetes_pods import KubernetesPods
from cni.pods.pod_source import PodFacts, RuntimePodSource
from cni.request.kubernetes_access import HOST, NOTHING, NamedAccess
from cni.request.request import Request
from libcalico.apiconfig import DatastoreConfig
from libcalico.kubernetes.access import Access, Renewing, Source, find, refuse
from libcalico.process import tasks

log = logging.getLogger(__name__)

FOLLOWED = 4
"""How many configurations' own accesses are followed at once."""


def own_access(config: DatastoreConfig, environ: Mapping[str, str]) -> Source | None:
    """The daemon's own way to the API, None where nothing in its environment names one.

    What it names may come later (a token that is mounted, a file that is written): until then the
    source raises NoAccess.
    """
    named = (config.kubeconfig, config.kubeconfig_inline, config.k8s_api_endpoint)
    if not any(named) and not environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    sources: list[Source] = []

    def read() -> Access:
        if not sources:
            sources.append(find(config, environ))
        return sources[0]()

    def refused(access: Access) -> None:
        if sources:
            refuse(sources[0], access)

    # A kubeconfig may name a program; what only reads files needs no thread.
    return Renewing(read, refused) if config.kubeconfig or config.kubeconfig_inline else read


class PodSources:
    """A PodSource that chooses. `run` keeps those that were needed warm."""

    def __init__(self, node: str, own: Source | None = None, host: Path = HOST) -> None:
        self._node, self._host, self._runtime = node, host, RuntimePodSource()
        self._own = KubernetesPods(own, node) if own is not None else None
        self._named: dict[NamedAccess, tuple[KubernetesPods, asyncio.Task[None]]] = {}

    async def facts(self, request: Request) -> PodFacts:
        """The facts of the pod; raises CNIError when they cannot be had."""
        if request.pod is None:
            return await self._runtime.facts(request)
        named = request.config.kubernetes
        if named is not NOTHING and named != NOTHING:
            return await self._follow(named).facts(request)
        if self._own is not None:
            return await self._own.facts(request)
        return await self._runtime.facts(request)

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            if self._own is None:
                await asyncio.get_running_loop().create_future()
            else:
                await self._own.run()
        finally:
            for _, task in self._named.values():
                task.cancel()

    def status(self) -> dict[str, object]:
        """For the status file: every API that is followed."""
        own = {"own": self._own} if self._own is not None else {}
        named = {access.label: pods for access, (pods, _) in self._named.items()}
        return {
            name: {"warm": pods.warm, "error": pods.error, "requests": pods.requests}
            for name, pods in {**own, **named}.items()
        }

    def _follow(self, access: NamedAccess) -> KubernetesPods:
        reader = self._named.pop(access, None)
        if reader is None or reader[1].done():
            pods = KubernetesPods(access.source(self._host), self._node)
            log.info("pods are asked of the API of a network configuration: %s", access.label)
            reader = pods, tasks.start(pods.run(), f"pods of {access.label}")
        # The last used stands last.
        self._named[access] = reader
        if len(self._named) > FOLLOWED:
            oldest = next(iter(self._named))
            self._named.pop(oldest)[1].cancel()
        return reader[0]
