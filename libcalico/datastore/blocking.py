"""A datastore for a command without an event loop (`libcalico.process.unlooped`).

Each call returns when it has its answer. On etcd the usual case is short (`etcd.brief`): neither
gRPC nor asyncio is imported. At the first thing that is not usual calls go through the datastore
of `connect`, in an event loop that runs for each of them: so errors, logins, other endpoints and
repeated calls are those of every program. On Kubernetes it is that datastore from the beginning:
where there is no loop its connections wait by themselves (`libcalico.kubernetes.streams.blocking`).

Invariant ETCD-1 holds over the change of ways: a write that may have been carried out is sent again
only because guards on all of it make the second one fail, and that failure is then told as doubt.
Tested in tests/libcalico/test_etcd_blocking.py.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from libcalico import apiconfig
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.interface import (
    Batch,
    Change,
    CommitConflict,
    Datastore,
    Entry,
    Listing,
    Selection,
)
from libcalico.errors import CertificateProblem, DatastoreUnavailable
from libcalico.model.keys import Key
from libcalico.process import unlooped

if TYPE_CHECKING:
    import asyncio

    from libcalico.datastore.etcd.brief import BriefEtcd

A = TypeVar("A")
T = TypeVar("T")


class BlockingDatastore:
    """`interface.Datastore`, but for `watch`. Raises what `connect` raises."""

    def __init__(self, config: DatastoreConfig) -> None:
        config.check()
        self._config = config
        self._brief: BriefEtcd | None = None
        self._loop: asyncio.Runner | None = None
        self._full: Datastore | None = None
        self._doubt = ""
        if config.datastore_type == apiconfig.ETCD:
            from libcalico.datastore.etcd.brief import BriefEtcd
            from libcalico.datastore.etcd.unary import Unanswered

            try:
                self._brief = BriefEtcd(config)
            except Unanswered as problem:
                self._tell(f"no short way to etcd: {problem}")
            else:
                self._tell("etcd is asked without gRPC")
        if self._brief is None:
            self._store()

    async def get(self, key: Key) -> Entry | None:
        """The object, or None. Raises InvalidValue when its bytes cannot be understood."""
        return (await self.get_many([key]))[key]

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Entry | None]:
        """Several objects at one revision."""
        return self._made(lambda one: one.get_many(keys), lambda store: store.get_many(keys))

    async def list(self, selection: Selection) -> Listing:
        """All objects of a selection at one revision, ordered by key."""
        return self._made(lambda one: one.list(selection), lambda store: store.list(selection))

    async def commit(self, changes: Sequence[Change]) -> int:
        """Apply all or nothing; returns the new revision. Raises CommitConflict."""
        self._doubt = ""
        try:
            return self._made(lambda one: one.commit(changes), lambda store: store.commit(changes))
        except CertificateProblem:
            raise
        except (CommitConflict, DatastoreUnavailable):
            if not self._doubt:
                raise
            # The second of the two writes failed, perhaps because the first was carried out.
            raise DatastoreUnavailable(
                f"etcd ({self._doubt}) did not confirm a write: it may or may not have happened"
            ) from None

    def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """Not here: what changes later is for a process with an event loop."""
        raise NotImplementedError("a watch needs an event loop")

    async def close(self) -> None:
        """Close the connections."""
        if self._brief is not None:
            self._brief.close()
        try:
            if self._full is not None:
                self._waited(Datastore.close, self._full)
        finally:
            if self._loop is not None:
                self._loop.close()

    def _made(
        self, briefly: Callable[[BriefEtcd], T], fully: Callable[[Datastore], Awaitable[T]]
    ) -> T:
        """Make a call the short way if there is one, and from its first failure on the other."""
        if self._brief is not None:
            from libcalico.datastore.etcd.unary import Unanswered

            try:
                return briefly(self._brief)
            except Unanswered as problem:
                self._doubt = str(problem) if problem.sent else ""
                self._tell(f"etcd is asked through gRPC now: {problem}")
                self._brief.close()
                self._brief = None
        return self._waited(fully, self._store())

    def _tell(self, text: str) -> None:
        # Who asks for messages (-l) has imported their library.
        if "logging" in sys.modules:
            import logging

            logging.getLogger(__name__).debug("%s", text)

    def _store(self) -> Datastore:
        if self._full is None:
            from libcalico.datastore import connect

            self._full = self._waited(lambda config: connect(config, quiet=True), self._config)
        return self._full

    def _waited(self, act: Callable[[A], Awaitable[T]], about: A) -> T:
        if self._config.datastore_type != apiconfig.ETCD:
            return unlooped.run(_only(act, about))
        import asyncio

        answers: list[T] = []

        async def work() -> None:
            # Not as its result: asyncio writes the text of that in passing, of a listing megabytes.
            answers.append(await act(about))

        if self._loop is None:
            self._loop = asyncio.Runner()
        self._loop.run(work())
        return answers[0]


async def _only(act: Callable[[A], Awaitable[T]], about: A) -> T:
    return await act(about)
