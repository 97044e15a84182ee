"""What ExaBGP 5.0 does otherwise than a node needs, put right in its process at start.

Each function replaces one method and says why. They are proved on real sessions
(tests/bgp/test_sessions.py, test_hostile.py, test_limits.py); a release of ExaBGP without one
of the names fails at once, in `exabgp validate` already.

UPDATEs are not decoded here: the body goes to the agent as it came (`bgp.speaker.wire`). That
is a fifth of the work of decoding, printing JSON and parsing it, errors are handled by RFC
7606 as one pure function with tests, and no crafted message meets ExaBGP's parsers.

Options that ExaBGP's configuration has no word for stand in a neighbor's `description`, after
the word `muslin`: `keepalive=SECONDS`, `any-source`, `listen-any`.

Standard library and ExaBGP only.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import fcntl
import select
import socket
import sys
import termios
import time
from collections.abc import Iterable, Iterator
from typing import Any

from exabgp.bgp.fsm import FSM
from exabgp.bgp.message import _NOP, NOP, KeepAlive, Message, Notify, Update
from exabgp.bgp.message.direction import Direction
from exabgp.bgp.message.open.capability import Capability
from exabgp.bgp.message.update.attribute.attributes import Attributes
from exabgp.bgp.neighbor import Neighbor
from exabgp.bgp.timer import ReceiveTimer
from exabgp.logger import log
from exabgp.protocol.family import AFI, SAFI
from exabgp.protocol.ip import IP
from exabgp.reactor import keepalive, listener, loop, protocol
from exabgp.reactor import peer as peers
from exabgp.reactor.api.processes import ProcessError, Processes
from exabgp.reactor.delay import Delay
from exabgp.reactor.network.error import MD5Error, NetworkError
from exabgp.reactor.network.outgoing import Outgoing

from bgp.speaker.exabgp import clock, scheduling, sending
from bgp.speaker.exabgp.keys import SAID as KEYLESS

REDIAL_SECONDS = 5
NOTICE_BASE = 1000
"""`teardown 3005` sends NOTIFICATION 3/5; `teardown 4` sends 6/4, as in ExaBGP."""

MAX_TTL, DEFAULT_TTL = 255, -1  # -1: the kernel's own (`man 7 ip`, `man 7 ipv6`)

_SPEAKING = (FSM.OPENSENT, FSM.OPENCONFIRM, FSM.ESTABLISHED)
_PROOF_SECONDS = 10.0
_CROSSING_SECONDS = 0.5
_MOST_WAITING = 64


def options(neighbor: Any) -> dict[str, str]:
    """The options in a neighbor's description."""
    words = str(neighbor["description"] or "").strip('"').split()
    if words[:1] != ["muslin"]:
        return {}
    return {name: value for name, _, value in (word.partition("=") for word in words[1:])}


def cap_redial_pause() -> None:
    """The pause before dialling again grows to 5 s at most, as BIRD does in Calico.

    ExaBGP's own limit of 60 s would keep a peer that was away for minutes away for one more.
    """

    def increase(self: Any) -> None:
        self._time = clock.steady() + self._next
        self._next = min(int(1 + self._next * 1.2), REDIAL_SECONDS)

    Delay.increase = increase


def exact_hold_timer() -> None:
    """The hold timer runs to the fraction of a second.

    ExaBGP counts whole seconds and waits for one more than the hold time, so a dead peer would
    keep its routes a second too long.
    """

    def check(self: Any, message: Any = _NOP, ignore: int = _NOP.TYPE) -> bool:
        if self.holdtime == 0:
            return bool(message.TYPE != KeepAlive.TYPE)
        now = time.monotonic()
        if ignore != message.TYPE or not hasattr(self, "last_heard"):
            self.last_heard = now
        if now - self.last_heard >= self.holdtime:
            raise Notify(self.code, self.subcode, self.message)
        return True

    ReceiveTimer.check_ka_timer = check


