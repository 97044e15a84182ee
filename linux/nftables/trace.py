"""Which rules a packet meets: a table of our own marks packets, and the kernel tells their way.

A rule with `meta nftrace set 1` makes the kernel report each rule, jump and verdict that the packet
meets afterwards in this network namespace (NFNLGRP_NFTRACE), also in tables of iptables-nft, which
are tables of nftables. Rules of iptables-legacy are no nftables: they say nothing.
Layout: enum nft_trace_attributes of linux/netfilter/nf_tables.h.

NTR-1: our table is owned by the socket that made it: the kernel removes it when that is closed, by
       us or by our death.
NTR-2: no packet meets another verdict for it: our chains accept, and our rules only mark.
Tested in tests/linux/test_nftables_trace.py.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from linux.closing import Closing
from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import NETLINK_NETFILTER, Socket
from linux.nftables import expressions as x
from linux.nftables import messages
from linux.nftables.connection import Connection
from linux.nftables.expressions import Family, be32
from linux.rtnl import IPAddress

Kind = Literal["rule", "return", "policy", "end"]
_TYPES: dict[int, Kind] = {1: "policy", 2: "return", 3: "rule"}
_GROUP = 9
_TRACE = messages.SUBSYSTEM << 8 | 17
_OWNER = 2
_NFTRACE = 12
_PREROUTING, _OUTPUT = 0, 3
BEFORE_ALL = -450
"""Before iptables' raw (-300) and the defragmentation of packets (-400)."""
PER_SECOND, BURST = 100, 200
(_TABLE, _CHAIN, _HANDLE, _TYPE, _VERDICT, _ID, _LINK, _NETWORK, _TRANSPORT, _IIF) = range(1, 11)
_OIF, _MARK, _POLICY = 12, 14, 16
_CT_STATUS, _CT_STATE = 20, 21
_VERDICTS = {
    0: "drop", 1: "accept", 2: "stolen", 3: "queue", 4: "repeat", -1: "continue", -2: "break",
    -3: "jump", -4: "goto", -5: "return",
}  # fmt: skip
FAMILY_NAMES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}


