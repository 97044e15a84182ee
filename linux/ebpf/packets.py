"""Where packets of a few addresses come in, go out and are dropped, on this whole machine.

Programs at three raw tracepoints (`netif_receive_skb`, `net_dev_start_xmit`, `kfree_skb`) look at
every packet and report those from or to one of some addresses: time, device, network namespace,
the head of the packet, and of a dropped one the kernel's reason and the place in its code. Raw
tracepoints need no kprobes and no tracefs; offsets come from BTF.

PKT-1: closing the watch, or the death of the process, detaches the programs.
PKT-2: what did not fit the ring is counted in `lost`.
Tested in tests/linux/test_ebpf.py.
"""

from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from linux.closing import Closing
from linux.ebpf import calls
from linux.ebpf.assembler import R0, R1, R2, R3, R4, R6, R7, R8, R9, R10, Program
from linux.ebpf.btf import Btf
from linux.ebpf.ring import Ring
from linux.errors import KernelError
from linux.rtnl import IPAddress

RECEIVED, SENT, DROPPED = 1, 2, 3
TRACEPOINTS = {RECEIVED: "netif_receive_skb", SENT: "net_dev_start_xmit", DROPPED: "kfree_skb"}
RING = 1 << 18
MOST_ADDRESSES = 16
COPY = 112
"""Bytes of a packet: an error of ICMPv6, and the headers of what it is about."""
_EVENT = struct.Struct(f"=QQQIIIIII{COPY}s")
_SIZE = _EVENT.size
(_TIME, _SKB, _LOCATION, _KIND, _REASON, _IFINDEX, _NETNS, _LENGTH, _IIF, _PACKET) = (
    0, 8, 16, 24, 28, 32, 36, 40, 44, 48,
)  # fmt: skip
_HEAD = 40
_EVENT_AT = -_SIZE
_SCRATCH = _EVENT_AT - 16
_LOOKUP, _KTIME, _PROBE_READ, _RING_OUTPUT = 1, 5, 113, 130
_KALLSYMS = Path("/proc/kallsyms")


@dataclass(frozen=True, slots=True)
class Seen:
    """A packet at one place. `time` in nanoseconds since the machine's start.

    `kind`: RECEIVED by a device, SENT to one, or DROPPED. `netns` is the inode of the namespace, 0
    where the kernel had forgotten it. `packet` begins with the IP header; `COPY` bytes are there,
    and what lies behind a shorter packet is memory of the kernel. `reason` and `location` are of
    dropped ones: a number, and an address in the kernel.
    """

    time: int
    skb: int
    location: int
    kind: int
    reason: int
    ifindex: int
    netns: int
    length: int
    iif: int
    packet: bytes


@lru_cache(1)
def _btf() -> Btf:
    return Btf()


class PacketWatch(Closing):
    """Watches packets from or to these addresses (of one family) until it is closed.

    `protocol`: only those of this protocol, and ICMP. `namespaces`: inodes of the network
    namespaces that are meant, all where none is given; a drop whose device the kernel had forgotten
    may be of any. Raises `KernelError`: ENOENT without BTF,
    EPERM without rights.
    """

    def __init__(
        self, addresses: Sequence[IPAddress], protocol: int, namespaces: Sequence[int] = ()
    ) -> None:
        if not 0 < len(addresses) <= MOST_ADDRESSES or len({a.version for a in addresses}) > 1:
            raise ValueError(f"addresses {addresses}: want 1 to {MOST_ADDRESSES} of one family")
        self._stack = ExitStack()
        try:
            self._ring = self._stack.enter_context(Ring(RING))
            self._lost = self._held(calls.create_map(calls.MAP_ARRAY, 4, 8, 1))
            for kind, tracepoint in TRACEPOINTS.items():
                filters = (addresses, protocol, namespaces)
                code = program(kind, _btf(), filters, self._ring.fd, self._lost)
                loaded = self._held(calls.load(code, f"muslin_{kind}"))
                self._held(calls.attach(loaded, tracepoint))
        except BaseException:
            self._stack.close()
            raise

    def _held(self, fd: int) -> int:
        self._stack.callback(os.close, fd)
        return fd

    def fileno(self) -> int:
        """The descriptor of the ring, for an event loop."""
        return self._ring.fd

    @property
    def lost(self) -> int:
        """Packets that did not fit the ring."""
        return calls.lookup_u64(self._lost, 0)

    def read(self) -> Iterator[Seen]:
        """What was seen since the last call."""
        for record in self._ring.read():
            yield Seen(*_EVENT.unpack(record))

    def close(self) -> None:
        """Detach the programs; twice is fine."""
        self._stack.close()


