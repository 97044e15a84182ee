"""Messages of `node.sock` between felix and `calicoctl`: verdicts on packets, and denied packets.

`libcalico.local.node_api` has the other messages.
Tested in tests/libcalico/test_framing.py and tests/felix/agent/test_node_server.py.
"""

from __future__ import annotations

import msgspec


class Station(msgspec.Struct, frozen=True):
    """A place where a packet is judged: an endpoint of the node, in one stage and direction.

    `stage` is `normal`, `untracked`, `preDNAT` or `forward`; `table` and `chain` name the rules
    that are to be counted, if any.
    """

    kind: str
    namespace: str
    name: str
    stage: str
    ingress: bool
    table: str = ""
    chain: str = ""


class Ask(msgspec.Struct, tag="ask", frozen=True):
    """What does felix decide about this packet at these stations?"""

    id: int
    source: str
    destination: str
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    icmp_type: int = 0
    icmp_code: int = 0
    stations: list[Station] = []


class Decided(msgspec.Struct, frozen=True):
    """One station's answer, `unknown` where felix has no such endpoint.

    `policy` is kind, namespace and name; `rule` counts resolved rules from 0. `rules` are
    packets and bytes of each rule of the chain, None where the kernel has no such chain;
    `stands`: the chain is as felix wants it. `differs`: how else the kernel, or what felix follows,
    is not as it should be for this endpoint.
    """

    unknown: bool = False
    allowed: bool | None = None
    by: str = ""
    tier: str = ""
    policy: list[str] = []
    rule: int | None = None
    rules: list[tuple[int, int]] | None = None
    stands: bool = False
    differs: list[str] = []


class Told(msgspec.Struct, tag="told", frozen=True):
    """The answer to the `Ask` of this id. `ready`: felix has programmed what it knows."""

    id: int
    node: str
    ready: bool = False
    backend: str = ""
    decided: list[Decided] = []
    error: str = ""


class WatchDrops(msgspec.Struct, tag="watch_drops", frozen=True):
    """Tell of denied packets from now on, until this connection ends."""


class Watching(msgspec.Struct, tag="watching", frozen=True):
    """The rules that tell stand; or `error` says why nothing will be told."""

    node: str
    error: str = ""


class Denier(msgspec.Struct, frozen=True):
    """The denier: a rule of a policy or profile, or (without `kind`) the end of `tier` or of all
    profiles. `rule` is the number of the written rule, from 0, where there is one."""

    ingress: bool
    tier: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    rule: int | None = None


class Dropped(msgspec.Struct, tag="dropped", frozen=True):
    """A denied packet. Pods are named as namespace/name where this node has them.

    `lost` counts packets that could not be told of before this one.
    """

    time: float
    by: Denier
    source: str
    destination: str
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    icmp_type: int = 0
    icmp_code: int = 0
    source_pod: str = ""
    destination_pod: str = ""
    in_interface: str = ""
    out_interface: str = ""
    lost: int = 0


class CountDrops(msgspec.Struct, tag="count_drops", frozen=True):
    """Ask how many packets were denied so far, by each denier."""

    id: int


class DropCount(msgspec.Struct, frozen=True):
    """Packets that one rule, tier's end or profiles' end has denied; `endpoint`: of which pod."""

    by: Denier
    packets: int
    bytes: int
    version: int
    endpoint: str = ""


class DropCounts(msgspec.Struct, tag="drop_counts", frozen=True):
    """The answer to the `CountDrops` of this id."""

    id: int
    node: str
    counts: list[DropCount] = []
    error: str = ""
