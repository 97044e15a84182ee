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
from typing import Any

from exabgp.bgp.message import Message, Notify
from exabgp.protocol.family import AFI
from exabgp.reactor import peer as peers
from exabgp.reactor.api import API
from exabgp.reactor.api.processes import Processes
from exabgp.reactor.network.connection import Connection
from exabgp.reactor.network.error import NetworkError

from bgp.speaker.exabgp.outbox import Outbox

MOST_WAITING = 32 << 20
"""Octets that may wait for one peer. Then its session ends: CEASE, "out of resources"."""

SEND_HOLD_SECONDS = 480.0
"""For so long a peer may read nothing (RFC 9687), or for two hold times if that is more."""

_READS_A_TURN = 4
_LAST_WORD_SECONDS = 1.0

_sessions: dict[int, Any] = {}
_numbers = itertools.count(1)


def outbox(connection: Any) -> Outbox:
    """What waits for a connection."""
    box = vars(connection).get("outbox")
    if box is None:
        box = connection.outbox = Outbox()
    return box  # type: ignore[no-any-return]


def sessions() -> None:
    """An Established session has a number, tells the agent its terms, and empties its box."""
    main = peers.Peer._main

    def run(self: Any) -> Iterator[Any]:
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

    def up(self: Any, neighbor: Any) -> None:
        if not self.silence:
            for process in self._notify(neighbor, "neighbor-changes"):
                self.write(process, neighbor.greeting, neighbor)

    peers.Peer._main, Processes.up = run, up


def _greeting(number: int, neighbor: Any, negotiated: Any) -> str:
    own = []
    for afi in (AFI.ipv4, AFI.ipv6):
        try:
            own.append(str(neighbor.ip_self(afi)))
        except TypeError:  # a session over IPv4 has no IPv6 address
            own.append("")
    families = [f"{afi} {safi}" for afi, safi in negotiated.families]
    said = {"type": "up", "peer": str(neighbor["peer-address"]), "session": number, "own": own}
    return json.dumps({**said, "families": families, "asn4": bool(negotiated.asn4)})


def _flush(connection: Any, box: Outbox) -> bool:
    try:
        return box.flush(connection.io.send)
    except OSError as error:
        connection.close()
        raise NetworkError(f"Problem while writing data to the network ({error})") from None


def writing() -> None:
    """All that a connection says goes through its box.

    ExaBGP writes a KEEPALIVE into the middle of an UPDATE that a slow peer has read half of, spins
    at a full processor while such a peer does not read, and waits without end to say a last word.
    """

    def writer(self: Any, data: bytes) -> Iterator[bool]:
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

    Connection.writer = writer


def commands() -> None:
    """Commands are ours alone, and a turn takes more than one piece of 16 KiB of them."""
    received = Processes.received

    def process(_: Any, reactor: Any, service: str, command: str) -> bool:
        word, _, rest = command.partition(" ")
        try:
            _COMMANDS[word](rest)
        except (KeyError, ValueError):
            reactor.processes.answer_error(service)
            return False
        reactor.processes.answer_done(service)
        return True

    def read(self: Any) -> Iterator[Any]:
        for _ in range(_READS_A_TURN):
            yield from received(self)

    API.process, Processes.received = process, read


def _nothing(_: str) -> None:
    """It was said to hear the answer."""


def _send(rest: str) -> None:
    text, *numbers = rest.split(" ")
    data = bytes.fromhex(text)
    for number in numbers:
        peer = _sessions.get(int(number))
        if peer is not None and peer.proto is not None:
            box = outbox(peer.proto.connection)
            box.add(data)
            peer.rests_until = 0.0  # `turns.wake`
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
    """A peer that asks for all routes once more (RFC 2918, RFC 7313) asks the agent."""

    def resend(self: Any, enhanced: bool, family: Any = None) -> None:
        number = getattr(self, "number", 0)
        if number not in _sessions or family is None:
            return
        said = {"type": "refresh", "session": number, "enhanced": bool(enhanced)}
        line = json.dumps(
            {**said, "peer": str(self.neighbor["peer-address"]), "family": "{} {}".format(*family)}
        )
        processes = self.reactor.processes
        for process in processes._notify(self.neighbor, "neighbor-changes"):
            processes.write(process, line, self.neighbor)

    peers.Peer.resend = resend


def apply() -> None:
    """All of them; `teardown` is `notifications.teardown_with_notice`'s."""
    sessions()
    writing()
    commands()
    refresh()
