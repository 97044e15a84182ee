"""How a session sends: bytes that the agent wrote, in order, no faster than the peer reads.

ExaBGP parses each route from text, keeps it in a table for each peer, and writes UPDATEs from
that: 0.3 ms of processor time and 2 kB for each route and peer. Here the agent writes the UPDATEs,
once for all peers of equal terms (`bgp.speaker.encoding`), and ExaBGP hands the bytes over. Its
tables stay empty.

Commands, one a line, each answered by `done` or `error`:

    send HEX SESSION...   whole messages, for these sessions; of one that has ended: nothing
    end CODE SESSION      NOTIFICATION (CODE 6004 is 6/4) and the end of a session
    ping                  nothing

`SESSION` is a number of its own for each Established session, told with its beginning. So what was
meant for one session is never said to the next.

Applied by `patches.apply`; proved in tests/bgp/test_sending.py. Standard library and ExaBGP only.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator

from exabgp.bgp.message import Message, Notify
from exabgp.protocol.family import AFI
from exabgp.reactor import peer as peers
from exabgp.reactor.api import API, processes
from exabgp.reactor.network import connection as connections
from exabgp.reactor.network.error import NetworkError

from bgp.speaker.exabgp.outbox import Outbox
from bgp.speaker.exabgp.upstream.exabgp_types import (
    ConnectedPeer,
    Connection,
    Negotiated,
    Neighbor,
    Peer,
    Processes,
    Reactor,
)

MOST_WAITING = 32 << 20
"""Octets that may wait for one peer. Then its session ends: CEASE, "out of resources"."""

SEND_HOLD_SECONDS = 480.0
"""For so long a peer may read nothing (RFC 9687), or for two hold times if that is more."""

_READS_A_TURN = 4
_LAST_WORD_SECONDS = 1.0

_sessions: dict[int, ConnectedPeer] = {}
_numbers = itertools.count(1)


def outbox(connection: Connection) -> Outbox:
    """The messages that wait for a connection."""
    if "outbox" not in vars(connection):
        connection.outbox = Outbox()
    box: Outbox = connection.outbox
    return box


def sessions() -> None:
    """An Established session has a number, tells the agent its terms, and empties its box.

    Upstream: a session has no number, and its `up` says nothing of what the OPENs agreed on.
    Fails without it: test_sending.py, test_what_both_sides_carry.
    Remove when: the API names a session, reports its terms and takes whole UPDATEs.
    """
    main = peers.Peer._main

    def run(self: ConnectedPeer) -> Iterator[object]:
        number, connection = next(_numbers), self.proto.connection
        box = outbox(connection)
        limit = max(SEND_HOLD_SECONDS, 2.0 * self.proto.negotiated.holdtime)
        self.neighbor.greeting = _greeting(number, self.neighbor, self.proto.negotiated)
        self.number = number
        _sessions[number] = self
        box.driven = True
        try:
            for action in main(self):
                if box and connection.io is not None:
                    more = _flush(connection, box)
                    if box.stuck() > limit:
                        raise Notify(8, 0, "the peer reads nothing")
                    yield peers.ACTION.NOW if more else action
                else:
                    yield action
        finally:
            del _sessions[number]

    def up(self: Processes, neighbor: Neighbor) -> None:
        if not self.silence:
            for process in self._notify(neighbor, "neighbor-changes"):
                self.write(process, neighbor.greeting, neighbor)

    peers.Peer._main, processes.Processes.up = run, up


def _greeting(number: int, neighbor: Neighbor, negotiated: Negotiated) -> str:
    own = []
    for afi in (AFI.ipv4, AFI.ipv6):
        try:
            own.append(str(neighbor.ip_self(afi)))
        except TypeError:  # a session over IPv4 has no IPv6 address
            own.append("")
    families = [f"{afi} {safi}" for afi, safi in negotiated.families]
    said = {"type": "up", "peer": str(neighbor["peer-address"]), "session": number, "own": own}
    return json.dumps({**said, "families": families, "asn4": bool(negotiated.asn4)})


def _flush(connection: Connection, box: Outbox) -> bool:
    try:
        return box.flush(connection.io.send)
    except OSError as error:
        connection.close()
        raise NetworkError(f"Problem while writing data to the network ({error})") from None


def writing() -> None:
    """Every message of a connection goes through its box.

    Upstream: a KEEPALIVE is written into the middle of an UPDATE that a slow peer has read half
        of, a peer that does not read costs a full processor, and a last NOTIFICATION waits for it
        without end.
    Fails without it: test_sending.py, test_a_peer_that_reads_slowly.
    Remove when: ExaBGP queues whole messages for each connection, and gives up the last one.
    """

    def writer(self: Connection, data: bytes) -> Iterator[bool]:
        if self.io:
            box = outbox(self)
            box.urge(data)
            last = data[18] == Message.CODE.NOTIFICATION
            if last:
                box.drop()
            end = time.monotonic() + _LAST_WORD_SECONDS
            while box and (last or not box.driven):
                _flush(self, box)
                if not box or time.monotonic() >= end:
                    break
                yield False
        yield True

    connections.Connection.writer = writer


def commands() -> None:
    """Commands are ours alone, and a turn takes more than one piece of 16 KiB of them.

    Upstream: a route is a line of text for each peer, and a turn reads one piece of 16 KiB.
    Fails without it: test_sending.py, test_what_both_sides_carry.
    Remove when: the API takes whole UPDATEs for several sessions at once.
    """
    received = processes.Processes.received

    def process(_: object, reactor: Reactor, service: str, command: str) -> bool:
        word, _, rest = command.partition(" ")
        try:
            _COMMANDS[word](rest)
        except (KeyError, ValueError):
            reactor.processes.answer_error(service)
            return False
        reactor.processes.answer_done(service)
        return True

    def read(self: Processes) -> Iterator[object]:
        for _ in range(_READS_A_TURN):
            yield from received(self)

    API.process, processes.Processes.received = process, read


def _nothing(_: str) -> None:
    """The command `ping` has no effect but its answer."""


def _send(rest: str) -> None:
    text, *numbers = rest.split(" ")
    data = bytes.fromhex(text)
    for number in numbers:
        peer = _sessions.get(int(number))
        if peer is not None and peer.proto is not None:
            box = outbox(peer.proto.connection)
            box.add(data)
            peer.rests_until = 0.0  # `scheduling.wake`
            if box.size > MOST_WAITING:
                box.drop()
                peer.teardown(6008)


def _end(rest: str) -> None:
    code, number = map(int, rest.split(" "))
    peer = _sessions.get(number)
    if peer is not None:
        peer.teardown(code)


_COMMANDS: dict[str, Callable[[str], None]] = {"send": _send, "end": _end, "ping": _nothing}


def refresh() -> None:
    """A peer that asks for all routes once more (RFC 2918, RFC 7313) asks the agent.

    Upstream: ExaBGP answers from its own tables, which `sending` leaves empty.
    Fails without it: test_sending.py, test_a_peer_asks_for_all_once_more.
    Remove when: the API process can answer a ROUTE-REFRESH.
    """

    def resend(self: Peer, enhanced: bool, family: tuple[object, object] | None = None) -> None:
        number = getattr(self, "number", 0)
        if number not in _sessions or family is None:
            return
        said = {"type": "refresh", "session": number, "enhanced": bool(enhanced)}
        line = json.dumps(
            {**said, "peer": str(self.neighbor["peer-address"]), "family": "{} {}".format(*family)}
        )
        agent = self.reactor.processes
        for process in agent._notify(self.neighbor, "neighbor-changes"):
            agent.write(process, line, self.neighbor)

    peers.Peer.resend = resend


def apply() -> None:
    """All of them; `teardown` is `notifications.teardown_with_notice`'s."""
    sessions()
    writing()
    commands()
    refresh()