@lru_cache(1)
def _reasons() -> dict[int, str]:
    try:
        return _btf().numbers("skb_drop_reason")
    except KernelError:
        return {}


def reason_name(number: int) -> str:
    """The kernel's word for a reason, such as `NO_SOCKET`; the number where it has none."""
    name = _reasons().get(number, "")
    return name.removeprefix("SKB_DROP_REASON_").removeprefix("SKB_") or str(number)


@lru_cache(1)
def _symbols() -> tuple[list[int], list[str]]:
    places = []
    try:
        for line in _KALLSYMS.read_text().splitlines():
            address, kind, name = line.split()[:3]
            if kind in "tT":
                places.append((int(address, 16), name))
    except OSError:
        return [], []
    places.sort()
    return [place for place, _ in places], [name for _, name in places]


def symbol(location: int) -> str:
    """The function of the kernel around an address; empty where the kernel hides addresses."""
    addresses, names = _symbols()
    place = bisect_right(addresses, location)
    if not place or not addresses[place - 1]:
        return ""
    return names[place - 1].partition(".")[0]


Filters = tuple[Sequence[IPAddress], int, Sequence[int]]
"""Addresses, protocol, namespaces."""


def program(kind: int, btf: Btf, filters: Filters, ring: int, lost: int) -> bytes:
    """The program of one tracepoint."""
    addresses, protocol, namespaces = filters
    p = Program()
    p.move(R6, R1)
    p.load(8, R7, R6, 0)
    p.set(R0, 0)
    for offset in range(_EVENT_AT, 0, 8):
        p.store(8, R10, offset, R0)
    if kind == RECEIVED:
        # The IP header begins the data; the field that names its place is set a moment later.
        _read(p, _SCRATCH, 8, R7, btf.offset("sk_buff", "data"))
        p.load(8, R9, R10, _SCRATCH)
    else:
        _read(p, _SCRATCH, 8, R7, btf.offset("sk_buff", "head"))
        _read(p, _SCRATCH + 8, 2, R7, btf.offset("sk_buff", "network_header"))
        p.load(8, R9, R10, _SCRATCH)
        p.load(2, R1, R10, _SCRATCH + 8)
        p.add_register(R9, R1)
    _read(p, _EVENT_AT + _PACKET, _HEAD, R9, 0)
    _match(p, addresses, protocol)
    p.label("hit")
    _read(p, _EVENT_AT + _PACKET + _HEAD, COPY - _HEAD, R9, _HEAD)
    _device(p, kind, btf)
    if namespaces:
        p.load(4, R1, R10, _EVENT_AT + _NETNS)
        for inode in {0, *namespaces}:
            p.jump_if(R1, inode, "meant")
        p.jump("end")
        p.label("meant")
    _read(p, _EVENT_AT + _LENGTH, 4, R7, btf.offset("sk_buff", "len"))
    _read(p, _EVENT_AT + _IIF, 4, R7, btf.offset("sk_buff", "skb_iif"))
    p.store(8, R10, _EVENT_AT + _SKB, R7)
    p.set(R1, kind)
    p.store(4, R10, _EVENT_AT + _KIND, R1)
    if kind == DROPPED:
        p.load(8, R1, R6, 8)
        p.store(8, R10, _EVENT_AT + _LOCATION, R1)
        p.load(8, R1, R6, 16)
        p.store(4, R10, _EVENT_AT + _REASON, R1)
    p.call(_KTIME)
    p.store(8, R10, _EVENT_AT + _TIME, R0)
    _output(p, ring, lost)
    p.label("end")
    p.set(R0, 0)
    p.exit()
    return p.code()


