"""Bandwidth of workloads: token buckets on the host's ends of their links.

    to the workload     a bucket on the host's end of its veth
    from the workload   what the host's end receives goes through a device of its own, `bwcali...`
                        (an ifb), and the bucket is there

Without limits nothing is looked at: whether a link has a bucket at all is in what the kernel tells
of links. What a link has is read when a limit is wanted, when there is a bucket, and again when
links are; what is right is not written. Buckets of other programs, such as the chained plugin
`bandwidth`, stay where the endpoint asks for no limit.

A limit that the kernel refuses (it may lack a module) is a condition; the workload runs without.

Source: docs/reference/dataplane.md#traffic-limits.
Invariants:
  SHP-1  A limit that is right already is not touched, also not by a new felix: no packet waits.
  SHP-2  A bucket or device that no endpoint asks for is ours, by its handle or name, or is left.
Tested in tests/felix/dataplane/test_shaping.py and, with packets,
tests/felix/kernel/test_limits.py.
"""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from felix.calc.endpoints import Endpoint
from felix.dataplane.devices.work import LinkWork
from libcalico.conversion.traffic_limits import Bucket
from linux import links, traffic_control
from linux.links import Link
from linux.netlink import Socket
from linux.traffic_control import Queue, TokenBucket, ticks

PREFIX = "bwcali"
"""Calico's, so that a node that changes hands keeps the devices."""
_WAITING_S = 1 / 40
_WAITING_BYTES = 1 << 18
"""What may wait in a bucket beside what its rate sends in `_WAITING_S`: some large segments."""
_HEADER = 14
_MOST = (1 << 32) - 1
_ABSENT = (errno.ENOENT, errno.EINVAL, errno.ENODEV)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What one link has, or is to have: None is no bucket."""

    receives: TokenBucket | None = None
    sends: TokenBucket | None = None


_NONE = _Shape()


@dataclass
class Shaping:
    """The limits that links have. `problems`: why one is not in force, by link."""

    problems: dict[str, str] = field(default_factory=dict)
    writes: int = 0
    _known: dict[int, _Shape] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _devices: frozenset[str] = frozenset()

    def commit(self, work: LinkWork, *, whole: bool) -> tuple[int, ...]:
        """Make the links of `work.endpoints` as these ask; returns those that were touched.

        `whole`: these are all endpoints, and devices of others go. Raises `KernelError` only when
        the socket fails.
        """
        self._forget_gone(work, whole=whole)
        asking = [pair for endpoint in work.endpoints if (pair := self._asks(work, endpoint))]
        if not asking:
            return ()
        if whole or any(link.index not in self._known for _, link in asking):
            self._read(work, (link for _, link in asking))
        touched = []
        for endpoint, link in asking:
            self.problems.pop(link.name, None)
            wanted, has = _wanted(endpoint, link), self._known.get(link.index, _NONE)
            if wanted != has and self._write(work.sock, link, has, wanted):
                touched.append(link.index)
        return tuple(touched)

    def _asks(self, work: LinkWork, endpoint: Endpoint) -> tuple[Endpoint, Link] | None:
        """An endpoint that wants a limit or may have one, with its link."""
        limits, link = endpoint.limits, work.view.link_named(endpoint.interface)
        if link is None:
            return None
        wants = limits.receives is not None or limits.sends is not None
        has = link.queue == "tbf" or link.index in self._known
        if wants or has or (self._devices and device_of(link.name) in self._devices):
            return endpoint, link
        return None

    def _read(self, work: LinkWork, asking: Iterable[Link]) -> None:
        """What the kernel has of these links."""
        queues: dict[int, list[Queue]] = {}
        for queue in traffic_control.dump(work.sock):
            queues.setdefault(queue.link, []).append(queue)
        for link in asking:
            device = work.view.link_named(device_of(link.name))
            sends = _bucket(queues.get(device.index, ())) if device is not None else None
            if not any(queue.kind == "ingress" for queue in queues.get(link.index, ())):
                sends = None
            self._known[link.index] = _Shape(_bucket(queues.get(link.index, ())), sends)
            self._names[link.index] = link.name

    def _forget_gone(self, work: LinkWork, *, whole: bool) -> None:
        """Links that are gone, and the devices that no link has any more."""
        for index in [index for index in self._known if index not in work.view.links]:
            del self._known[index]
            name = self._names.pop(index)
            self.problems.pop(name, None)
            self._remove_device(work, device_of(name))
        if not whole:
            return
        # What is still refused is told again below; of an endpoint that left nothing is.
        self.problems.clear()
        standing = [
            link.name
            for link in work.view.links.values()
            if link.kind == "ifb" and link.name.startswith(PREFIX)
        ]
        self._devices = frozenset(standing)
        if standing:
            for name in self._devices - {device_of(each.interface) for each in work.endpoints}:
                self._remove_device(work, name)

    def _remove_device(self, work: LinkWork, name: str) -> None:
        device = work.view.link_named(name)
        if device is not None and device.kind == "ifb":
            self._send(work.sock, name, removals=[links.delete(device.index)])

    def _write(self, sock: Socket, link: Link, has: _Shape, wanted: _Shape) -> bool:
        """Write the difference; whether all of it is in the kernel."""
        done = True
        if wanted.receives is None and has.receives is not None:
            done = self._send(sock, link.name, removals=[traffic_control.no_bucket(link.index)])
        elif wanted.receives is not None and wanted.receives != has.receives:
            done = self._send(
                sock, link.name, [traffic_control.bucket(link.index, wanted.receives)]
            )
        if wanted.sends is None and has.sends is not None:
            # The way first: what is on it would be lost with the device.
            way = [traffic_control.no_detour(link.index), links.delete(device_of(link.name))]
            done = self._send(sock, link.name, removals=way) and done
        elif wanted.sends is not None and wanted.sends != has.sends:
            done = self._limit_sending(sock, link, has.sends, wanted.sends) and done
        if done:
            self._known[link.index], self._names[link.index] = wanted, link.name
            log.info("bandwidth of %s: %s", link.name, wanted)
        return done

    def _limit_sending(
        self, sock: Socket, link: Link, has: TokenBucket | None, wanted: TokenBucket
    ) -> bool:
        name = device_of(link.name)
        device = links.get(sock, name)
        if device is None:
            if not self._send(sock, link.name, [links.create(name, "ifb", mtu=link.mtu, up=True)]):
                return False
            device = links.get(sock, name)
        if device is None:
            self.problems[link.name] = f"bandwidth is not limited: device {name} went at once"
            return False
        self._devices |= {name}
        bucket = traffic_control.bucket(device.index, wanted)
        if has is not None:
            return self._send(sock, link.name, [bucket])
        # The bucket last: it says to a later felix that the way stands.
        way = traffic_control.detour(link.index, device.index)
        removed = [traffic_control.no_detour(link.index)]
        return self._send(sock, link.name, [*way, bucket], removals=removed)

    def _send(
        self,
        sock: Socket,
        name: str,
        messages: Sequence[bytes] = (),
        removals: Sequence[bytes] = (),
    ) -> bool:
        """Whether the kernel took all, removals first; what is gone already need not go."""
        self.writes += len(removals) + len(messages)
        failed = [result for result in sock.transact(removals) if result.errno not in (0, *_ABSENT)]
        failed += [result for result in sock.transact(messages) if not result.ok]
        if failed:
            error = failed[0].error(f"limit the bandwidth of {name}")
            self.problems[name] = f"bandwidth is not limited: {error}"
        return not failed


def device_of(interface: str) -> str:
    """The device by which what a workload sends goes: `bwcali` and a digest of its link's name."""
    return (PREFIX + hashlib.sha512(interface.encode()).hexdigest())[:15]


def _wanted(endpoint: Endpoint, link: Link) -> _Shape:
    limits, frame = endpoint.limits, link.mtu + _HEADER
    return _Shape(
        token_bucket(limits.receives, frame) if limits.receives is not None else None,
        token_bucket(limits.sends, frame) if limits.sends is not None else None,
    )


def token_bucket(asked: Bucket, frame: int) -> TokenBucket:
    """As the kernel keeps it, of a link whose largest frame has so many bytes. Pure."""
    burst = max(asked.burst, frame)
    waiting = int(asked.rate * _WAITING_S) + min(burst, _WAITING_BYTES) + frame
    least = ticks(max(asked.least_burst, frame), asked.peak) if asked.peak else 0
    return TokenBucket(asked.rate, ticks(burst, asked.rate), min(waiting, _MOST), asked.peak, least)


def _bucket(queues: Iterable[Queue]) -> TokenBucket | None:
    for queue in queues:
        if queue.ours:
            return queue.bucket
    return None