def raw_updates() -> None:
    """A received UPDATE becomes the line `update PEER FLAGS HEX` of the API process.

    FLAGS: `4` four-octet AS numbers, `a` and `A` several paths for an IPv4 and IPv6 prefix,
    `-` none of them.
    """
    whole = Update.unpack_message.__func__
    nothing = Attributes()

    def unpack(cls: Any, data: bytes, direction: int, negotiated: Any) -> Any:
        if direction != Direction.IN:
            return whole(cls, data, direction, negotiated)
        update = cls([], nothing)
        flags = "4" * bool(negotiated.asn4)
        flags += "a" * bool(negotiated.addpath.receive(AFI.ipv4, SAFI.unicast))
        flags += "A" * bool(negotiated.addpath.receive(AFI.ipv6, SAFI.unicast))
        update.line = f"{flags or '-'} {bytes(data).hex()}"
        return update

    def tell(self: Any, neighbor: Any, direction: str, update: Any, *_: Any) -> None:
        line = f"update {neighbor['peer-address']} {update.line}"
        for process in self._notify(neighbor, f"{direction}-{Message.CODE.UPDATE.SHORT}"):
            self.write(process, line, neighbor)

    Update.unpack_message = classmethod(unpack)
    Processes._dispatch[Message.CODE.UPDATE] = tell


def teardown_with_notice() -> None:
    """An API `teardown` sends its NOTIFICATION, under graceful restart too.

    ExaBGP then closes without one: a peer whose UPDATE cannot be divided, or that passed its
    prefix limit, would never learn why, and keep our routes as if we restarted.
    """
    main, teardown = peers.Peer._main, peers.Peer.teardown

    def run(self: Any) -> Iterator[Any]:
        self._notice = None
        for action in main(self):
            if self._notice is not None:
                raise self._notice
            yield action

    def end(self: Any, code: int, restart: bool = True) -> None:
        if not self.established():
            teardown(self, 4, restart)
            return
        self._notice = Notify(code // NOTICE_BASE or 6, code % NOTICE_BASE)
        self._delay.reset()

    peers.Peer._main, peers.Peer.teardown = run, end


def removal_with_notice() -> None:
    """A peer that is taken out of the configuration hears so: CEASE 6/3 (RFC 4486).

    ExaBGP only closes, and under graceful restart the peer keeps our routes as if we restarted.
    And one that comes back before it had its last turn stays; ExaBGP would forget it.
    """
    remove, reconfigure = peers.Peer.remove, peers.Peer.reconfigure

    def run(self: Any) -> None:
        if self.proto is not None and self.fsm in _SPEAKING:
            try:
                next(self.proto.new_notification(Notify(6, 3)), None)
            except (NetworkError, ProcessError) as error:
                log.warning(lambda error=error: f"the peer was not told: {error}", self.id())
        remove(self)

    def back(self: Any, neighbor: Any = None) -> None:
        reconfigure(self, neighbor)
        if self.stopping():
            self._restart, self._teardown, self.generator = True, None, None

    peers.Peer.remove, peers.Peer.reconfigure = run, back


def header_errors() -> None:
    """A wrong message header is answered with its NOTIFICATION (RFC 4271 6.1).

    ExaBGP fails in telling its API process of it, and closes without a word; the `down` that
    follows says enough.
    """
    Processes.notification = lambda *_: None


def open_confirm() -> None:
    """What waits between the OPENs and an Established session.

    - For the first KEEPALIVE it sleeps. ExaBGP asks again at once, at a full processor, for
      the hold time, where a peer sends its OPEN and then stays silent.
    - A connection that was accepted under TTL security (RFC 5082) must have acknowledged our
      OPEN. What the peer said before the least TTL was set came from any distance; an
      acknowledgement of what we said after that did not.
    """

    def read(self: Any) -> Iterator[Any]:
        connection = self.proto.connection
        if self.neighbor["incoming-ttl"] and connection.direction == "incoming":
            while connection.io is not None and _unacknowledged(connection.io):
                self.recv_timer.check_ka_timer(_NOP)
                yield peers.ACTION.LATER
        for message in self.proto.read_keepalive():
            self.recv_timer.check_ka_timer(message)
            yield peers.ACTION.LATER if message.TYPE == NOP.TYPE else peers.ACTION.NOW

    peers.Peer._read_ka = read


def _unacknowledged(opened: socket.socket) -> int:
    """Octets that the other side has not acknowledged (`man 7 tcp`, SIOCOUTQ)."""
    answer = fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)


