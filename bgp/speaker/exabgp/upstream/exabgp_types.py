"""The parts of ExaBGP's objects that our replacements use. ExaBGP has no types of its own.

What stands under "ours" in a class is an attribute that our replacements add to the object.

Standard library only. Tested in tests/bgp/test_sessions.py: a wrong name here fails there.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Literal, Protocol, overload

from bgp.speaker.exabgp.outbox import Outbox

Afi = Hashable
"""A number of an address family (`exabgp.protocol.family.AFI`)."""


class Address(Protocol):
    """`exabgp.protocol.ip.IP`."""

    afi: Afi

    def top(self) -> str: ...


class Neighbor(Protocol):
    """`exabgp.bgp.neighbor.Neighbor`: the definition of a peer."""

    # ours
    greeting: str

    @overload
    def __getitem__(self, name: Literal["peer-address", "local-address", "md5-ip"]) -> Address: ...
    @overload
    def __getitem__(self, name: Literal["listen", "incoming-ttl", "outgoing-ttl"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["description", "md5-password"]) -> str: ...
    @overload
    def __getitem__(self, name: Literal["md5-base64", "passive"]) -> bool: ...

    def ip_self(self, afi: Afi) -> Address: ...


class Connection(Protocol):
    """`exabgp.reactor.network.connection.Connection`; its `io` is None once it is closed."""

    afi: Afi
    direction: str
    io: socket.socket
    local: str
    peer: str
    # ours
    outbox: Outbox

    def close(self) -> None: ...
    def notification(self, code: int, subcode: int, text: str) -> Iterator[bool]: ...


class OutgoingConnection(Connection, Protocol):
    """`exabgp.reactor.network.outgoing.Outgoing`."""

    # ours
    rests_until: float

    def _connect(self) -> bool: ...
    def success(self) -> object: ...


class Message(Protocol):
    """`exabgp.bgp.message.Message`."""

    TYPE: int


class RawUpdate(Protocol):
    """`exabgp.bgp.message.Update`, made by `updates`."""

    # ours
    line: str


class Capabilities(Protocol):
    """`exabgp.bgp.message.open.capability.Capabilities`."""

    def announced(self, code: int) -> bool: ...


class Open(Protocol):
    """`exabgp.bgp.message.Open`."""

    capabilities: Capabilities


class AddPath(Protocol):
    """`exabgp.bgp.message.open.capability.negotiated.RequirePath`."""

    def receive(self, afi: Afi, safi: object) -> bool: ...


class Negotiated(Protocol):
    """`exabgp.bgp.message.open.capability.Negotiated`: what both OPENs agree on."""

    addpath: AddPath
    asn4: bool
    families: Iterable[tuple[object, object]]
    holdtime: int
    received_open: Open | None


class SendTimer(Protocol):
    """`exabgp.bgp.timer.SendTimer`."""

    keepalive: int
    last_sent: float


class ReceiveTimer(Protocol):
    """`exabgp.bgp.timer.ReceiveTimer`."""

    code: int
    holdtime: int
    message: str
    subcode: int
    # ours
    last_heard: float

    def check_ka_timer(self, message: Message) -> bool: ...


class KeepAliveTimer(Protocol):
    """`exabgp.reactor.keepalive.KA`."""

    send_timer: SendTimer


class Delay(Protocol):
    """`exabgp.reactor.delay.Delay`: the pause before a peer is dialled again."""

    _next: int
    _time: float

    def reset(self) -> None: ...


class Session(Protocol):
    """`exabgp.reactor.protocol.Protocol`; it has no connection while it is being closed."""

    connection: Connection
    negotiated: Negotiated
    neighbor: Neighbor
    peer: Peer
    # ours
    keepalives: SendTimer

    def new_notification(self, message: object) -> Iterator[object]: ...
    def read_keepalive(self) -> Iterator[Message]: ...


class Peer(Protocol):
    """`exabgp.reactor.peer.Peer`."""

    _delay: Delay
    _restart: bool
    _teardown: int | None
    fsm: object
    generator: object
    neighbor: Neighbor
    reactor: Reactor
    recv_timer: ReceiveTimer
    # ours
    _notice: BaseException | None
    dials_at: float
    number: int
    rests_until: float

    @property
    def proto(self) -> Session | None: ...
    def _reset(self, message: str = "", error: str = "") -> None: ...
    def established(self) -> bool: ...
    def id(self) -> str: ...
    def socket(self) -> int: ...
    def stopping(self) -> bool: ...
    def teardown(self, code: int, restart: bool = True) -> None: ...


class ConnectedPeer(Peer, Protocol):
    """A peer with a session."""

    @property
    def proto(self) -> Session: ...


class Processes(Protocol):
    """`exabgp.reactor.api.processes.Processes`: what ExaBGP tells the agent."""

    fds: Iterable[int]
    silence: bool
    _ack: dict[str, bool]
    _ackjson: dict[str, bool]
    _encoder: dict[str, object]
    _process: dict[str, object]
    _restart: dict[str, bool]

    def _notify(self, neighbor: Neighbor, event: str) -> Iterable[str]: ...
    def answer_done(self, service: str) -> None: ...
    def answer_error(self, service: str) -> None: ...
    def _update_fds(self) -> None: ...
    def write(self, process: str, line: str, neighbor: Neighbor | None = None) -> bool: ...


class Listener(Protocol):
    """`exabgp.reactor.listener.Listener`: the listening sockets."""

    _reactor: Reactor
    _sockets: Mapping[socket.socket, tuple[str, int, str, object]]
    serving: bool

    def _connected(self) -> Iterable[Connection]: ...
    def close_unwanted(self, kept: Collection[tuple[str, int]]) -> None: ...
    def listen_on(
        self,
        local: Address,
        remote: Address,
        port: int,
        password: str,
        base64: bool,
        ttl: int | None,
        /,
    ) -> bool: ...


class Asynchronous(Protocol):
    """`exabgp.reactor.asynchronous.ASYNC`: work in steps."""

    _async: deque[tuple[object, Iterator[object]]]

    def schedule(self, number: str, what: str, work: Iterator[object]) -> None: ...


class Signals(Protocol):
    """`exabgp.reactor.interrupt.Signal`."""

    _pending: list[tuple[int, int]]
    _ready: bool
    number: int
    received: int


class Configuration(Protocol):
    """`exabgp.configuration.configuration.Configuration`."""

    neighbors: Mapping[str, Neighbor]


class Reactor(Protocol):
    """`exabgp.reactor.loop.Reactor`: the main loop."""

    _peers: Mapping[str, Peer]
    _poller: select.poll
    asynchronous: Asynchronous
    configuration: Configuration
    listener: Listener
    processes: Processes
    signal: Signals
    # ours
    listening: set[int]
    sleeps_until: float

    def _prevent_spin(self) -> None: ...
    def handle_connection(self, key: str, connection: Connection) -> object: ...
