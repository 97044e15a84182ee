"""What a node tells of one traced connection: the lines that `calico-node trace` writes.

Each line is one of these as JSON, with its kind under `type`. `calicoctl trace` joins the lines of
both nodes; a file of them is evidence that can be sent.
Tested in tests/libcalico/test_packet_trace.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from libcalico.errors import NO_DOCUMENT, MuslinError

SOURCE, NODE, DESTINATION, UNKNOWN = "source", "node", "destination", ""
"""The network namespace of an event: the source pod's, the node's own, the destination pod's."""
RECEIVED, SENT, DROPPED = "received", "sent", "dropped"


class Question(msgspec.Struct, frozen=True):
    """The connection that is to be traced. `port` 0: the protocol has none, or any.

    The interfaces are those of pods of this node, empty where an end is none.
    """

    source: str
    destination: str
    protocol: int
    port: int = 0
    source_interface: str = ""
    destination_interface: str = ""


class Head(msgspec.Struct, frozen=True):
    """What the headers of a packet say. `same` is equal for one packet wherever it is seen, also
    when its addresses were translated. `inner`: of an ICMP error, the packet that it is about."""

    source: str
    destination: str
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    flags: str = ""
    icmp_type: int = -1
    icmp_code: int = -1
    ttl: int = 0
    length: int = 0
    mtu: int = 0
    same: str = ""
    inner: Head | None = None


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The watch stands. `boot` names the machine's start: clocks of one are the same clock.

    `rules` says why rules cannot be traced, `drops` why the kernel's reasons cannot; empty: they
    are.
    """

    node: str
    boot: str
    question: Question
    backend: str = ""
    rules: str = ""
    drops: str = ""


class Packet(msgspec.Struct, tag="packet", frozen=True):
    """A packet at one place. `time` in nanoseconds of the node's clock since its start.

    `kind` is received, sent or dropped; `reason` and `function` are the kernel's, of a drop.
    """

    time: int
    place: str
    kind: str
    interface: str
    head: Head
    skb: str = ""
    reason: str = ""
    function: str = ""


class Rule(msgspec.Struct, tag="rule", frozen=True):
    """A packet met a rule (`kind` rule), or the end of a chain (return, policy).

    `number` counts the rules of the chain from 1, 0 where it is gone. `order` counts these lines.
    `head` is the packet's, with the first rule of each hook.
    """

    order: int
    packet: int
    family: str
    table: str
    chain: str
    kind: str
    verdict: str
    target: str = ""
    number: int = 0
    comment: str = ""
    text: str = ""
    in_interface: str = ""
    out_interface: str = ""
    same: str = ""
    head: Head | None = None


class Route(msgspec.Struct, frozen=True):
    """How the node would send on what comes from one end to the other.

    `error` is the kernel's refusal, `kind` the route's type. `protocol` 109 is ours; `peer` is the
    BGP peer that announced it, `since` when its session came up, both empty where none did.
    """

    destination: str
    prefix: str = ""
    kind: str = ""
    gateway: str = ""
    interface: str = ""
    protocol: int = 0
    mtu: int = 0
    error: str = ""
    neighbour: str = ""
    neighbour_mac: str = ""
    peer: str = ""
    since: str = ""


class Link(msgspec.Struct, frozen=True):
    """An interface of the node or of a pod (`place`)."""

    place: str
    name: str
    up: bool
    carrier: bool
    mtu: int
    mac: str = ""
    forwarding: int = 1
    rp_filter: int = 0


class Connection(msgspec.Struct, frozen=True):
    """A connection that conntrack knows: both directions as `source:port > destination:port`."""

    original: str
    reply: str
    state: str = ""
    replied: bool = False


class Facts(msgspec.Struct, tag="facts", frozen=True):
    """What else the node has, looked at when the watch ends.

    `counters` are those of the destination pod's kernel that moved meanwhile; `listening` whether a
    socket of the pod listens on the port, None where that cannot be told. `missing`: what could not
    be read, and why.
    """

    forward: Route | None = None
    back: Route | None = None
    links: list[Link] = []
    connections: list[Connection] = []
    counters: dict[str, int] = {}
    conntrack: tuple[int, int] | None = None
    listening: bool | None = None
    missing: list[str] = []


class Probe(msgspec.Struct, tag="probe", frozen=True):
    """What came of the attempt that was sent from the source: `connected`, `refused`, `answered`,
    `sent`, `timeout`, `unreachable` or `failed`; `seconds` until then."""

    result: str
    seconds: float
    detail: str = ""


class End(msgspec.Struct, tag="end", frozen=True):
    """The watch ended. `lost` events could not be delivered; `cut`: there were too many."""

    lost: int = 0
    cut: bool = False


Line = Ready | Packet | Rule | Facts | Probe | End
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def encode(line: Line) -> bytes:
    """One line, with its end."""
    return _encoder.encode(line) + b"\n"


def decode(text: bytes, where: str) -> Line:
    """A line. Raises MuslinError naming `where` it stands."""
    try:
        return _decoder.decode(text)
    except NO_DOCUMENT as error:
        raise MuslinError(f"{where}: no line of a node's trace: {error}") from None


def decode_all(lines: Iterable[bytes], where: str) -> Iterator[Line]:
    """All lines of a file; empty ones are left out. Raises MuslinError."""
    for number, text in enumerate(lines, 1):
        if text.strip():
            yield decode(text, f"{where}, line {number}")