@dataclass(frozen=True, slots=True)
class Flow:
    """Packets that are to be traced; None is any. The answers to them are traced, too."""

    source: IPAddress | None
    destination: IPAddress | None
    protocol: int
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One message: a packet (`packet` numbers it) met a rule, or the end of a chain: `return` of
    one that was jumped to, `policy` of one with a hook, `end` of either before that.

    `verdict` is `accept`, `drop`, `jump`, `goto`, `return`, `continue`, ...; `target` the chain of
    a jump. `handle` is what the kernel calls the rule. Interfaces by index, 0 where not known.
    `network` and `transport` are heads, sent with the first message of each hook only.
    """

    packet: int
    family: int
    table: str
    chain: str
    kind: Kind
    verdict: str
    target: str
    handle: int
    iif: int
    oif: int
    mark: int
    state: str
    network: bytes
    transport: bytes


class RuleTrace(Closing):
    """Traces the packets of some flows of one family, in the namespace of the thread.

    At most `PER_SECOND` packets a second, after `BURST`, of each flow and direction are marked.
    `lost` counts the times that the kernel could not deliver. Raises `KernelError`.
    """

    def __init__(self, family: Family, flows: Sequence[Flow]) -> None:
        self.table = f"muslin-trace-{os.getpid()}"
        self.lost = 0
        self._family = family
        self._listener = Socket(family=NETLINK_NETFILTER, groups=(_GROUP,))
        try:
            self._listener.setblocking(False)
            self._owner = Connection()
        except BaseException:
            self._listener.close()
            raise
        try:
            self._owner.commit(list(self._requests(flows)))
        except BaseException:
            self.close()
            raise

    def _requests(self, flows: Sequence[Flow]) -> Iterator[bytes]:
        body = m.text(messages.TABLE_NAME, self.table) + be32(messages.TABLE_FLAGS, _OWNER)
        yield messages.request(messages.NEWTABLE, m.NLM_F_CREATE | m.NLM_F_EXCL, self._family, body)
        for name, hook in (("in", _PREROUTING), ("out", _OUTPUT)):
            place = messages.chain_place(self.table, name)
            at = messages.Hook("filter", hook, BEFORE_ALL)
            yield messages.new_chain(self._family, self.table, name, at)
            for flow in flows:
                for match in _matches(self._family, flow):
                    rule = m.nest(messages.RULE_EXPRESSIONS, match + _marking())
                    yield messages.new_rule(self._family, place, rule)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._listener.fileno()

    def read(self) -> Iterator[Step]:
        """What was told since the last call, without the rules of our own table."""
        for datagram in self._listener.read_waiting():
            if datagram is None:
                self.lost += 1
                continue
            for kind, _, _, body in datagram:
                if kind == _TRACE and (step := parse(body)).table != self.table:
                    yield step

    def close(self) -> None:
        """Remove the table; twice is fine."""
        self._listener.close()
        self._owner.close()


def _marking() -> bytes:
    load = x.expression("immediate", be32(1, x.REGISTER), x.value(2, b"\1"))
    mark = x.expression("meta", be32(2, _NFTRACE), be32(3, x.REGISTER))
    return x.limit(PER_SECOND, "second", BURST) + load + mark


def _matches(family: Family, flow: Flow) -> Iterator[bytes]:
    """The conditions of a flow, of its answers, and of ICMP errors to its source."""
    for answer in (False, True):
        parts = []
        for address, source in ((flow.source, not answer), (flow.destination, answer)):
            if address is not None:
                parts.append(x.network(family, source, address.packed, address.max_prefixlen))
        parts.append(x.protocol(flow.protocol))
        if flow.port is not None:
            for part in x.ports(answer, [(flow.port, flow.port)]):
                assert isinstance(part, bytes)
                parts.append(part)
        yield b"".join(parts)
    if flow.source is not None:
        packed, length = flow.source.packed, flow.source.max_prefixlen
        to_source = x.network(family, False, packed, length)
        for kind in (3, 11) if family == 4 else (1, 2, 3):
            protocol = x.protocol(1 if family == 4 else 58)
            yield to_source + protocol + x.icmp(kind, None)


def parse(body: bytes) -> Step:
    """A message without its netlink header."""
    a = m.parse_attributes(body, 4)
    verdict = m.parse_attributes(a.get(_VERDICT, b""))
    code = struct.unpack(">i", verdict[1])[0] if 1 in verdict else None
    if code is None and _POLICY in a:
        code = int.from_bytes(a[_POLICY], "big")
    state = int.from_bytes(a.get(_CT_STATE, b""), "big")
    kind = _TYPES.get(_number(a.get(_TYPE)), "rule")
    return Step(
        _number(a.get(_ID)),
        body[0],
        m.as_text(a.get(_TABLE, b"")),
        m.as_text(a.get(_CHAIN, b"")),
        kind if kind != "rule" or _HANDLE in a else "end",
        "" if code is None else _VERDICTS.get(code, str(code)),
        m.as_text(verdict.get(2, b"")),
        _number(a.get(_HANDLE)),
        _number(a.get(_IIF)),
        _number(a.get(_OIF)),
        _number(a.get(_MARK)),
        next((name.lower() for name, bit in x.CT_STATES.items() if bit & state), ""),
        a.get(_NETWORK, b""),
        a.get(_TRANSPORT, b""),
    )


def _number(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "big")


@dataclass(frozen=True, slots=True)
class RulePlace:
    """Where a rule stands: its number in the chain, from 1, and the comment that it carries."""

    number: int
    comment: str


def places(connection: Connection, family: int, table: str, chain: str) -> dict[int, RulePlace]:
    """The rules of a chain by handle; none where it is gone. `family` as in `Step`."""
    body = struct.pack(">BBH", family, 0, 0) + messages.chain_place(table, chain)
    request = m.message(messages.SUBSYSTEM << 8 | messages.GETRULE, 0, body)
    try:
        answers = connection.dump(request, f"list {chain}")
    except KernelError:
        return {}
    by_handle: dict[int, RulePlace] = {}
    for _, answer in answers:
        rule = m.parse_attributes(answer, 4)
        if m.as_text(rule.get(messages.RULE_CHAIN, b"")) != chain:
            continue
        comment = _comment(rule)
        by_handle[_number(rule.get(messages.RULE_HANDLE))] = RulePlace(len(by_handle) + 1, comment)
    return by_handle


def _comment(rule: m.Attributes) -> str:
    """The comment in a rule's user data, or in iptables' match of that name."""
    comment = messages.read_comment(rule.get(messages.RULE_USERDATA, b""))
    if comment:
        return comment
    for _, data in m.iterate_attributes(rule.get(messages.RULE_EXPRESSIONS, b"")):
        expression = m.parse_attributes(data)
        if m.as_text(expression.get(1, b"")) == "match":
            match = m.parse_attributes(expression.get(2, b""))
            if m.as_text(match.get(1, b"")) == "comment":
                text = m.as_text(match.get(3, b"").partition(b"\0")[0] + b"\0")
                comment = f"{comment}; {text}" if comment else text
    return comment
