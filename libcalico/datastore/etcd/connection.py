"""Channels to the members of an etcd cluster: failover, login, deadlines, clear errors.

There is one channel per endpoint. The endpoint that answered last is asked first; the very first
is drawn by lot, so that the nodes of a cluster spread over its members. A read may be repeated on
another endpoint. A write is sent only over a channel that is up, and is repeated only where
it cannot happen twice: when it certainly was not carried out, or when every change of it is
guarded, so that the second of two fails its guards. A lost answer whose write may have
happened is reported, never guessed (ETCD-1). An answer that cannot be read is a lost one. A member
that lost its leader says so at once.

Certificates that were renewed on disk are taken up when a connection fails. When no member
answers, TLS is looked into (libcalico/datastore/tls.py) before the error is raised.

Invariant ETCD-1: a write that may have been carried out is not sent again, unless guards on all
of it make the second one fail.

grpc.aio wants one event loop per process and no fork after its start.
Tested in tests/libcalico/test_etcd_connection.py, test_etcd_failover.py, test_etcd_auth.py and
test_tls.py there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.failures import (
    UNREADABLE,
    NotSent,
    error_of,
    gone,
    not_applied,
    stale_login,
    why,
)
from libcalico.datastore.etcd.link import QUESTION, Call, Link
from libcalico.datastore.etcd.login import Login
from libcalico.datastore.etcd.message_stream import Broken, Stream
from libcalico.datastore.etcd.outages import Outages
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.unary import Unanswered
from libcalico.errors import CertificateProblem, DatastoreUnavailable, InvalidValue
from libcalico.process import tasks

if TYPE_CHECKING:
    from libcalico.datastore.pem import Material

log = logging.getLogger(__name__)

ROUNDS = 3
"""How often every endpoint is tried when all refuse; one that hangs is tried until the deadline."""
ROUND_PAUSE = 0.3
PATIENCE = 1.5
"""Seconds after which a guarded write is sent again: a leader that died took it along."""
FREQUENT = 3
"""Guarded writes after which the next ones get a connection of their own (direct_call.py)."""
Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")


class Connection:
    """The endpoints of one cluster. `gather`: seconds that events may wait after a quiet time."""

    def __init__(self, config: DatastoreConfig, gather: float = 0.0) -> None:
        if not config.endpoints:
            raise InvalidValue(
                "etcdDiscoverySrv",
                config.discovery_srv,
                "DNS SRV discovery is not served: name the endpoints in etcdEndpoints",
            )
        self._config = config
        self._secure = any(one.startswith("https://") for one in config.endpoints)
        self._material = self._read_material()
        self._links: list[Link] | None = None
        self._first = 0
        self._login = Login(config)
        self._outages = Outages(config)
        self._closed = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()
        self._writes = 0
        self._without: set[tuple[str, str]] = set()
        self._gather = gather
        self.blind = False
        """A proxy answers that no one asks how etcd behind it is (proxy/way.py)."""

    @property
    def timeout(self) -> float:
        """The deadline of one call, in seconds."""
        return self._config.timeout

    @property
    def keepalive(self) -> float:
        """Seconds of silence after which an endpoint is asked whether it lives."""
        return self._config.keepalive

    @property
    def proxied(self) -> bool:
        """Whether what answers is `etcd grpc-proxy` (watch_responses.py)."""
        return self._config.proxied

    @property
    def user(self) -> str:
        """The user we log in as, or empty."""
        return self._config.username

    @property
    def prompt(self) -> bool:
        """Whether the next guarded write goes over the direct connection."""
        link = self._links[self._first] if self._links else None
        return self._writes > FREQUENT and bool(link and link.express and link.express.ready)

    async def read(self, call: Callable[[Link], Call[Q, A]], request: Q) -> A:
        """Make a call that may be repeated on another endpoint.

        Raises DatastoreUnavailable, Compacted...
        """
        return await self._rounds(functools.partial(self._once, call, request))

    async def write(self, request: pb.TxnRequest, guarded: bool) -> pb.TxnResponse:
        """Make a transaction at most once (ETCD-1). `guarded`: every change of it has a guard."""
        write = _Write(self, request, guarded)
        if guarded and (answer := await self._at_once(write)) is not None:
            return answer
        try:
            answer = await self._rounds(write.attempt)
        except CertificateProblem:
            raise
        except DatastoreUnavailable:
            if not write.doubt:
                raise
        else:
            if answer.succeeded or not write.doubt:
                return answer
        raise DatastoreUnavailable(
            f"{write.doubt} did not confirm a write: it may or may not have happened"
        )

    async def _at_once(self, write: _Write) -> pb.TxnResponse | None:
        """The answer over a connection of our own, or None: then the caller asks through gRPC."""
        links = self._all()
        link = links[self._first]
        # A process that writes a few times and ends needs no second connection.
        self._writes += 1
        express = link.express if self._writes > FREQUENT else None
        # A login that is empty is one, too: etcd knows no users.
        if express is None or (self._login.needed and self._login.token is None):
            return None
        if not express.ready:
            if failure := express.take_problem():
                self._no_short_way(link, failure, "frequent writes")
            return None
        token = self._login.token
        try:
            message = write.request.SerializeToString()
            return _response(await express.call(message, self._login.metadata, PATIENCE))
        except Unanswered as problem:
            log.debug("etcd at %s: %s: asking again", link.endpoint, problem)
            if problem.login and self._login.token == token:
                self._login.token = None
            if problem.sent:
                write.doubt = f"etcd at {link.endpoint} ({problem})"
            return None

    def _no_short_way(self, link: Link, failure: str, what: str) -> None:
        """Log it once per endpoint, and read the certificates again.

        They may be newer than those with which gRPC's connection was made.
        """
        if (link.endpoint, what) not in self._without:
            self._without.add((link.endpoint, what))
            log.warning("etcd at %s: %s; %s go through gRPC", link.endpoint, failure, what)
        if self._secure:
            with contextlib.suppress(CertificateProblem):
                link.take_up(self._read_material())

    async def open_watch(self) -> tuple[Link, grpc.aio.StreamStreamCall]:
        """Open a watch stream through gRPC, on an endpoint that is up."""

        async def begin(link: Link, share: float) -> tuple[Link, grpc.aio.StreamStreamCall]:
            await link.ready(share)
            return link, link.watch(metadata=await self._login.ready_metadata(link, share))

        return await self._rounds(begin)

    async def open_stream(self) -> tuple[Link, Stream] | None:
        """A watch stream on a connection of our own; None where there is none: use gRPC's then.

        Raises what `open_watch` raises: gRPC's channels say which endpoint is up.
        """

        async def begin(link: Link, share: float) -> tuple[Link, Stream] | None:
            await link.ready(share)
            metadata = await self._login.ready_metadata(link, share)
            try:
                if link.streams is None:
                    return None
                async with asyncio.timeout(share / 2):
                    return link, await link.streams.open(metadata, self._gather)
            except (Broken, TimeoutError) as problem:
                if link not in (self._links or ()):
                    return None  # it was closed, for newer certificates or for good
                self._no_short_way(link, str(problem) or "no HTTP/2 in time", "watches")
                return None

        return await self._rounds(begin)

    def hold(self) -> None:
        """Hold back the events of watches for a moment (stream.py)."""
        for link in self._links or ():
            link.hold()

    def end_watches(self) -> None:
        """End the watches on connections of our own; those of gRPC last until `close`."""
        for link in self._links or ():
            link.end_watches()

    def found_proxy(self, link: Link, *, through_grpc: bool) -> None:
        """Note that a proxy answers, which bears no pings: it is asked by reads whether it lives.

        `through_grpc`: the channel itself is used for long. One that pings is made anew; raises
        DatastoreUnavailable.
        """
        self._config = dataclasses.replace(self._config, proxied=True)
        self.blind = True
        for one in self._links or ():
            one.ask()
        if through_grpc and link.pings:
            if link in (self._links or ()):
                self._retire()
            raise DatastoreUnavailable("etcd is reached through a proxy: connecting anew")

    async def ask(self, link: Link) -> None:
        """Ask the proxy at an endpoint whether it lives; raises AioRpcError where it does not."""
        question = pb.RangeRequest.FromString(QUESTION)
        try:
            await link.range(question, timeout=self._config.keepalive_timeout)
        except grpc.aio.AioRpcError as problem:
            if gone(problem):
                raise

    def forget(self, link: Link) -> None:
        """Begin with another endpoint next time: this one failed."""
        if self._links and self._links[self._first] is link:
            self._first = (self._first + 1) % len(self._links)

    def logout(self) -> None:
        """Drop the login token: a stream broke, perhaps because the token is no longer valid."""
        self._login.token = None

    async def close(self) -> None:
        """Close all channels."""
        self._closed.set()
        self._outages.close()
        links, self._links = self._links or [], None
        for link in links:
            await link.close()
        await tasks.ended(self._leaving)

    def _retire(self) -> None:
        """Connect anew; watches begin again.

        Calls on the old channels have their time: gRPC would end them as if their tasks were
        cancelled.
        """
        links, self._links = self._links or [], None
        for link in links:
            link.end_watches()
        task = tasks.start(self._close_later(links), "leaving old channels to etcd")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _close_later(self, links: list[Link]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timeout + ROUND_PAUSE):
                await self._closed.wait()
        for link in links:
            await link.close()

    def _all(self) -> list[Link]:
        if self._closed.is_set():
            raise DatastoreUnavailable("the connection to etcd has been closed")
        if self._links is None:
            endpoints = self._config.endpoints
            self._links = [Link(one, self._config, self._material) for one in endpoints]
            self._first = random.randrange(len(endpoints))
        return self._links

    def _prefer(self, link: Link, problems: dict[str, NotSent]) -> None:
        links = self._links or []
        if link in links:
            self._first = links.index(link)
        self._outages.warn(problems, link.endpoint)

    def _plan(self, deadline: float) -> Iterator[tuple[Link, float]]:
        """The endpoints to try, the preferred one first, each with its share of the time left."""
        loop = asyncio.get_running_loop()
        links = self._all()
        order = links[self._first :] + links[: self._first]
        for index, link in enumerate(order):
            left = deadline - loop.time()
            if left <= 0:
                return
            yield link, left / (len(order) - index)

    async def _rounds(self, attempt: Callable[[Link, float], Awaitable[T]]) -> T:
        """Try `attempt` on one endpoint after another until one succeeds or time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout
        problems: dict[str, NotSent] = {}
        turn = 0
        while loop.time() < deadline:
            turn += 1
            for link, share in self._plan(deadline):
                try:
                    answer = await attempt(link, share)
                except NotSent as problem:
                    problems[link.endpoint] = problem
                except grpc.aio.AioRpcError as problem:
                    if not gone(problem):
                        raise error_of(problem, self.user) from None
                    self.forget(link)
                    problems[link.endpoint] = NotSent(why(problem))
                else:
                    problems.pop(link.endpoint, None)
                    self._prefer(link, problems)
                    return answer
            if turn >= ROUNDS and all(problem.refused for problem in problems.values()):
                break
            await self._take_up_new_files()
            await asyncio.sleep(min(ROUND_PAUSE, max(0.0, deadline - loop.time())))
        raise await self._outages.error(problems)

    async def _once(
        self, call: Callable[[Link], Call[Q, A]], request: Q, link: Link, share: float
    ) -> A:
        loop = asyncio.get_running_loop()
        end = loop.time() + share
        await link.ready(share)
        answer = await self.logged_in(link, call, request, max(0.1, end - loop.time()))
        if answer is None:
            self.forget(link)
            raise NotSent(UNREADABLE)
        return answer

    async def logged_in(
        self, link: Link, call: Callable[[Link], Call[Q, A]], request: Q, share: float
    ) -> A | None:
        """Make one call on one endpoint, and once more with a new login if the old has ended.

        None for an answer that cannot be read.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        metadata = await self._login.ready_metadata(link, share)
        try:
            return await call(link)(request, timeout=share, metadata=metadata)
        except grpc.aio.AioRpcError as problem:
            if not self._login.needed or not stale_login(problem):
                raise
            # The token has ended, or etcd has restarted, or its users were edited.
            self._login.token = None
            left = max(0.1, share - (loop.time() - start))
            metadata = await self._login.ready_metadata(link, left)
            return await call(link)(request, timeout=left, metadata=metadata)

    def _read_material(self) -> Material | None:
        """The PEM texts. Raises CertificateProblem naming the file."""
        if not self._secure:
            return None
        from libcalico.datastore import pem

        return pem.settle(self._config)

    async def _take_up_new_files(self) -> None:
        """Connect anew when the certificate files have changed since they were read."""
        if not self._secure or self._links is None:
            return
        try:
            material = self._read_material()
        except CertificateProblem:
            return  # half written, perhaps; if it stays so, the error will name it
        if material == self._material:
            return
        log.info("the etcd certificate files have changed: connecting anew")
        self._material = material
        self._retire()


class _Write:
    """One transaction. `doubt` names an endpoint that may have carried it out without an answer."""

    def __init__(self, connection: Connection, request: pb.TxnRequest, guarded: bool) -> None:
        self._connection, self.request, self._guarded = connection, request, guarded
        self._deadline = asyncio.get_running_loop().time() + connection.timeout
        self.doubt = ""

    async def attempt(self, link: Link, share: float) -> pb.TxnResponse:
        """Send it over a channel that is up. If the channel is not up, nothing has been sent."""
        await link.ready(share)
        left = max(0.1, self._deadline - asyncio.get_running_loop().time())
        share = min(left, PATIENCE) if self._guarded else left
        try:
            answer = await self._connection.logged_in(link, _txn, self.request, share)
            if answer is not None:
                return answer
            reason, refused = UNREADABLE, False
        except grpc.aio.AioRpcError as problem:
            if not gone(problem):
                raise
            reason, refused = why(problem), not_applied(problem)
        self._connection.forget(link)
        if not refused:
            self.doubt = f"etcd at {link.endpoint} ({reason})"
            if not self._guarded:
                raise DatastoreUnavailable(self.doubt)
        raise NotSent(reason)


def _txn(link: Link) -> Call[pb.TxnRequest, pb.TxnResponse]:
    return link.txn


def _response(message: bytes) -> pb.TxnResponse:
    try:
        return pb.TxnResponse.FromString(message)
    except DecodeError:
        raise Unanswered(UNREADABLE, sent=True) from None