def _read(p: Program, to: int, size: int, base: int, offset: int) -> None:
    """Kernel memory at a register plus an offset, into the stack; zeros where it cannot be read."""
    p.move(R1, R10)
    p.add(R1, to)
    p.set(R2, size)
    p.move(R3, base)
    p.add(R3, offset)
    p.call(_PROBE_READ)


def _match(p: Program, addresses: Sequence[IPAddress], protocol: int) -> None:
    """Go on at `hit` for a packet that is meant, else to the end."""
    version = addresses[0].version
    p.load(1, R1, R10, _EVENT_AT + _PACKET)
    p.shift_right(R1, 4)
    p.jump_unless(R1, version, "end")
    p.load(1, R1, R10, _EVENT_AT + _PACKET + (9 if version == 4 else 6))
    for number in {protocol, 1 if version == 4 else 58}:
        p.jump_if(R1, number, "protocol")
    p.jump("end")
    p.label("protocol")
    places = (12, 16) if version == 4 else (8, 24)
    for number, (address, place) in enumerate((a, at) for a in addresses for at in places):
        words = struct.unpack(f"={len(address.packed) // 4}I", address.packed)
        for index, word in enumerate(words):
            p.load(4, R1, R10, _EVENT_AT + _PACKET + place + 4 * index)
            if index == len(words) - 1:
                p.jump_if(R1, word, "hit")
            else:
                p.jump_unless(R1, word, f"other{number}")
        p.label(f"other{number}")
    p.jump("end")


def _device(p: Program, kind: int, btf: Btf) -> None:
    """Index and namespace of the packet's device."""
    if kind == SENT:
        p.load(8, R8, R6, 8)
    else:
        _read(p, _SCRATCH, 8, R7, btf.offset("sk_buff", "dev"))
        p.load(8, R8, R10, _SCRATCH)
    if kind == DROPPED:
        p.jump_if_zero(R8, "route")
        p.jump("device")
        p.label("route")
        # A packet that leaves has no device yet, but a route.
        _read(p, _SCRATCH, 8, R7, btf.offset("sk_buff", "_skb_refdst"))
        p.load(8, R8, R10, _SCRATCH)
        p.mask(R8, -8)
        _read(p, _SCRATCH, 8, R8, btf.offset("dst_entry", "dev"))
        p.load(8, R8, R10, _SCRATCH)
        p.label("device")
    _read(p, _EVENT_AT + _IFINDEX, 4, R8, btf.offset("net_device", "ifindex"))
    _read(p, _SCRATCH, 8, R8, btf.offset("net_device", "nd_net"))
    p.load(8, R9, R10, _SCRATCH)
    inode = btf.offset("net", "ns") + btf.offset("ns_common", "inum")
    _read(p, _EVENT_AT + _NETNS, 4, R9, inode)


def _output(p: Program, ring: int, lost: int) -> None:
    p.load_map(R1, ring)
    p.move(R2, R10)
    p.add(R2, _EVENT_AT)
    p.set(R3, _SIZE)
    p.set(R4, 0)
    p.call(_RING_OUTPUT)
    p.jump_if_zero(R0, "end")
    p.set(R1, 0)
    p.store(4, R10, _SCRATCH, R1)
    p.load_map(R1, lost)
    p.move(R2, R10)
    p.add(R2, _SCRATCH)
    p.call(_LOOKUP)
    p.jump_if_zero(R0, "end")
    p.set(R1, 1)
    p.add_atomically(R0, 0, R1)


def available() -> str:
    """What this kernel or process lacks for a watch; empty where nothing does."""
    try:
        _btf().offset("sk_buff", "network_header")
        with Ring(os.sysconf("SC_PAGESIZE")):
            pass
    except KernelError as error:
        if error.errno == errno.EPERM:
            return f"{error}: run as root with CAP_BPF and CAP_PERFMON"
        return str(error)
    return ""
