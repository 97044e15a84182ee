"""Channels to the members of an etcd cluster: failover, login, deadlines, clear errors.

One channel per endpoint; the one that answered last is asked first. A read may be repeated
on another endpoint. A write is sent only over a channel that is up, and is repeated only
when it certainly was not sent: a lost answer is reported, never guessed (ETCD-1).

grpc.aio wants one event loop per process and no fork after its start.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.proto import etcd_pb2_grpc as services
from libcalico.datastore.interface import Compacted
from libcalico.errors import DatastoreError, DatastoreUnavailable, InvalidValue, MuslinError

log = logging.getLogger(__name__)

ROUNDS = 3
ROUND_PAUSE = 0.3
OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    # Members must not share one connection pool: each endpoint fails for itself.
    ("grpc.use_local_subchannel_pool", 1),
)
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class _NotSent(Exception):
    """The request has certainly not left this machine."""


class Link:
    """The channel to one endpoint and the stubs on it."""

    def __init__(self, endpoint: str, credentials: Any) -> None:
        self.endpoint = endpoint
        secure, target = _target(endpoint)
        if secure:
            self.channel = grpc.aio.secure_channel(target, credentials, options=OPTIONS)
        else:
            self.channel = grpc.aio.insecure_channel(target, options=OPTIONS)
        kv = services.KVStub(self.channel)
        self.range, self.txn, self.compact = kv.Range, kv.Txn, kv.Compact
        self.watch = services.WatchStub(self.channel).Watch
        self.authenticate = services.AuthStub(self.channel).Authenticate
        self.status = services.MaintenanceStub(self.channel).Status

    async def ready(self, timeout: float) -> None:
        """Wait until the channel is up. Raises _NotSent when it fails or time passes."""
        try:
            async with asyncio.timeout(timeout):
                state = self.channel.get_state(try_to_connect=True)
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        raise _NotSent("connection refused or failed")
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
        except TimeoutError:
            raise _NotSent("no connection within the deadline") from None


class Connection:
    """All endpoints together."""

    def __init__(self, config: DatastoreConfig) -> None:
        if not config.endpoints:
            raise InvalidValue(
                "etcdDiscoverySrv", config.discovery_srv, "not served: name endpoints"
            )
        self._config = config
        self._credentials = _credentials(config)
        self._links: list[Link] | None = None
        self._first = 0
        self._token: str | None = None
        self._login = asyncio.Lock()
        self._closed = False

    @property
    def timeout(self) -> float:
        """The deadline of one call, in seconds."""
        return self._config.timeout

    async def read(self, call: Callable[[Link], Any], request: Any) -> Any:
        """A call that may be repeated elsewhere. Raises DatastoreUnavailable, Compacted..."""
        return await self._attempt(call, request, repeatable=True)

    async def write(self, call: Callable[[Link], Any], request: Any) -> Any:
        """A call that must not happen twice (ETCD-1)."""
        return await self._attempt(call, request, repeatable=False)

    async def open_watch(self) -> tuple[Link, Any]:
        """A watch stream on an endpoint that is up."""
        deadline = asyncio.get_running_loop().time() + self.timeout
        problems: dict[str, str] = {}
        for link, share in self._plan(deadline):
            try:
                await link.ready(share)
                metadata = await self._metadata(link, share)
            except _NotSent as problem:
                problems[link.endpoint] = str(problem)
                continue
            except grpc.aio.AioRpcError as problem:
                if problem.code() not in _GONE:
                    raise error_of(problem) from None
                problems[link.endpoint] = _why(problem)
                continue
            self._prefer(link)
            return link, link.watch(metadata=metadata)
        raise self._unavailable(problems)

    def forget(self, link: Link) -> None:
        """This endpoint failed: begin with another one next time."""
        if self._links and self._links[self._first] is link:
            self._first = (self._first + 1) % len(self._links)

    def logout(self) -> None:
        """Forget the login: a stream broke, perhaps because its token was no longer good."""
        self._token = None

    async def close(self) -> None:
        """Close all channels."""
        self._closed = True
        links, self._links = self._links or [], None
        for link in links:
            await link.channel.close()

    def _all(self) -> list[Link]:
        if self._closed:
            raise DatastoreUnavailable("the connection to etcd has been closed")
        if self._links is None:
            self._links = [Link(one, self._credentials) for one in self._config.endpoints]
        return self._links

    def _prefer(self, link: Link) -> None:
        self._first = self._all().index(link)

    def _plan(self, deadline: float) -> Any:
        """Endpoints to try, the preferred one first, each with its share of the time left."""
        loop = asyncio.get_running_loop()
        links = self._all()
        order = links[self._first :] + links[: self._first]
        for index, link in enumerate(order):
            left = deadline - loop.time()
            if left <= 0:
                return
            yield link, left / (len(order) - index)

    async def _attempt(self, call: Callable[[Link], Any], request: Any, repeatable: bool) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout
        problems: dict[str, str] = {}
        for turn in range(ROUNDS):
            if turn:
                await asyncio.sleep(min(ROUND_PAUSE, max(0.0, deadline - loop.time())))
            for link, share in self._plan(deadline):
                try:
                    return await self._once(link, call, request, share, deadline, repeatable)
                except _NotSent as problem:
                    problems[link.endpoint] = str(problem)
                except grpc.aio.AioRpcError as problem:
                    if problem.code() not in _GONE:
                        raise error_of(problem) from None
                    self.forget(link)
                    if not repeatable:
                        raise DatastoreUnavailable(
                            f"etcd at {link.endpoint} did not confirm a write "
                            f"({_why(problem)}): it may or may not have happened"
                        ) from None
                    problems[link.endpoint] = _why(problem)
        raise self._unavailable(problems)

    async def _once(
        self,
        link: Link,
        call: Callable[[Link], Any],
        request: Any,
        share: float,
        deadline: float,
        repeatable: bool,
    ) -> Any:
        loop = asyncio.get_running_loop()
        start = loop.time()
        if not repeatable:
            await link.ready(share)
            share = max(0.1, deadline - loop.time())
        metadata = await self._metadata(link, share)
        try:
            answer = await call(link)(request, timeout=share, metadata=metadata)
        except grpc.aio.AioRpcError as problem:
            if problem.code() is not grpc.StatusCode.UNAUTHENTICATED or metadata is None:
                raise
            # The token has expired, or etcd has restarted: log in once more.
            self._token = None
            left = max(0.1, share - (loop.time() - start))
            metadata = await self._metadata(link, left)
            answer = await call(link)(request, timeout=left, metadata=metadata)
        self._prefer(link)
        return answer

    async def _metadata(self, link: Link, timeout: float) -> tuple[tuple[str, str]] | None:
        # Calico logs in only where both are given.
        if not (self._config.username and self._config.password):
            return None
        async with self._login:
            if self._token is None:
                request = pb.AuthenticateRequest(
                    name=self._config.username, password=self._config.password
                )
                try:
                    answer = await link.authenticate(request, timeout=timeout)
                except grpc.aio.AioRpcError as problem:
                    if problem.code() in _GONE:
                        raise _NotSent(_why(problem)) from None
                    raise
                self._token = answer.token
        return (("token", self._token),)

    def _unavailable(self, problems: dict[str, str]) -> DatastoreUnavailable:
        tried = "; ".join(f"{endpoint}: {why}" for endpoint, why in problems.items())
        return DatastoreUnavailable(
            f"no etcd endpoint answered within {self.timeout:g} s "
            f"({tried or ', '.join(self._config.endpoints)})"
        )


def error_of(problem: grpc.aio.AioRpcError) -> DatastoreError:
    """Our error for what etcd or gRPC said."""
    if problem.code() is grpc.StatusCode.OUT_OF_RANGE and "compacted" in (problem.details() or ""):
        return Compacted("etcd has compacted the revision that was asked for")
    if problem.code() in _GONE:
        return DatastoreUnavailable(f"etcd: {_why(problem)}")
    return DatastoreError(f"etcd refused: {_why(problem)}")


def _why(problem: grpc.aio.AioRpcError) -> str:
    if problem.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer within the deadline"
    details = str(problem.details() or problem.code().name)
    return details.splitlines()[0][:200]


def _target(endpoint: str) -> tuple[bool, str]:
    parts = urlsplit(endpoint)
    host, port = parts.hostname or "", parts.port or 2379
    if ":" in host:
        return parts.scheme == "https", f"ipv6:[{host}]:{port}"
    if host.replace(".", "").isdigit():
        return parts.scheme == "https", f"ipv4:{host}:{port}"
    return parts.scheme == "https", f"dns:///{host}:{port}"


def _credentials(config: DatastoreConfig) -> Any:
    if not any(one.startswith("https://") for one in config.endpoints):
        return None

    def content(file: str, inline: str, what: str) -> bytes | None:
        if not file:
            return inline.encode() or None
        try:
            return Path(file).read_bytes()
        except OSError as problem:
            raise MuslinError(f"the etcd {what} {file} cannot be read: {problem}") from problem

    return grpc.ssl_channel_credentials(
        root_certificates=content(config.ca_file, config.ca, "CA certificate"),
        private_key=content(config.key_file, config.key, "client key"),
        certificate_chain=content(config.cert_file, config.cert, "client certificate"),
    )
