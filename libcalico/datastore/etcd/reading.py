"""Long reads of etcd (listings that are followed, watches) through one of several proxies.

`etcd grpc-proxy` answers many watches of one range by one of its own, so that etcd serves the
proxies and not every node. Single reads, writes, transactions and leases stay with etcd itself.
Which proxy this node uses is decided in proxies.py. A listing or a watch goes on by itself on
another way where the proxy fails; it raises when etcd's own endpoints have failed, too.

A proxy keeps its streams while the etcd behind it is away, hangs, or is put back to an earlier
state, and none of that is told. So every few seconds one small read through the proxy asks the
cluster: within 10 s a proxy that is of no use any more is left, and a store that was put back is
noticed (ETCD-4). Every answer of a proxy is compared with the newest that this process has seen;
before `Replaced` is raised etcd itself is asked, for only the proxy may be behind.

Where etcd has users no proxy is used. It has no user of its own (its certificate must be without a
name), and it watches by the login of its first client. When that login ends with a restart of
etcd its watch ends, and the proxy keeps that to itself (measured with etcd 3.4.23). As a last
resort a watch begins anew elsewhere when nothing came for longer than etcd is ever silent.

Tested in tests/libcalico/test_etcd_reading.py and test_etcd_proxy_access.py there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.capabilities import whole_listing
from libcalico.datastore.etcd import listing
from libcalico.datastore.etcd import watch as watching
from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.link import Call, Link
from libcalico.datastore.etcd.listing import A, Q
from libcalico.datastore.etcd.operations import named_keys
from libcalico.datastore.etcd.position import foreign
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.proxies import Route
from libcalico.datastore.interface import Batch, Listing, Replaced, Rows, Selection
from libcalico.errors import DatastoreError, DatastoreUnavailable, PermissionDenied
from libcalico.model.keys import Key
from libcalico.process import tasks
from libcalico.process.backoff import Backoff

log = logging.getLogger(__name__)

LOOK = (5.0, 7.0)
"""Seconds, least and most, between two questions whether the proxy still serves."""
ANSWER = 3.0
"""Seconds that it has for the answer."""
_LEFT = "the proxy was left for another"


class Cluster(Protocol):
    """What is known of the cluster itself, by the connection to it."""

    def newest(self) -> int:
        """The highest revision that this process has seen, with its history."""

    def compare(self, before: int, header: pb.ResponseHeader) -> None:
        """Note a header. Raises Replaced where it does not follow on `before` (ETCD-4)."""

    async def present(self) -> pb.ResponseHeader:
        """Ask etcd itself where it is."""


class Reader:
    """The long reads of one process. `bypass` says why they go to etcd itself, else empty.

    Raises CertificateProblem for files that are of no use.
    """

    def __init__(
        self, config: DatastoreConfig, route: Route, cluster: Cluster, gather: float
    ) -> None:
        self._config, self._route, self._cluster, self._gather = config, route, cluster, gather
        self._made(route.endpoint)  # files that are of no use are named at once
        self._present: Connection | None = None
        self._proxy: str | None = None
        self._not_before = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()
        self.bypass = ""

    # -- what is read -----------------------------------------------------------------------------

    async def list(self, selection: Selection) -> Listing:
        """All objects of a selection at one revision, ordered by key."""
        return await whole_listing(self, selection)

    def pages(self, selection: Selection, revision: int = 0) -> AsyncIterator[Listing]:
        """The pages of a listing, all at one revision: `revision`, or the present one."""
        return listing.pages(self._read, selection, revision)

    def rows(self, selection: Selection) -> AsyncIterator[Rows]:
        """The resources of a selection as they are stored, some at a time; none is decoded."""
        return listing.rows(self._read, selection)

    async def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """Batches of events after `revision`, through one proxy after another.

        Raises `Compacted`, and `DatastoreUnavailable` where no way leads to etcd. A watch of
        several selections ends with its proxy: what one of them has had is not known of the others.
        """
        backoff = Backoff(0.1, 2.0)
        while True:
            connection, stood = await self._connection(), False
            try:
                async with aclosing(watching.watch(connection, selections, revision)) as batches:
                    async for batch in batches:
                        if batch:
                            backoff.reset()
                        stood, revision = True, batch.revision
                        yield batch
            except Replaced:
                await self._second_opinion(revision, connection)
            except (DatastoreUnavailable, PermissionDenied, asyncio.CancelledError) as problem:
                asked = stood and not isinstance(problem, watching.Silent)
                await self._after(connection, problem, asked=asked)
                if len(selections) > 1:
                    raise DatastoreUnavailable(str(problem) or _LEFT) from None
            await backoff.wait()

    def hold(self) -> None:
        """Hold back the events of watches for a moment (stream.py)."""
        if self._present is not None:
            self._present.hold()

    async def close(self) -> None:
        """Close the connection; readers get DatastoreUnavailable."""
        self._closed.set()
        if self._keeper is not None:
            self._keeper.cancel()
            await tasks.ended([self._keeper])
        self._leave()
        await tasks.ended(self._leaving)

    async def _read(
        self, call: Callable[[Link], Call[Q, A]], request: Q, what: Sequence[Key | Selection]
    ) -> A:
        while True:
            connection, before = await self._connection(), self._cluster.newest()
            try:
                answer = await connection.read(call, request)
            except PermissionDenied as problem:
                if self._proxy is None:
                    raise PermissionDenied(f"{problem}: {named_keys(what)}") from None
                await self._after(connection, problem)
                continue
            except (DatastoreUnavailable, asyncio.CancelledError) as problem:
                await self._after(connection, problem)
                continue
            if not (before and foreign(before, answer.header)):
                self._cluster.compare(before, answer.header)
                return answer
            await self._second_opinion(before, connection)

    # -- the way ----------------------------------------------------------------------------------

    async def _connection(self) -> Connection:
        """The connection to read by now, after a pause if the one before has failed."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        if self._closed.is_set():
            raise DatastoreUnavailable("the connection to etcd has been closed")
        if self._present is None:
            self._proxy = self._route.endpoint
            self._present = self._made(self._proxy)
            if self._proxy is not None:
                self.bypass = ""
        if self._keeper is None:
            self._keeper = tasks.start(self._keep(), "way to the etcd proxies")
        return self._present

    def _made(self, proxy: str | None) -> Connection:
        """A connection to a proxy; None is etcd itself."""
        if proxy is None:
            return Connection(self._config, self._gather)
        connection = Connection(self._config.through(proxy), self._gather)
        connection.proxied = True
        return connection

    async def _after(
        self, connection: Connection, problem: BaseException, *, asked: bool = False
    ) -> None:
        """Find another way if this one failed; raises the problem where there is none.

        `asked`: ask the proxy first. The end of a watch that had begun says little.
        """
        if isinstance(problem, asyncio.CancelledError):
            # gRPC says so of a call whose channel was closed, which is no cancellation of ours.
            task = asyncio.current_task()
            if connection is self._present or task is None or task.cancelling():
                raise problem
        elif not (asked and await self._answers(connection)) and connection is self._present:
            self._fail(problem)

    def _fail(self, problem: BaseException) -> None:
        """Leave the present way. Raises the problem where it was the last."""
        proxy, now = self._proxy, asyncio.get_running_loop().time()
        if proxy is None and not isinstance(problem, DatastoreUnavailable):
            raise problem
        self._leave()
        if proxy is None:
            self._route.forgive()
            raise problem
        self._not_before = now + self._route.failed(proxy, now)
        following = self._route.endpoint
        log.warning(
            "the etcd proxy %s fails: %s; reads go on with %s",
            proxy, problem, following or "etcd itself, for no proxy answers",
        )  # fmt: skip
        if following is None:
            self.bypass = f"no etcd proxy answers, the last one: {problem}"

    def _leave(self) -> None:
        """End what is read by the present connection; whoever does goes on with the next."""
        left, self._present = self._present, None
        if left is not None:
            task = tasks.start(self._part(left), "leaving an etcd proxy")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _part(self, connection: Connection) -> None:
        """End watches at once; single calls have their time."""
        connection.end_watches()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(connection.timeout):
                await self._closed.wait()
        await connection.close()

    async def _second_opinion(self, revision: int, connection: Connection) -> None:
        """Ask etcd itself where a proxy is on another history. Raises Replaced if etcd is, too."""
        self._cluster.compare(revision, await self._cluster.present())
        if connection is self._present:
            self._fail(DatastoreUnavailable("it is behind etcd, or before another one"))

    # -- whether it still serves ------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(*LOOK))
            try:
                await self.look()
            except DatastoreError as problem:
                log.debug("etcd: %s", problem)  # whoever reads is told

    async def look(self) -> None:
        """Return to a better proxy that answers, or see whether the present one still serves.

        Raises DatastoreError where it does not, and no other is known.
        """
        now = asyncio.get_running_loop().time()
        better = self._route.due(now)
        if better is not None and await self._is_back(better):
            self._route.answered(better)
            log.info("the etcd proxy %s answers: reads go through it", better)
            self.bypass = ""
            self._leave()
        elif better is not None:
            self._route.failed(better, now)
        elif self._proxy is not None:
            await self._require_answer()

    async def _require_answer(self) -> None:
        connection = self._present
        if connection is None or await self._answers(connection):
            return
        if connection is self._present:
            self._fail(DatastoreUnavailable(f"no answer within {ANSWER:g} s"))

    async def _is_back(self, proxy: str) -> bool:
        connection = self._made(proxy)
        try:
            return await self._answers(connection)
        finally:
            await connection.close()

    async def _answers(self, connection: Connection) -> bool:
        """Whether etcd answers by this connection, with nothing older than what was seen.

        Raises Replaced.
        """
        before = self._cluster.newest()
        try:
            async with asyncio.timeout(ANSWER):
                header = await watching.present(connection)
        except (DatastoreError, TimeoutError):
            return False
        if before and foreign(before, header):
            try:
                self._cluster.compare(before, await self._cluster.present())
            except Replaced:
                self._leave()  # each watch begins anew, and learns it
                raise
            return False
        if connection is self._present and self._proxy is not None:
            self._route.answered(self._proxy)
        return True
