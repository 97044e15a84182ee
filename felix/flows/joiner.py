"""Connections of this node's pods, joined with what decided about them, and added up as flows.

Pure: packets that rules told of come in (`hear`), connections with their counters (`counted`),
connections that ended (`ended`); every interval flows go out (`flush`). One connection between two
pods of a node is two flows, one as each end reports it.

A connection is known by its first packet (`linux.tracking.connections.key_of`). Its trace grows
by what rules say, until one of them allows or denies. A connection that is allowed then appears
among the kernel's connections, and only there it is known to which service it was aimed; so it is
put into its flow when it is seen there, at the latest at the end of the interval. What is denied is
never there: its packets are counted as they are told of.

Invariants:
  JON-1  The packets and bytes of all flows are those that were told of and counted, each once,
         however often a connection is counted.
  JON-2  A connection starts once and completes once; in every flow started - completed of all time
         is `live`.
  JON-3  At most `most` connections and `most` flows are held. What is beyond is counted in `lost`.
Tested in tests/felix/flows/test_joiner.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from felix.flows.ends import Known
from flows.record import Action, Counts, Flow, Hit, Key, Reporter, Service, Trace, common
from libcalico.model import ResourceKey
from linux.tracking import connections
from linux.tracking.connections import Connection

MOST = 100_000
"""Connections that are held, some 500 bytes each; and flows of one interval."""
FORGOTTEN = 60.0
"""Seconds for which a connection that was denied, or never seen in the kernel, is the same one."""
SOON = 2.0
"""Seconds after which the kernel has what it will ever have of a connection."""
STEP = 200
"""Connections that are worked on before others have their turn."""
NO_SERVICE = Service()
_PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6", 132: "sctp", 136: "udplite"}


class Facts(Protocol):
    """What is known of addresses, policies and services now."""

    def known(self, address: bytes) -> Known:
        """What is at an address."""

    def judges(self, prefix: str, endpoint: ResourceKey) -> bool:
        """Whether a rule that said this is one of the endpoint's."""

    def enforced(self, prefixes: Sequence[str], endpoint: ResourceKey) -> tuple[Hit, ...]:
        """The trace of what rules said."""

    def pending(
        self, endpoint: ResourceKey, key: connections.Key, *, ingress: bool
    ) -> tuple[Hit, ...]:
        """The trace as if staged policies were enforced."""

    def service(self, address: bytes, port: int, protocol: int) -> Service:
        """The service that has an address and port; an empty one for none."""


@dataclass(slots=True, eq=False)
class _Sum:
    """A flow of this interval as it grows. `there`, `back`: packets and bytes from the source to
    the destination, and the answers."""

    key: Key
    source_labels: tuple[str, ...]
    destination_labels: tuple[str, ...]
    there: list[int] = field(default_factory=lambda: [0, 0])
    back: list[int] = field(default_factory=lambda: [0, 0])
    started: int = 0
    completed: int = 0
    live: int = 0

    @property
    def empty(self) -> bool:
        return not (self.started or self.completed or self.live or self.there[0] or self.back[0])


@dataclass(slots=True, eq=False)
class _Leg:
    """A connection at one of its ends, an endpoint of this node.

    `packets`, `bytes`: told of and not yet counted. `counted`: packets and bytes there and back
    that are in a flow already. `flow`: where it is live; `noted`: it started and completed at once.
    """

    prefixes: tuple[str, ...]
    denied: bool
    packets: int = 0
    bytes: int = 0
    counted: tuple[int, int, int, int] = (0, 0, 0, 0)
    flow: _Sum | None = None
    noted: bool = False


@dataclass(slots=True, eq=False)
class _Held:
    """A connection; `heard_at`: when a rule told of it last, `seen`: the round that counted it."""

    key: bytes
    source: Known
    destination: Known
    heard_at: float
    legs: dict[bool, _Leg] = field(default_factory=dict)
    passed: dict[bool, tuple[str, ...]] = field(default_factory=dict)
    service: Service = NO_SERVICE
    seen: int = 0


@dataclass(slots=True)
class Lost:
    """What flows lack, in numbers since the start.

    `connections`, `flows`: beyond the limits. `packets`: those that rules told of in vain.
    `endings`: connections of whose end the kernel could not tell, at least so many.
    `pending`: connections whose pending trace there was no time for.
    """

    connections: int = 0
    flows: int = 0
    packets: int = 0
    endings: int = 0
    pending: int = 0


