"""Queueing disciplines: a token bucket on a link, and a way through another link for what comes in.

    bucket(8, TokenBucket(...))   tc qdisc replace dev IF root handle ca11: tbf rate ...
    detour(8, 12)                 tc qdisc add dev IF ingress; tc filter ... mirred redirect dev IFB

The kernel queues only what it sends. What a link receives is therefore led through an `ifb`, which
"sends" it and hands it back as received by the first link (linux/Documentation/networking/ifb).
Builders return messages for `Socket.transact`. pyroute2 knows no rates above 32 bits and no peak.

Source: linux/pkt_sched.h, linux/pkt_cls.h, linux/tc_act/tc_mirred.h, net/sched/sch_tbf.c.
Tested in tests/linux/test_traffic_control.py.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from socket import AF_UNSPEC, htons

from linux.netlink import wire as m
from linux.netlink.socket import Socket

HANDLE = 0xCA11 << 16
"""Of our buckets, so that those of others are known as such."""
_NEWQDISC, _DELQDISC, _GETQDISC = 36, 37, 38
_NEWTFILTER = 44
_TCMSG = struct.Struct("=BxxxiIII")
_ROOT, _INGRESS, _INGRESS_HANDLE = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFF << 16
_KIND, _OPTIONS = 1, 2
_PARAMETERS, _RATE64, _PEAK64 = 1, 4, 5
_RATE = struct.Struct("=BBHhHI")
_REST = struct.Struct("=III")
_ETHERNET = 1
_TICK_NS = 64
_MOST = 0xFFFFFFFF
_SELECTOR, _ACTIONS = 5, 7
_EVERYTHING = struct.pack("=BBBxHHHhI", 1, 0, 1, 0, 0, 0, 0, 0) + bytes(16)
_ACTION_KIND, _ACTION_OPTIONS, _MIRRED_PARAMETERS = 1, 2, 2
_STOLEN, _REDIRECT = 4, 1
_ALL_PROTOCOLS, _FIRST = 3, 1


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """As the kernel keeps it: rates in bytes a second, `limit` bytes that wait.

    `burst` and `least_burst` in ticks of 64 ns: the time that they take at `rate`, at `peak`.
    """

    rate: int
    burst: int
    limit: int
    peak: int = 0
    least_burst: int = 0


@dataclass(frozen=True, slots=True)
class Queue:
    """A queueing discipline of a link. `bucket` None: it is none, or cannot be read."""

    link: int
    kind: str
    handle: int
    root: bool
    bucket: TokenBucket | None = None

    @property
    def ours(self) -> bool:
        """Whether it is a bucket that this module made."""
        return self.root and self.kind == "tbf" and self.handle == HANDLE


def ticks(size: int, rate: int) -> int:
    """The time that so many bytes take at a rate in bytes a second, as far as the kernel counts.

    Rounded up: no time at all is refused.
    """
    return min(-(-size * 1_000_000_000 // (rate * _TICK_NS)), _MOST)


def dump(sock: Socket) -> list[Queue]:
    """All queueing disciplines of the socket's namespace. Raises `KernelError`."""
    body = _TCMSG.pack(AF_UNSPEC, 0, 0, 0, 0)
    answers = sock.dump(m.message(_GETQDISC, 0, body), "list queueing disciplines")
    return [decode(answer) for _, answer in answers]


def decode(body: bytes) -> Queue:
    """A queueing discipline, from the body of a message."""
    _, link, handle, parent, _ = _TCMSG.unpack_from(body)
    kind = m.as_text(m.first_attribute(body, _KIND, _TCMSG.size) or b"")
    options = m.first_attribute(body, _OPTIONS, _TCMSG.size)
    bucket = _bucket_of(options) if kind == "tbf" and options else None
    return Queue(link, kind, handle, parent == _ROOT, bucket)


def bucket(link: int, wanted: TokenBucket) -> bytes:
    """Make or change the bucket at a link's root; one of others is replaced."""
    parameters = (
        _rate(wanted.rate)
        + _rate(wanted.peak)
        + _REST.pack(wanted.limit, wanted.burst, wanted.least_burst)
    )
    options = m.nest(
        _OPTIONS,
        m.attribute(_PARAMETERS, parameters),
        m.attribute(_RATE64, struct.pack("=Q", wanted.rate)) if wanted.rate > _MOST else b"",
        m.attribute(_PEAK64, struct.pack("=Q", wanted.peak)) if wanted.peak > _MOST else b"",
    )
    body = _TCMSG.pack(AF_UNSPEC, link, HANDLE, _ROOT, 0) + m.text(_KIND, "tbf") + options
    return m.message(_NEWQDISC, m.NLM_F_CREATE | m.NLM_F_REPLACE, body)


def no_bucket(link: int) -> bytes:
    """Take our bucket away; the link gets the kernel's own back. ENOENT or EINVAL: it had none."""
    return m.message(_DELQDISC, 0, _TCMSG.pack(AF_UNSPEC, link, HANDLE, _ROOT, 0))


def detour(link: int, by: int) -> list[bytes]:
    """Lead what a link receives through the link `by`. EEXIST: it goes a way already."""
    head = AF_UNSPEC, link, _INGRESS_HANDLE, _INGRESS, 0
    mirred = struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _REDIRECT, by)
    action = m.nest(
        1,
        m.text(_ACTION_KIND, "mirred"),
        m.nest(_ACTION_OPTIONS, m.attribute(_MIRRED_PARAMETERS, mirred)),
    )
    options = m.nest(_OPTIONS, m.attribute(_SELECTOR, _EVERYTHING), m.nest(_ACTIONS, action))
    order = _FIRST << 16 | htons(_ALL_PROTOCOLS)
    match = _TCMSG.pack(AF_UNSPEC, link, 0, _INGRESS_HANDLE, order)
    create = m.NLM_F_CREATE | m.NLM_F_EXCL
    return [
        m.message(_NEWQDISC, create, _TCMSG.pack(*head) + m.text(_KIND, "ingress")),
        m.message(_NEWTFILTER, create, match + m.text(_KIND, "u32") + options),
    ]


def no_detour(link: int) -> bytes:
    """What a link receives goes no way of its own any more. ENOENT or EINVAL: it went none."""
    return m.message(_DELQDISC, 0, _TCMSG.pack(AF_UNSPEC, link, _INGRESS_HANDLE, _INGRESS, 0))


def _rate(value: int) -> bytes:
    return _RATE.pack(0, _ETHERNET if value else 0, 0, 0, 0, min(value, _MOST))


def _bucket_of(options: bytes) -> TokenBucket | None:
    parameters = m.first_attribute(options, _PARAMETERS, 0)
    if parameters is None or len(parameters) < 2 * _RATE.size + _REST.size:
        return None
    rate = _RATE.unpack_from(parameters)[-1]
    peak = _RATE.unpack_from(parameters, _RATE.size)[-1]
    limit, burst, least = _REST.unpack_from(parameters, 2 * _RATE.size)
    rate64, peak64 = (m.first_attribute(options, kind, 0) for kind in (_RATE64, _PEAK64))
    return TokenBucket(
        m.as_uint(rate64) if rate64 else rate,
        burst,
        limit,
        m.as_uint(peak64) if peak64 else peak,
        least,
    )