def replace_a_dead_session() -> None:
    """A peer with graceful restart that dials anew replaces its own session (RFC 4724 4.2).

    ExaBGP refuses until the old session's socket dies: the hold time, where the peer's host
    lost power. The new connection must have brought its OPEN and stay open for a moment: of two
    that crossed while both sides dialled the peer closes one itself. And it was let in by the
    definition (a key, a least TTL) that the peer still has.
    """
    accept, look = peers.Peer.handle_connection, listener.Listener.incoming
    define = peers.Peer.reestablish
    waiting: list[tuple[float, Any, Any]] = []

    def handle(self: Any, connection: Any) -> Any:
        if not self.established() or self._teardown or not _restarts(self):
            return accept(self, connection)
        waiting.append((time.monotonic() + _PROOF_SECONDS, self, connection))
        del waiting[:-_MOST_WAITING]
        return None

    def incoming(self: Any) -> Any:
        for each in list(waiting):
            end, peer, connection = each
            proof, left = _has_open(connection), end - time.monotonic()
            if left > 0 and proof is None:
                continue
            # Two connections that crossed may both bring an OPEN: the peer closes one of them.
            if proof and peer.established() and left > _PROOF_SECONDS - _CROSSING_SECONDS:
                continue
            waiting.remove(each)
            if not proof:
                connection.close()
                continue
            if peer.established():
                peer._reset("closing connection", "the peer dialled anew")
            accept(peer, connection)
        return look(self)

    def define_anew(self: Any, neighbor: Any = None) -> None:
        for each in [each for each in waiting if each[1] is self]:
            waiting.remove(each)
            each[2].close()
        define(self, neighbor)

    peers.Peer.handle_connection, peers.Peer.reestablish = handle, define_anew
    listener.Listener.incoming = incoming


def _restarts(peer: Any) -> bool:
    received = peer.proto.negotiated.received_open if peer.proto else None
    return bool(received and received.capabilities.announced(Capability.CODE.GRACEFUL_RESTART))


