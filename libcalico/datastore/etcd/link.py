"""The channel to one etcd endpoint, and the calls on it.

Problem: while a process has a channel gRPC's threads wake some nine times a second, though nothing
is asked. So a channel goes when there was no call for a while, gRPC's threads go with the last one
of the process, and the next call makes another.

Tested in tests/libcalico/test_etcd_failover.py and test_etcd_channel.py there.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import grpc
import grpc.aio

from libcalico import parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.direct_call import DirectCall
from libcalico.datastore.etcd.failures import NotSent
from libcalico.datastore.etcd.http2 import Metadata, Peer
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.proto import etcd_pb2_grpc as services
from libcalico.datastore.etcd.stream import Streams
from libcalico.process import tasks

if TYPE_CHECKING:
    from libcalico.datastore.pem import Material

RANGE, WATCH = b"/etcdserverpb.KV/Range", b"/etcdserverpb.Watch/Watch"
QUESTION = pb.RangeRequest(key=b"/calico/", count_only=True, serializable=True).SerializeToString()
"""What a proxy answers by itself once it has read it; it costs etcd nothing."""
PROXY_KEEPALIVE = 330.0
"""Seconds between pings that a proxy bears."""
OPTIONS = (
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

Request = TypeVar("Request", contravariant=True)
Answer = TypeVar("Answer", covariant=True)


class Call(Protocol[Request, Answer]):
    """A method of etcd's with one request and one answer, as gRPC's stubs have it."""

    def __call__(
        self, request: Request, *, timeout: float, metadata: Metadata = ()
    ) -> Awaitable[Answer | None]:
        """Call it; `timeout` in seconds. Raises grpc.aio.AioRpcError.

        None where etcd answered, and gRPC could not decode the answer.
        """


class Stubs:
    """A channel, and etcd's services on it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.kv, self.lease = services.KVStub(channel), services.LeaseStub(channel)
        self.watch, self.auth = services.WatchStub(channel), services.AuthStub(channel)


