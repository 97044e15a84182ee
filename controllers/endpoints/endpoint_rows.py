"""The endpoints of the cluster, as few bytes each: what is compared with their pods.

There may be hundreds of thousands. Of each is kept where it lies, its addresses, its account and
a mark of its labels; a writer reads the whole endpoint first. Rows of stored bytes come in
(libcalico/datastore/syncer.py); what cannot be read counts as absent and is logged.
Tested in tests/controllers/test_endpoint_rows.py.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from libcalico.datastore.interface import Row
from libcalico.kubernetes.errors import UNREADABLE
from libcalico.kubernetes.names import Name
from libcalico.model.keys import ResourceKey

log = logging.getLogger(__name__)


class _Meta(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    orchestrator: str = ""
    node: str = ""
    pod: str = ""
    ipNetworks: list[str] | None = None
    serviceAccountName: str = ""


class _Stored(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


@dataclass(frozen=True, slots=True)
class Brief:
    """An endpoint, as far as it is compared."""

    pod: str
    orchestrator: str
    node: str
    account: str
    addresses: tuple[str, ...]
    labels: int
    """`mark` of its labels."""


def mark(labels: Mapping[str, str]) -> int:
    """A number that equal labels have in common, and others hardly ever (of 64 bits)."""
    return hash(frozenset(labels.items()))


def brief(raw: bytes) -> Brief:
    """Of stored bytes. Raises `UNREADABLE`."""
    stored = msgspec.json.decode(raw, type=_Stored)
    spec = stored.spec
    return Brief(
        spec.pod,
        sys.intern(spec.orchestrator),
        sys.intern(spec.node),
        sys.intern(spec.serviceAccountName),
        tuple(text.partition("/")[0] for text in spec.ipNetworks or ()),
        mark(stored.metadata.labels or {}),
    )


class EndpointRows:
    """A sink of the syncer; `changed` is called for every pod whose endpoints changed."""

    def __init__(self, changed: Callable[[Name], None]) -> None:
        self._changed = changed
        self._known: dict[str, Brief] = {}
        self._of: dict[Name, tuple[str, ...]] = {}
        self._before: set[str] = set()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, pod: Name) -> list[tuple[ResourceKey, Brief]]:
        """The endpoints of a pod."""
        return [(_key(name), self._known[name]) for name in self._of.get(pod, ())]

    def begin(self) -> None:
        """A listing begins: what it does not name until `end` is gone."""
        self._before = set(self._known)

    def apply_rows(self, rows: Sequence[Row]) -> None:
        """Store these rows."""
        for name, raw, _ in rows:
            self._before.discard(name)
            try:
                endpoint = brief(raw)
            except UNREADABLE as problem:
                log.error(
                    "not readable: %s", problem, extra={"object": f"WorkloadEndpoint({name})"}
                )
                self.gone(name)
                continue
            before = self._known.get(name)
            if before == endpoint:
                continue
            if before is not None and before.pod != endpoint.pod:
                self.gone(name)
            if not endpoint.pod:
                continue
            self._known[name] = endpoint
            pod = Name(name.partition("/")[0], endpoint.pod)
            there = self._of.get(pod, ())
            if name not in there:
                self._of[pod] = (*there, name)
            self._changed(pod)

    def end(self, revision: int = 0) -> None:
        """The listing is complete."""
        for name in self._before:
            self.gone(name)
        self._before = set()

    def gone(self, name: str, revision: int = 0) -> None:
        """An endpoint was deleted."""
        before = self._known.pop(name, None)
        if before is None:
            return
        pod = Name(name.partition("/")[0], before.pod)
        left = tuple(one for one in self._of[pod] if one != name)
        if left:
            self._of[pod] = left
        else:
            del self._of[pod]


def _key(name: str) -> ResourceKey:
    namespace, _, own = name.partition("/")
    return ResourceKey("WorkloadEndpoint", own, namespace)