class Joiner:
    """The connections of one node. `pending`: whether pending traces are wanted."""

    def __init__(
        self, facts: Facts, lost: Lost | None = None, *, most: int = MOST, pending: bool = True
    ) -> None:
        self._facts, self._most, self.pending = facts, most, pending
        self._held: dict[bytes, _Held] = {}
        self._flows: dict[Key, _Sum] = {}
        self._round = 1
        self.lost = lost or Lost()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: bytes) -> bool:
        return key in self._held

    @property
    def flows(self) -> int:
        """Flows of this interval so far."""
        return len(self._flows)

    # -- what comes in -------------------------------------------------------------------------

    def hear(self, payload: bytes, prefix: str, now: float, *, ingress: bool) -> None:
        """A rule told of a packet that began a connection, or tried to; `now` in seconds of a
        monotonic clock.
        """
        packet = connections.of_packet(payload)
        if packet is None:
            return
        key, length = packet
        entry = self._held.get(key)
        new = entry is None
        if entry is None:
            read = connections.read_key(key)
            source, destination = map(self._facts.known, (read.source, read.destination))
            entry = _Held(key, source, destination, now)
        endpoint = (entry.destination if ingress else entry.source).endpoint
        if endpoint is None or not self._facts.judges(prefix, endpoint):
            return
        verdict = prefix[0]
        stored = not new or self._store(entry, denied=verdict == "D")
        entry.heard_at = now
        prefixes = (*entry.passed.pop(ingress, ()), prefix)
        if verdict == "P":
            entry.passed[ingress] = prefixes
            return
        leg = entry.legs.get(ingress)
        if leg is None or leg.prefixes != prefixes:
            if leg is not None:
                self._end_leg(entry, leg, ingress)
            leg = entry.legs[ingress] = _Leg(prefixes, verdict == "D")
        leg.packets += 1
        leg.bytes += length
        if not stored:
            self._note(entry, leg, ingress)

    def _store(self, entry: _Held, *, denied: bool) -> bool:
        """Hold a new connection if there is room; what was denied leaves half of it to others."""
        if len(self._held) < (self._most // 2 if denied else self._most):
            self._held[entry.key] = entry
            return True
        # Of what is denied nothing more is to come: no count lacks.
        self.lost.connections += not denied
        return False

    def counted(self, connection: Connection) -> None:
        """The kernel's word on a connection; of one that no rule told of there is no trace."""
        entry = self._held.get(connection.key)
        if entry is None:
            return
        self._see(entry, connection)
        if connection.over:
            self._finish(entry)

    def ended(self, connection: Connection) -> None:
        """The kernel's last word on a connection."""
        entry = self._held.get(connection.key)
        if entry is not None:
            self._see(entry, connection)
            self._finish(entry)

    def _see(self, entry: _Held, connection: Connection) -> None:
        if not entry.seen and connection.translated:
            protocol = connections.read_key(connection.key).protocol
            entry.service = self._facts.service(connection.aimed, connection.aimed_port, protocol)
        entry.seen = self._round
        for ingress, leg in entry.legs.items():
            if leg.denied:
                self._note(entry, leg, ingress)
            else:
                self._count(entry, leg, ingress, connection)

    def _count(self, entry: _Held, leg: _Leg, ingress: bool, connection: Connection) -> None:
        """Count what a live connection had since it was counted last."""
        if leg.noted:
            # It has started and completed already: the kernel lists none that is about to go.
            flow = self._flow_of(self._key(entry, leg, ingress), entry)
        else:
            flow = self._live(entry, leg, ingress)
        new = leg.packets, leg.bytes
        leg.packets = leg.bytes = 0
        if connection.packets is None or connection.bytes is None:
            # Nothing but the rules counts.
            news = (*new, 0, 0)
        else:
            totals = (
                connection.packets,
                connection.bytes,
                connection.packets_back,
                connection.bytes_back,
            )
            there, octets, back, octets_back = map(_grown, totals, leg.counted)
            news, leg.counted = (there, octets, back, octets_back), totals
        if flow is not None:
            _add(flow, news)

    # -- flows ---------------------------------------------------------------------------------

    def _live(self, entry: _Held, leg: _Leg, ingress: bool) -> _Sum | None:
        """The flow in which a connection is live; None where there is no room for it."""
        if leg.flow is None:
            leg.flow = self._flow_of(self._key(entry, leg, ingress), entry)
            if leg.flow is not None:
                leg.flow.started += 1
                leg.flow.live += 1
        return leg.flow

    def _note(self, entry: _Held, leg: _Leg, ingress: bool) -> None:
        """Count what was denied, or what the kernel never had: it is over as soon as it began."""
        packets, octets = leg.packets, leg.bytes
        leg.packets = leg.bytes = 0
        if not packets:
            return
        flow = self._flow_of(self._key(entry, leg, ingress), entry)
        if flow is None:
            return
        _add(flow, (packets, octets, 0, 0))
        if not leg.noted:
            flow.started += 1
            flow.completed += 1
            leg.noted = True
        # Should the kernel have it after all, these are among its counts.
        leg.counted = (leg.counted[0] + packets, leg.counted[1] + octets, 0, 0)

    def _flow_of(self, key: Key, entry: _Held) -> _Sum | None:
        flow = self._flows.get(key)
        labels = entry.source.labels, entry.destination.labels
        if flow is None:
            if len(self._flows) >= self._most:
                self.lost.flows += 1
                return None
            flow = self._flows[key] = _Sum(key, *labels)
        elif (flow.source_labels, flow.destination_labels) != labels:
            flow.source_labels = common(flow.source_labels, labels[0])
            flow.destination_labels = common(flow.destination_labels, labels[1])
        return flow

    def _key(self, entry: _Held, leg: _Leg, ingress: bool) -> Key:
        read = connections.read_key(entry.key)
        endpoint = (entry.destination if ingress else entry.source).endpoint
        assert endpoint is not None
        pending = self._facts.pending(endpoint, read, ingress=ingress) if self.pending else ()
        return Key(
            entry.source.end,
            entry.destination.end,
            read.destination_port,
            _PROTOCOLS.get(read.protocol, str(read.protocol)),
            Reporter.DESTINATION if ingress else Reporter.SOURCE,
            Action.DENY if leg.denied else Action.ALLOW,
            entry.service,
            Trace(self._facts.enforced(leg.prefixes, endpoint), pending),
        )

    def _end_leg(self, entry: _Held, leg: _Leg, ingress: bool) -> None:
        if leg.flow is None:
            self._note(entry, leg, ingress)
            return
        leg.flow.completed += 1
        leg.flow.live -= 1
        leg.flow = None

    def _finish(self, entry: _Held) -> None:
        del self._held[entry.key]
        for ingress, leg in entry.legs.items():
            self._end_leg(entry, leg, ingress)

    # -- the end of an interval ----------------------------------------------------------------

    def all_counted(self, now: float) -> Iterator[None]:
        """All connections of the kernel were counted since the last call: finish, in steps, those
        that it had no more twice, and note those that it does not have.
        """
        here, self._round = self._round, self._round + 1
        for number, entry in enumerate(list(self._held.values())):
            if number % STEP == STEP - 1:
                yield
            if self._held.get(entry.key) is not entry:
                continue
            quiet = now - entry.heard_at
            # One that the list leaves out may have expired: its end is told of soon.
            if entry.seen < here - 1 if entry.seen else quiet >= FORGOTTEN:
                self._finish(entry)
            elif not entry.seen:
                for ingress, leg in entry.legs.items():
                    if leg.denied or quiet >= SOON:
                        self._note(entry, leg, ingress)

    def reconsidered(self) -> Iterator[None]:
        """Policies changed: put each connection, in steps, where its pending trace belongs now."""
        for number, entry in enumerate(list(self._held.values())):
            if number % STEP == STEP - 1:
                yield
            for ingress, leg in entry.legs.items():
                if leg.flow is None:
                    continue
                endpoint = (entry.destination if ingress else entry.source).endpoint
                assert endpoint is not None
                read = connections.read_key(entry.key)
                pending = self._facts.pending(endpoint, read, ingress=ingress)
                if pending != leg.flow.key.trace.pending:
                    self._move(entry, leg, pending)

    def _move(self, entry: _Held, leg: _Leg, pending: tuple[Hit, ...]) -> None:
        """Put a connection into another flow: it completes in one, and starts in the other."""
        assert leg.flow is not None
        trace = Trace(leg.flow.key.trace.enforced, pending)
        leg.flow.completed += 1
        leg.flow.live -= 1
        leg.flow = self._flow_of(msgspec.structs.replace(leg.flow.key, trace=trace), entry)
        if leg.flow is not None:
            leg.flow.started += 1
            leg.flow.live += 1

    def flushing(self, start: int, end: int) -> Iterator[list[Flow]]:
        """The flows from `start` to `end`, in seconds since 1970, some at a time.

        What comes between two steps is for the next interval, or for this one: never for both.
        """
        batch: list[Flow] = []
        for key, one in list(self._flows.items()):
            if not one.empty:
                batch.append(_flow(one, start, end))
            one.there, one.back, one.started, one.completed = [0, 0], [0, 0], 0, 0
            if not one.live:
                del self._flows[key]
            if len(batch) >= STEP:
                yield batch
                batch = []
        yield batch


def _grown(now: int, before: int) -> int:
    return max(now - before, 0)


def _add(flow: _Sum, news: Sequence[int]) -> None:
    flow.there[0] += news[0]
    flow.there[1] += news[1]
    flow.back[0] += news[2]
    flow.back[1] += news[3]


def _flow(one: _Sum, start: int, end: int) -> Flow:
    outward = one.key.reporter is Reporter.SOURCE
    into, out = (one.back, one.there) if outward else (one.there, one.back)
    counts = Counts(
        packets_in=into[0],
        packets_out=out[0],
        bytes_in=into[1],
        bytes_out=out[1],
        started=one.started,
        completed=one.completed,
        live=one.live,
    )
    return Flow(one.key, start, end, counts, one.source_labels, one.destination_labels)
