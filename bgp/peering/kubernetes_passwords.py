"""Secrets of the Kubernetes API, for `bgp.peering.passwords`.

The API is asked for a Secret only while a peering names it. Where there is no API, or no right to
read, the peering is refused and named, and the rest of BGP works on. A watch that ends, by a
fault, is noticed: it is logged, a condition, and begun anew; what was known stays.

Tested in tests/bgp/test_kubernetes.py and, with a real API server, in
tests/apiserver/test_bgp_sources.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from bgp.cluster.kubernetes import RETRY, connect
from bgp.peering.passwords import Passwords, Wanted
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.decoding import Query
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import SECRETS, Secret
from libcalico.kubernetes.reflector import Reflector
from libcalico.process import tasks
from libcalico.process.tasks import ended

log = logging.getLogger(__name__)

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "kube-system"


def namespace(environ: Mapping[str, str], file: Path = NAMESPACE_FILE) -> str:
    """Where Secrets are read: the namespace of this pod, as in Calico."""
    if name := environ.get("NAMESPACE", ""):
        return name
    with contextlib.suppress(OSError):
        return file.read_text().strip() or DEFAULT_NAMESPACE
    return DEFAULT_NAMESPACE


class KubernetesPasswords(Wanted):
    """A `bgp.peering.passwords.PasswordSource`: one watch for each Secret that is named."""

    def __init__(self, environ: Mapping[str, str], retry: float = RETRY) -> None:
        super().__init__()
        self._environ, self._namespace, self._retry = environ, namespace(environ), retry
        self._faults: dict[str, str] = {}
        self._data: dict[str, dict[str, bytes]] = {}
        self._listed: set[str] = set()
        self._reflectors: dict[str, Reflector[Secret]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def changes(self) -> AsyncIterator[Passwords]:
        """The known passwords, at first and after each change; for ever."""
        client: Client | None = None
        last: Passwords | None = None
        try:
            while True:
                self._wake.clear()
                names = {ref.name for ref in self._refs}
                if names and client is None:
                    client = await connect(self._environ)
                for name in self._tasks.keys() - names:
                    self._tasks.pop(name).cancel()
                    self._reflectors.pop(name)
                    self._faults.pop(name, None)
                    self._data.pop(name, None)
                    self._listed.discard(name)
                for name in names - self._tasks.keys():
                    if client is not None:
                        self._follow(client, name)
                known = self._known()
                if known != last:
                    yield known
                    last = known
                await self._wake.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await ended(self._tasks.values())
            if client is not None:
                await client.close()

    def _follow(self, client: Client, name: str) -> None:
        query = Query(self._namespace, fields=f"metadata.name={name}")
        reflector = Reflector(client, SECRETS, _One(self, name), query, on_status=self._wake.set)
        self._reflectors[name] = reflector
        task = self._tasks[name] = tasks.start(reflector.run(), f"Secret {name}")
        task.add_done_callback(lambda ended: self._ended(name, ended))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        """A watch ended, which never happens by itself: keep what is known, and start it again."""
        if task.cancelled() or self._tasks.get(name) is not task:
            return
        error = task.exception() or RuntimeError("its watch has ended")
        log.error("a Secret is read anew, after a fault", extra={"secret": name}, exc_info=error)
        self._faults[name] = f"reading it failed: {type(error).__name__}: {error}"
        self._wake.set()

        def again() -> None:
            if self._tasks.get(name) is task:
                del self._tasks[name]
                self._wake.set()

        asyncio.get_running_loop().call_later(self._retry, again)

    @property
    def problem(self) -> str:
        """Why Secrets cannot be read; empty if they can."""
        return next((f"Secret {name!r}: {why}" for name, why in self._faults.items()), "")

    def tell(self, name: str, data: Mapping[str, bytes] | None) -> None:
        """Store a Secret; None: there is none."""
        self._listed.add(name)
        self._faults.pop(name, None)
        if data is None:
            self._data.pop(name, None)
        else:
            self._data[name] = dict(data)
        self._wake.set()

    def listed(self, name: str) -> None:
        """Note that the list of Secrets is complete."""
        self._listed.add(name)
        self._faults.pop(name, None)
        self._wake.set()

    def _known(self) -> Passwords:
        known = Passwords()
        for ref in self._refs:
            value = self._data.get(ref.name, {}).get(ref.key)
            reflector = self._reflectors.get(ref.name)
            if value is not None:
                try:
                    known.values[ref] = value.decode()
                except UnicodeDecodeError:
                    known.problems[ref] = "it is not text"
            elif ref.name in self._data:
                known.problems[ref] = "the Secret has no such key"
            elif ref.name in self._listed:
                known.problems[ref] = f"there is no such Secret in namespace {self._namespace}"
            else:
                known.unread.add(ref)
                error = self._faults.get(ref.name) or (reflector.error if reflector else "")
                known.problems[ref] = error or "not read yet"
        return known


class _One:
    """The sink of one Secret."""

    def __init__(self, source: KubernetesPasswords, name: str) -> None:
        self._source, self._name = source, name

    def put(self, name: Name, value: Secret) -> None:
        self._source.tell(self._name, value.data or {})

    def gone(self, name: Name) -> None:
        self._source.tell(self._name, None)

    def listed(self) -> None:
        self._source.listed(self._name)