class Channel:
    """The channel that `make` makes; it goes `idle` seconds after the last call."""

    def __init__(self, make: Callable[[], grpc.aio.Channel], idle: float) -> None:
        self._make, self._idle = make, idle
        self.stubs: Stubs | None = None
        self._calls = 0
        self._last = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._closed = False

    def lend(self) -> Stubs:
        """The stubs for a call; `give_back` follows. Raises NotSent once it is closed."""
        if self.stubs is None:
            if self._closed:
                raise NotSent("the connection has been closed", connected=False)
            self.stubs = Stubs(self._make())
        self._calls += 1
        return self.stubs

    def give_back(self) -> None:
        """Note the end of a call."""
        self._calls -= 1
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if self._look is None and not self._closed:
            self._look = loop.call_later(self._idle, self._look_after)

    @contextmanager
    def used(self) -> Iterator[Stubs]:
        """`lend` and `give_back` around a call."""
        stubs = self.lend()
        try:
            yield stubs
        finally:
            self.give_back()

    def _look_after(self) -> None:
        self._look = None
        loop = asyncio.get_running_loop()
        if self._calls or self.stubs is None:
            return
        if loop.time() < self._last + self._idle:
            self._look = loop.call_at(self._last + self._idle, self._look_after)
            return
        stubs, self.stubs = self.stubs, None
        tasks.start(stubs.channel.close(), "an idle channel to etcd")

    async def close(self) -> None:
        """End it with its calls; no other is made."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        if self.stubs is not None:
            await self.stubs.channel.close()


class Link:
    """One endpoint. `material` has the PEM texts for `https://`.

    `pings`: gRPC's channel pings in silence, more often than a proxy bears.
    """

    def __init__(self, endpoint: str, config: DatastoreConfig, material: Material | None) -> None:
        self.endpoint = endpoint
        self._secure, self._target = target_of(endpoint)
        self._config, self._material = config, material
        self._closed, self._asks = False, config.proxied
        self.pings = not config.proxied
        self._channel = Channel(self._made, config.idle)
        self.range: Call[pb.RangeRequest, pb.RangeResponse] = self._call(lambda on: on.kv.Range)
        self.txn: Call[pb.TxnRequest, pb.TxnResponse] = self._call(lambda on: on.kv.Txn)
        self.compact: Call[pb.CompactionRequest, pb.CompactionResponse] = self._call(
            lambda on: on.kv.Compact
        )
        self.grant: Call[pb.LeaseGrantRequest, pb.LeaseGrantResponse] = self._call(
            lambda on: on.lease.LeaseGrant
        )
        self.revoke: Call[pb.LeaseRevokeRequest, pb.LeaseRevokeResponse] = self._call(
            lambda on: on.lease.LeaseRevoke
        )
        self.time_to_live: Call[pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse] = self._call(
            lambda on: on.lease.LeaseTimeToLive
        )
        self.authenticate: Call[pb.AuthenticateRequest, pb.AuthenticateResponse] = self._call(
            lambda on: on.auth.Authenticate
        )

    def _made(self) -> grpc.aio.Channel:
        config, material = self._config, self._material
        self.pings = not self._asks
        keepalive = config.keepalive if self.pings else PROXY_KEEPALIVE
        options = (
            *OPTIONS,
            ("grpc.keepalive_time_ms", int(keepalive * 1000)),
            ("grpc.keepalive_timeout_ms", int(config.keepalive_timeout * 1000)),
            # A keepalive is a ping, and a ping has a timeout of its own (a minute by default).
            ("grpc.http2.ping_timeout_ms", int(config.keepalive_timeout * 1000)),
        )
        if not self._secure:
            return grpc.aio.insecure_channel(self._target, options=options)
        assert material is not None
        credentials = grpc.ssl_channel_credentials(
            root_certificates=material.ca or None,
            private_key=material.key or None,
            certificate_chain=material.cert or None,
        )
        return grpc.aio.secure_channel(self._target, credentials, options=options)

    def _call(self, of: Callable[[Stubs], Call[Request, Answer]]) -> Call[Request, Answer]:
        async def call(
            request: Request, *, timeout: float, metadata: Metadata = ()
        ) -> Answer | None:
            with self._channel.used() as stubs:
                return await of(stubs)(request, timeout=timeout, metadata=metadata)

        return call

    def watch(self, *, metadata: Metadata = ()) -> grpc.aio.StreamStreamCall:
        """etcd's Watch, a stream."""
        call = self._channel.lend().watch.Watch(metadata=metadata)
        call.add_done_callback(lambda _: self._channel.give_back())
        return call

    @functools.cached_property
    def express(self) -> DirectCall | None:
        """The direct connection for frequent writers, None where there can be none."""
        return None if self._peer is None else DirectCall(self._peer)

    @functools.cached_property
    def streams(self) -> Streams | None:
        """The direct connection for watches, None where there can be none."""
        if self._peer is None:
            return None
        streams = Streams(self._peer, WATCH)
        if self._asks:
            streams.ask(RANGE, QUESTION)
        return streams

    @functools.cached_property
    def _peer(self) -> Peer | None:
        material = self._material if self._secure else None
        if self._closed or (material is not None and not material.ca):
            return None
        try:
            member = parsing.address(self.endpoint, parsing.ETCD_PORT)
            context = None
            if material is not None:
                from libcalico.datastore import pem

                context = pem.context_of(material)
            keepalive = self._config.keepalive, self._config.keepalive_timeout
            return Peer(member.host, member.port, context, keepalive)
        except (OSError, ValueError):
            return None  # ssl.SSLError too: gRPC takes the files, or says what is wrong with them

    async def keep_alive(
        self, request: pb.LeaseKeepAliveRequest, *, timeout: float, metadata: Metadata = ()
    ) -> pb.LeaseKeepAliveResponse | None:
        """etcd's LeaseKeepAlive, which is a stream, for one request and its answer (a `Call`)."""
        with self._channel.used() as stubs:
            stream = stubs.lease.LeaseKeepAlive([request], timeout=timeout, metadata=metadata)
            try:
                answer: pb.LeaseKeepAliveResponse | None = await stream.read()
            finally:
                stream.cancel()
        return None if answer is grpc.aio.EOF else answer

    def hold(self) -> None:
        """Hold back the events of watches on the direct connection for a moment."""
        streams = self.__dict__.get("streams")
        if streams is not None:
            streams.hold()

    def ask(self) -> None:
        """Ask by reads from now on whether it lives: it is a proxy, which ends what pings."""
        self._asks = True
        streams = self.__dict__.get("streams")
        if streams is not None:
            streams.ask(RANGE, QUESTION)

    def take_up(self, material: Material | None) -> None:
        """Make the direct connections anew if these PEM texts are others; gRPC's stays."""
        if material != self._material:
            self._material = material
            self._close_short()
            self.__dict__.pop("_peer", None)

    def end_watches(self) -> None:
        """End the watches on the direct connection."""
        self._close_short("streams")

    def _close_short(self, *names: str) -> None:
        for name in names or ("express", "streams"):
            short = self.__dict__.pop(name, None)
            if short is not None:
                short.close()

    async def close(self) -> None:
        """End its connections; no other is made after that."""
        self._closed = True
        self._close_short()
        self.__dict__.pop("_peer", None)
        await self._channel.close()

    async def ready(self, timeout: float) -> None:
        """Wait until the channel is up. Raises NotSent when it fails or time passes."""
        try:
            with self._channel.used() as stubs:
                async with asyncio.timeout(timeout):
                    await _up(stubs.channel)
        except TimeoutError:
            raise NotSent("no connection within the deadline", connected=False) from None


async def _up(channel: grpc.aio.Channel) -> None:
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            raise NotSent("connection refused or failed", refused=True, connected=False)
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


def target_of(endpoint: str) -> tuple[bool, str]:
    """Whether an endpoint URL means TLS, and gRPC's name for it."""
    member = parsing.address(endpoint, parsing.ETCD_PORT)
    if ":" in member.host:
        return member.secure, f"ipv6:[{member.host}]:{member.port}"
    if member.host.replace(".", "").isdigit():
        return member.secure, f"ipv4:{member.host}:{member.port}"
    return member.secure, f"dns:///{member.host}:{member.port}"
