"""The way of long reads to etcd: which proxy now, whether it still serves, when to return.

proxies.py decides; here the proxies are asked. One that fails while etcd itself answers is left for
another, and all that is read through it goes on there. Where etcd does not answer either, no proxy
is to blame: the readers are told, and begin again with the same one.

Tested in tests/libcalico/test_etcd_reading.py and test_etcd_proxy_hides.py there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Protocol

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd import watch as watching
from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.position import foreign
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.proxy.proxies import Route
from libcalico.errors import DatastoreError, DatastoreUnavailable
from libcalico.process import tasks

log = logging.getLogger(__name__)

LOOK = (5.0, 7.0)
"""Seconds, least and most, between two questions whether the proxy still serves."""
ANSWER = 3.0
"""Seconds that it has for the answer."""
ETCD_ANSWER = 3.0
"""Seconds that etcd itself has after it."""


class Cluster(Protocol):
    """What is known of the cluster itself, by the connection to it."""

    def newest(self) -> int:
        """The highest revision that this process has seen, with its history."""

    def compare(self, before: int, header: pb.ResponseHeader) -> None:
        """Note a header. Where it does not follow on `before`, leave the way; raises Replaced."""

    async def present(self) -> pb.ResponseHeader:
        """Ask etcd itself where it is."""


class Way:
    """The connection that a process reads by: `proxy` says to what, None is etcd itself.

    `bypass` says why no proxy is used, else it is empty. Raises CertificateProblem for files that
    are of no use.
    """

    def __init__(
        self, config: DatastoreConfig, route: Route, cluster: Cluster, gather: float
    ) -> None:
        self._config, self._route, self._cluster, self._gather = config, route, cluster, gather
        self._made(route.endpoint)  # files that are of no use are named at once
        self.present: Connection | None = None
        self.proxy: str | None = None
        self.bypass = ""
        self._direct: Connection | None = None
        self._lost = ""
        self._not_before = 0.0
        self._work = tasks.Background()
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    async def connection(self) -> Connection:
        """The connection to read by now, after a pause if the one before has failed."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        if self._closed.is_set():
            raise DatastoreUnavailable("the connection to etcd has been closed")
        if self.present is None:
            self.proxy, self._lost = self._route.endpoint, ""
            self.present = self._made(self.proxy)
            if self.proxy is not None:
                self.bypass = ""
        self._work.keep("way to the etcd proxies", self._keep)
        return self.present

    def etcd(self) -> Connection:
        """A connection to etcd itself, for what no proxy can be asked."""
        if self._closed.is_set():
            raise DatastoreUnavailable("the connection to etcd has been closed")
        self._direct = self._direct or self._made(None)
        return self._direct

    def _made(self, proxy: str | None) -> Connection:
        """A connection to a proxy; None is etcd itself."""
        if proxy is None:
            return Connection(self._config, self._gather)
        return Connection(self._config.through(proxy), self._gather)

    def answered(self, connection: Connection) -> None:
        """Note that a connection serves."""
        if connection is self.present and self.proxy is not None:
            self._route.answered(self.proxy)

    async def failed(
        self, connection: Connection, problem: BaseException, *, ask: bool = False
    ) -> None:
        """Find another way if this one failed; raises the problem where there is none.

        `ask`: ask the proxy first. The end of a watch that had begun says little.
        """
        if isinstance(problem, asyncio.CancelledError):
            # gRPC says so of a call whose channel was closed, which is no cancellation of ours.
            task = asyncio.current_task()
            if connection is self.present or task is None or task.cancelling():
                raise problem
        if connection is not self.present:
            if self._lost:
                raise DatastoreUnavailable(self._lost)
        elif not (ask and await self._answers(connection)):
            await self._blame(connection, problem)

    async def second_opinion(self, revision: int, connection: Connection) -> None:
        """Ask etcd itself where a proxy is on another history. Raises Replaced if etcd is, too."""
        self._cluster.compare(revision, await self._cluster.present())
        if connection is self.present:
            self._fail(DatastoreUnavailable("it is behind etcd, or before another one"))

    async def close(self) -> None:
        """Close the connection; readers get DatastoreUnavailable."""
        self._closed.set()
        self._work.stop()
        self.leave()
        if self._direct is not None:
            await self._direct.close()
        await tasks.ended(self._leaving)

    async def _blame(self, connection: Connection, problem: BaseException) -> None:
        """Leave a proxy that fails. Raises the problem where etcd does not answer either."""
        if self.proxy is not None and not await self._etcd_answers():
            if connection is self.present:
                self._lost = str(problem)
                self.leave()
            raise problem
        if connection is self.present:
            self._fail(problem)

    async def _etcd_answers(self) -> bool:
        try:
            async with asyncio.timeout(ETCD_ANSWER):
                await self._cluster.present()
        except (DatastoreError, TimeoutError) as problem:
            # One that refuses answers.
            return not isinstance(problem, DatastoreUnavailable | TimeoutError)
        return True

    def _fail(self, problem: BaseException) -> None:
        """Leave the present way. Raises the problem where it was the last."""
        proxy, now = self.proxy, asyncio.get_running_loop().time()
        if proxy is None and not isinstance(problem, DatastoreUnavailable):
            raise problem
        self.leave()
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

    def leave(self) -> None:
        """End what is read by the present connection; its readers go on with the next."""
        left, self.present = self.present, None
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

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(*LOOK))
            try:
                await self.look()
            except DatastoreError as problem:
                log.debug("etcd: %s", problem)  # the readers are told

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
            self.leave()
        elif better is not None:
            self._route.failed(better, now)
        elif self.proxy is not None:
            await self._require_answer()

    async def _require_answer(self) -> None:
        connection = self.present
        if connection is not None and not await self._answers(connection):
            problem = DatastoreUnavailable(f"no answer within {ANSWER:g} s")
            if connection is self.present:
                await self._blame(connection, problem)

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
            self._cluster.compare(before, await self._cluster.present())
            return False
        self._cluster.compare(before, header)
        self.answered(connection)
        return True