def _has_open(connection: Any) -> bool | None:
    """Whether an OPEN waits to be read; None: nothing is known yet."""
    try:
        poller = select.poll()
        poller.register(connection.io, select.POLLRDHUP)
        if poller.poll(0):  # closed again, whatever it had said
            return False
        start = connection.io.recv(Message.HEADER_LEN, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except (OSError, AttributeError, TypeError, ValueError):  # the last two: it is closed here
        return False
    if 0 < len(start) < Message.HEADER_LEN:
        return None
    return bool(start) and start[18] == Message.CODE.OPEN


def prompt_change() -> None:
    """A peer that is defined anew while its handshake waits takes the change at once.

    So does one without a connection. ExaBGP looks only when the session is Established, or when
    the wait for an OPEN ends; a passive peer would lose the first connection after the change. And
    our options are part of the definition.
    """
    establish, same, define = peers.Peer._establish, Neighbor.__eq__, peers.Peer.reestablish
    Neighbor.__eq__ = lambda one, other: same(one, other) and options(one) == options(other)

    def run(self: Any) -> Iterator[Any]:
        for action in establish(self):
            if self._teardown:
                raise NetworkError("the peer is defined anew")
            yield action

    def define_anew(self: Any, neighbor: Any = None) -> None:
        define(self, neighbor)
        if self.proto is None and self.generator is None:
            self._reset()
            self._delay.reset()

    peers.Peer._establish, peers.Peer.reestablish = run, define_anew


def no_lost_reload() -> None:
    """A reload is done at once, whatever is still to be sent.

    ExaBGP drops the signal while its own tables have routes to send, without a word, and nobody
    asks again.
    """
    loop.Reactor._pending_adjribout = lambda _: False


def own_keepalive() -> None:
    """The option `keepalive`: seconds between KEEPALIVEs; at most a third of the hold time."""
    start = keepalive.KA.__init__

    def init(self: Any, session: str, proto: Any) -> None:
        start(self, session, proto)
        wanted = int(options(proto.neighbor).get("keepalive", 0))
        if wanted and self.send_timer.keepalive:
            self.send_timer.keepalive = min(wanted, self.send_timer.keepalive)

    keepalive.KA.__init__ = init


def any_source() -> None:
    """The option `any-source`: the kernel chooses the address that we dial from.

    It is the next hop then, where ours is wanted: a router takes only one on its own network
    (RFC 4271 5.1.3).
    """
    own = Neighbor.ip_self

    def ip_self(self: Any, afi: Any) -> Any:
        peer = self["peer-address"]
        if afi == peer.afi and "any-source" in options(self) and (found := _source_to(peer.top())):
            return IP.create(found)
        return own(self, afi)

    Neighbor.ip_self = ip_self

    class FromAnywhere(Outgoing):  # type: ignore[misc]
        local: str

        def _setup(self) -> Any:
            local, self.local = self.local, ""
            try:
                return super()._setup()
            finally:
                self.local = local

    def connect(self: Any) -> Iterator[bool]:
        protocol.Outgoing = FromAnywhere if "any-source" in options(self.neighbor) else Outgoing
        yield from dial(self)

    dial = protocol.Protocol.connect
    protocol.Protocol.connect = connect


def _source_to(address: str) -> str:
    """The address that the kernel would dial this one from, now; empty: it knows no way."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 179))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def listening() -> None:
    """One socket serves many peers, and none of them sets a limit or keeps a key for another.

    - The least TTL (RFC 5082) is set on the accepted connection (see also `open_confirm`).
      ExaBGP sets it for the whole listening socket, where one peer's limit of one hop locks
      all distant peers out.
    - Where a peer has TTL security, handshakes are answered with the greatest TTL: such a peer
      drops the SYN-ACK of a socket that leaves it at the kernel's 64.
    - A socket has the keys (RFC 2385) of all peers before it listens, for the kernel completes
      connections for it whatever this process does. When a key comes, changes or goes, the socket
      is made anew: what waited in it for the process was let in under other keys. ExaBGP sets the
      keys of all peers but the first on the listening socket, and never removes one.
    - The kernel has room for so many keys of a socket (`net.core.optmem_max`: about 150 of 20 KiB).
      A peer whose key it refuses is not let in by that socket, and is dialled still; the others
      are served. ExaBGP would listen for none of them.
    - The option `listen-any` listens on all addresses. Peers of the same port share that socket:
      none can be bound to an address beside it. Who may come to which address is not changed.
    """
    make, minimum = listener.Listener._new_socket, listener.set_accepted_ttl
    set_key = listener.md5
    keys: dict[Any, dict[str, tuple[str, Any]]] = {}
    anywhere: set[tuple[Any, int]] = set()
    refused: dict[Any, set[str]] = {}

    def make_with_keys(self: Any, local: Any) -> socket.socket:
        opened: socket.socket = make(self, local)
        refused[local.afi] = set()
        for peer, (key, base64) in keys[local.afi].items():
            try:
                set_key(opened, peer, 0, key, base64)
            except MD5Error:
                refused[local.afi].add(peer)
        return opened

    def has_its_keys(*_: Any) -> None:
        """What ExaBGP does for one peer at a time is done."""

    def accepted(connection: Any, neighbor: Any) -> None:
        minimum(connection, neighbor)
        if neighbor["incoming-ttl"] and connection.io is not None:
            listener.set_minimum_ttl(
                connection.io, connection.afi, connection.peer, neighbor["incoming-ttl"]
            )

    def where(neighbor: Any) -> Any:
        family = neighbor["peer-address"].afi
        if (family, neighbor["listen"]) not in anywhere:
            return neighbor["md5-ip"]
        return IP.create("0.0.0.0" if family == AFI.ipv4 else "::")

    def for_neighbors(self: Any) -> bool:
        neighbors = self.configuration.neighbors.values()
        before = dict(keys)
        keys.update((family, _keys(neighbors, family)) for family in (AFI.ipv4, AFI.ipv6))
        served = [each for each in neighbors if each["listen"]]
        refused_before = set().union(*refused.values())
        for family in before:
            if keys[family] != before[family]:
                refused.pop(family, None)  # its sockets are made anew, or there are none
        anywhere.clear()
        anywhere.update(
            (each["peer-address"].afi, each["listen"])
            for each in served
            if "listen-any" in options(each)
        )
        # Closed first: an address cannot be bound beside the wildcard of the same port.
        self.listener.close_unwanted(
            {
                (where(each).top(), each["listen"])
                for each in served
                if keys[each["peer-address"].afi] == before.get(each["peer-address"].afi)
            }
        )
        good = True
        for each in served:
            good &= self.listener.listen_on(
                *(where(each), each["peer-address"], each["listen"]),
                *(each["md5-password"], each["md5-base64"], None),
            )
        secured = {(where(each).top(), each["listen"]) for each in served if each["outgoing-ttl"]}
        for opened, (address, port, _, _) in self.listener._sockets.items():
            _set_ttl(opened, MAX_TTL if (address, port) in secured else DEFAULT_TTL)
        refused_now = set().union(*refused.values())
        if refused_now != refused_before:
            told = f"{KEYLESS.decode()}{' '.join(sorted(refused_now))}"
            log.critical(lambda: told, "network")
        return good

    def connected(self: Any) -> Iterator[Any]:
        for connection in arrivals(self):
            if connection.local in refused.get(connection.afi, ()):
                connection.close()
                continue
            for key in self._reactor.peers():
                neighbor = self._reactor.neighbor(key)
                same = str(neighbor["peer-address"]) == str(connection.local)
                if same and "listen-any" in options(neighbor):
                    connection.peer = neighbor["local-address"].top()
            yield connection

    arrivals = listener.Listener._connected
    listener.Listener._new_socket, listener.set_accepted_ttl = make_with_keys, accepted
    listener.Listener._connected, listener.md5 = connected, has_its_keys
    loop.Reactor._listen_for_neighbors = for_neighbors


def _keys(neighbors: Iterable[Any], family: Any) -> dict[str, tuple[str, Any]]:
    """The key of each peer that has one: at every port and address, for peers are told apart by
    their addresses alone."""
    return {
        each["peer-address"].top(): (each["md5-password"], each["md5-base64"])
        for each in neighbors
        if each["md5-password"] and each["peer-address"].afi == family
    }


def _set_ttl(opened: socket.socket, hops: int) -> None:
    """The TTL that the socket sends with; connections it accepts begin with it."""
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
    else:
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)


def apply() -> None:
    """All of them, and those of `clock.py`, `sending.py` and `scheduling.py`."""
    clock.apply()
    sending.apply()
    cap_redial_pause()
    exact_hold_timer()
    raw_updates()
    teardown_with_notice()
    removal_with_notice()
    header_errors()
    open_confirm()
    replace_a_dead_session()
    prompt_change()
    no_lost_reload()
    own_keepalive()
    any_source()
    listening()
    scheduling.apply()
