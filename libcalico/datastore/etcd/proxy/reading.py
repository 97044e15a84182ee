"""Long reads of etcd (listings that are followed, watches) through one of several proxies.

`etcd grpc-proxy` answers many watches of one range by one of its own, so that etcd serves the
proxies and not every node. Single reads, writes, transactions and leases stay with etcd itself.
Which proxy this node uses is decided in proxies.py and way.py. A listing or a watch goes on by
itself where a proxy fails; it raises where etcd itself does not answer.

A proxy keeps its streams while the etcd behind it is away, hangs, or is put back to an earlier
state, and none of that is told. So every few seconds one small read through the proxy asks the
cluster: within 10 s a proxy that is of no use any more is left, and a store that was put back is
noticed (ETCD-4). Every answer of a proxy is compared with the newest that this process has seen;
before `Replaced` is raised etcd itself is asked, for only the proxy may be behind.

Where etcd has users no proxy is used. It has no user of its own (its certificate must be without a
name), and it watches by the login of its first client. When that login ends with a restart of
etcd its watch ends, and the proxy keeps that to itself (measured with etcd 3.4.23). As a last
resort a watch begins anew elsewhere when nothing came for longer than etcd is ever silent.

Tested in tests/libcalico/test_etcd_reading.py, test_etcd_proxy_hides.py and
test_etcd_proxy_access.py there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.capabilities import whole_listing
from libcalico.datastore.etcd import listing
from libcalico.datastore.etcd import watch as watching
from libcalico.datastore.etcd.link import Call, Link
from libcalico.datastore.etcd.listing import A, Q
from libcalico.datastore.etcd.operations import named_keys
from libcalico.datastore.etcd.position import foreign
from libcalico.datastore.etcd.proxy.proxies import Route
from libcalico.datastore.etcd.proxy.way import Cluster, Way
from libcalico.datastore.etcd.watch_responses import NEAR, FarBehind
from libcalico.datastore.interface import Batch, Listing, Replaced, Rows, Selection
from libcalico.errors import DatastoreUnavailable, PermissionDenied
from libcalico.model.keys import Key
from libcalico.process.backoff import Backoff

SMALL = 500
"""Objects up to which a family is rather listed anew than followed at etcd for minutes."""
_LEFT = "the proxy was left for another"


class Reader:
    """The long reads of one process.

    Raises CertificateProblem for files that are of no use.
    """

    def __init__(
        self, config: DatastoreConfig, route: Route, cluster: Cluster, gather: float
    ) -> None:
        self._cluster = cluster
        self._listed: dict[Selection, int] = {}
        """Where each was listed last, or how far etcd itself has told it since."""
        self._sizes: dict[Selection, int] = {}
        """How many objects each had when it was listed last."""
        self.way = Way(config, route, cluster, gather)

    async def list(self, selection: Selection) -> Listing:
        """All objects of a selection at one revision, ordered by key."""
        return await whole_listing(self, selection)

    async def pages(self, selection: Selection, revision: int = 0) -> AsyncIterator[Listing]:
        """The pages of a listing, all at one revision: `revision`, or the present one."""
        async with aclosing(listing.pages(self._read, selection, revision)) as pages:
            count = 0
            async for page in pages:
                self._listed[selection] = page.revision
                count += len(page.entries)
                self._sizes[selection] = count
                yield page

    async def rows(self, selection: Selection) -> AsyncIterator[Rows]:
        """The resources of a selection as they are stored, some at a time; none is decoded."""
        async with aclosing(listing.rows(self._read, selection)) as portions:
            count = 0
            async for rows in portions:
                self._listed[selection] = rows[1]
                count += len(rows[0])
                self._sizes[selection] = count
                yield rows

    async def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """Batches of events after `revision`, through one proxy after another.

        Raises `Compacted`, and `DatastoreUnavailable` where no way leads to etcd. A watch of
        several selections ends with its proxy: what one of them has had is not known of the others.
        A watch that begins too far behind for a proxy begins at etcd itself and comes to the proxy
        later, if it is of many objects or follows on a listing, which took long. Else it raises
        `Compacted`, too: a few objects are listed sooner.
        """
        backoff = Backoff(0.1, 2.0)
        while True:
            connection, stood = await self.way.connection(), False
            try:
                async with aclosing(watching.watch(connection, selections, revision)) as batches:
                    async for batch in batches:
                        if batch:
                            backoff.reset()
                        stood, revision = True, batch.revision
                        yield batch
            except FarBehind as problem:
                if len(selections) > 1 or not self._is_followed(selections[0], revision):
                    raise
                self._cluster.compare(revision, problem.present)
                async with aclosing(self._approach(selections[0], revision)) as batches:
                    async for batch in batches:
                        self._listed[selections[0]] = revision = batch.revision
                        yield batch
            except Replaced:
                await self.way.second_opinion(revision, connection)
            except (DatastoreUnavailable, PermissionDenied, asyncio.CancelledError) as problem:
                ask = stood and not isinstance(problem, watching.Silent)
                await self.way.failed(connection, problem, ask=ask)
                if len(selections) > 1:
                    raise DatastoreUnavailable(str(problem) or _LEFT) from None
            await backoff.wait()

    def _is_followed(self, selection: Selection, revision: int) -> bool:
        """Whether etcd is watched from a revision that is far behind; else the family is listed."""
        return self._listed.get(selection) == revision or self._sizes.get(selection, 0) > SMALL

    async def _approach(self, selection: Selection, revision: int) -> AsyncGenerator[Batch, None]:
        """A watch of etcd itself, until it is near enough for a proxy.

        That may take until the next word of progress, 10 minutes.
        """
        async with aclosing(watching.watch(self.way.etcd(), [selection], revision)) as batches:
            async for batch in batches:
                yield batch
                if self._cluster.newest() - batch.revision <= NEAR // 2:
                    return

    def hold(self) -> None:
        """Hold back the events of watches for a moment (stream.py)."""
        if self.way.present is not None:
            self.way.present.hold()

    async def close(self) -> None:
        """Close the connection; readers get DatastoreUnavailable."""
        await self.way.close()

    async def _read(
        self, call: Callable[[Link], Call[Q, A]], request: Q, what: Sequence[Key | Selection]
    ) -> A:
        while True:
            connection, before = await self.way.connection(), self._cluster.newest()
            try:
                answer = await connection.read(call, request)
            except PermissionDenied as problem:
                if self.way.proxy is None:
                    raise PermissionDenied(f"{problem}: {named_keys(what)}") from None
                await self.way.failed(connection, problem)
                continue
            except (DatastoreUnavailable, asyncio.CancelledError) as problem:
                await self.way.failed(connection, problem)
                continue
            if not (before and foreign(before, answer.header)):
                self._cluster.compare(before, answer.header)
                self.way.answered(connection)
                return answer
            await self.way.second_opinion(before, connection)
