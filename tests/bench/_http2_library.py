"""A connection to etcd by the package `h2`, with the face of `http2.Wire`, for comparison.

`./run bench etcd_calls` measures it beside gRPC and beside the framing that the product uses. It is
complete: flow control both ways, large messages, resets, GOAWAY, pings and TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h2.events as event
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from libcalico.datastore.etcd.http2 import OUR_WINDOW, Metadata, Peer, message
from libcalico.datastore.etcd.message_stream import Messages

Headers = list[tuple[bytes, bytes]]


class CallFailed(Exception):
    """A call without an answer. `status`: gRPC's code, empty if there was none; `sent`: the server
    may have carried it out.
    """

    def __init__(self, reason: str, *, status: str = "", sent: bool = True) -> None:
        self.status, self.sent = status, sent
        super().__init__(reason)


class Call:
    """One stream: the request that is still to be sent, and its messages as they come."""

    def __init__(self, body: bytes, ends: bool, receive: Callable[[bytes], None]) -> None:
        self.rest, self.ends = memoryview(body), ends
        self.receive = receive
        self.messages = Messages()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: CallFailed) -> None:
        """End the call with an error."""
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # a watch may have no waiting caller


class LibraryWire(asyncio.Protocol):
    """One connection to an etcd member. `begun`: the server's settings came, or it is over."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._h2 = H2Connection(
            H2Configuration(
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
            )
        )
        # Values set later are announced later: these go with the preface.
        values = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: OUR_WINDOW}
        self._h2.local_settings = Settings(client=True, initial_values=values)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self.begun = asyncio.Event()
        self.reason = ""

    def headers(self, path: str, metadata: Metadata = ()) -> Headers:
        """The headers of a call."""
        peer = self._peer
        pairs = [
            (":method", "POST"),
            (":scheme", "https" if peer.context else "http"),
            (":path", path),
            (":authority", f"{peer.host}:{peer.port}"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *metadata,
        ]
        return [(name.encode(), value.encode()) for name, value in pairs]

    async def connect(self) -> None:
        """Connect. Raises OSError."""
        peer = self._peer
        await asyncio.get_running_loop().create_connection(
            lambda: self, peer.host, peer.port, ssl=peer.context
        )
        await self.begun.wait()

    async def unary(self, headers: Headers, body: bytes, timeout: float) -> bytes:
        """The one message of an answer. Raises CallFailed."""
        answer: list[bytes] = []
        deadline = (b"grpc-timeout", b"%dm" % max(1, int(timeout * 1000)))
        call = self.begin([*headers, deadline], body, answer.append, ends=True)
        expiry = asyncio.get_running_loop().call_later(timeout, self.end, "no answer in time")
        try:
            await call.done
        finally:
            expiry.cancel()
        return answer[0]

    def begin(
        self, headers: Headers, body: bytes, receive: Callable[[bytes], None], *, ends: bool
    ) -> Call:
        """Start a call: `receive` gets each message. Raises CallFailed."""
        if self._transport is None:
            raise CallFailed(self.reason or "there is no connection", sent=False)
        call = Call(message(body), ends, receive)
        number = self._h2.get_next_available_stream_id()
        self._h2.send_headers(number, headers)
        self._calls[number] = call
        self._send(number, call)
        self._flush()
        return call

    def end(self, reason: str) -> None:
        """End the connection and every call on it."""
        self.reason = self.reason or reason
        self.begun.set()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.fail(CallFailed(reason))

    def _send(self, number: int, call: Call) -> None:
        """Send what both windows allow of a request."""
        while call.rest:
            window = self._h2.local_flow_control_window(number)
            size = min(len(call.rest), window, self._h2.max_outbound_frame_size)
            if size <= 0:
                return
            part, call.rest = call.rest[:size], call.rest[size:]
            self._h2.send_data(number, bytes(part), end_stream=call.ends and not call.rest)

    def _flush(self) -> None:
        if self._transport is not None and (data := self._h2.data_to_send()):
            self._transport.write(data)

    # -- asyncio.Protocol ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface and the settings."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(OUR_WINDOW - 65535)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Read frames, and answer what HTTP/2 wants answered."""
        try:
            for one in self._h2.receive_data(data):
                self._receive(one)
        except H2Error as error:
            self._flush()
            self.end(str(error))
            return
        self._flush()

    def connection_lost(self, _error: Exception | None) -> None:
        """End every call."""
        self.end("the connection ended")

    def _receive(self, one: event.Event) -> None:
        match one:
            case event.DataReceived(stream_id=int() as number):
                self._receive_data(number, one)
            case event.TrailersReceived(stream_id=int() as number, headers=list() as headers):
                self._receive_status(number, dict(headers))
            case event.ResponseReceived(stream_id=int() as number, headers=list() as headers):
                # An error alone is a response with the fields of a trailer.
                if b"grpc-status" in (fields := dict(headers)):
                    self._receive_status(number, fields)
            case event.StreamReset(stream_id=int() as number):
                if (call := self._calls.pop(number, None)) is not None:
                    refused = one.error_code == ErrorCodes.REFUSED_STREAM
                    call.fail(CallFailed("the call was reset", sent=not refused))
            case event.ConnectionTerminated():
                for number in [each for each in self._calls if each > (one.last_stream_id or 0)]:
                    reason = "the server ends the connection"
                    self._calls.pop(number).fail(CallFailed(reason, sent=False))
                self.end("the server ends the connection")
            case event.RemoteSettingsChanged():
                self.begun.set()
                self._go_on()
            case event.WindowUpdated():
                self._go_on()

    def _receive_data(self, number: int, one: event.DataReceived) -> None:
        length = one.flow_controlled_length or 0
        if length:
            self._h2.acknowledge_received_data(length, number)
        if (call := self._calls.get(number)) is not None:
            for body in call.messages.feed(one.data or b""):
                call.receive(body)

    def _receive_status(self, number: int, fields: dict[bytes, bytes]) -> None:
        if (call := self._calls.pop(number, None)) is None:
            return
        status = fields.get(b"grpc-status", b"").decode()
        if status == "0":
            if not call.done.done():
                call.done.set_result(None)
        else:
            reason = fields.get(b"grpc-message", b"").decode() or "an error"
            call.fail(CallFailed(reason, status=status))

    def _go_on(self) -> None:
        for number, call in self._calls.items():
            self._send(number, call)
