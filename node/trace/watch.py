"""The watch of one node: packets, rules and drops of one connection, until it is told to stop.

Everything is bounded: by the question, by the most lines, by seconds. What is made in the kernel
belongs to descriptors of this process and is gone with it (linux.nftables.trace NTR-1,
linux.ebpf.packets PKT-1).

Invariant:
  TRC-1  However a watch ends, also by SIGKILL, it leaves no table, no program and no rule behind.
Tested in tests/trace/test_trace_pods.py.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import BinaryIO

from libcalico.local.packet_trace import (
    DESTINATION,
    DROPPED,
    NODE,
    RECEIVED,
    SENT,
    SOURCE,
    UNKNOWN,
    End,
    Line,
    Packet,
    Probe,
    Question,
    Ready,
    Rule,
    encode,
)
from linux.ebpf import packets
from linux.errors import KernelError
from linux.nftables.expressions import Family
from linux.nftables.trace import Flow, RuleTrace
from node.trace import backend, facts, heads, probe
from node.trace.kernel_rules import Rules
from node.trace.pods import PodNamespace
from node.trace.relevance import Relevance

_KINDS = {packets.RECEIVED: RECEIVED, packets.SENT: SENT, packets.DROPPED: DROPPED}
LINGER = 0.3
"""Seconds that are watched after the attempt ended: what is still under way."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`attended`: commands (`send`, `stop`) come on standard input, and its end is `stop`.

    `wait`: seconds to wait for an attempt of others before one is sent; None sends none.
    """

    count: int = 2000
    seconds: float = 30.0
    wait: float | None = 1.0
    attended: bool = False


@dataclass
class Watch:
    """One watch. `run` returns when it has ended."""

    node: str
    question: Question
    limits: Limits
    sending: probe.Sending
    out: BinaryIO = field(default_factory=lambda: sys.stdout.buffer)
    lines: int = 0
    cut: bool = False

    def run(self) -> None:
        """Watch, tell, end. Raises MuslinError, `KernelError`."""
        with ExitStack() as stack:
            self._family: Family = ip_address(self.question.source).version
            self._relevance = Relevance(self.question)
            self._source = self._pod(stack, self.question.source_interface)
            self._destination = self._pod(stack, self.question.destination_interface)
            self._places = self._inodes()
            self._names: dict[tuple[int, int], str] = {}
            self._attempts, self._target = 0, self.question.destination
            self._probe: threading.Thread | None = None
            self._result: Probe | None = None
            self._rules = Rules(lambda index: self._interface(self._own, index))
            stack.callback(self._rules.close)
            which = backend.backend(self._family)
            packet_watch, no_drops = self._packets(stack)
            trace, no_rules = self._trace(stack, which)
            before = self._destination.run(facts.counters) if self._destination else {}
            saved = backend.legacy_rules(self._family) if which == backend.IPTABLES_LEGACY else ""
            boot = facts.boot_id()
            self._tell(Ready(self.node, boot, self.question, which, no_rules, no_drops))
            self._loop(packet_watch, trace)
            if saved:
                after = backend.legacy_rules(self._family)
                for line in backend.moved(saved, after, self._family):
                    self._tell(line)
            targets = (self._target, self.question.source)
            self._tell(
                facts.gather(self.question, self._source, self._destination, before, targets)
            )
            lost = (0 if packet_watch is None else packet_watch.lost) + (
                0 if trace is None else trace.lost
            )
            self._tell(End(lost, self.cut))

    def _pod(self, stack: ExitStack, interface: str) -> PodNamespace | None:
        return stack.enter_context(PodNamespace(interface)) if interface else None

    def _inodes(self) -> dict[int, str]:
        self._own = os.stat("/proc/thread-self/ns/net").st_ino
        places = {self._own: NODE, 0: UNKNOWN}
        for place, pod in ((SOURCE, self._source), (DESTINATION, self._destination)):
            if pod is not None:
                places[pod.inode] = place
        return places

    def _packets(self, stack: ExitStack) -> tuple[packets.PacketWatch | None, str]:
        ends = {ip_address(self.question.source), ip_address(self.question.destination)}
        try:
            watch = packets.PacketWatch(
                sorted(ends, key=int), self.question.protocol, [n for n in self._places if n]
            )
        except KernelError as error:
            return None, str(error)
        return stack.enter_context(watch), ""

    def _trace(self, stack: ExitStack, which: backend.Backend) -> tuple[RuleTrace | None, str]:
        asked = self.question
        flow = Flow(
            ip_address(asked.source),
            ip_address(asked.destination),
            asked.protocol,
            asked.port or None,
        )
        try:
            trace = RuleTrace(self._family, [flow])
        except KernelError as error:
            return None, str(error)
        legacy = backend.LEGACY_SAYS if which == backend.IPTABLES_LEGACY else ""
        return stack.enter_context(trace), legacy

    def _loop(self, packet_watch: packets.PacketWatch | None, trace: RuleTrace | None) -> None:
        """Tell what comes, until `stop`, the last second, or the most lines."""
        begun = time.monotonic()
        poll = select.epoll()
        try:
            for source in (packet_watch, trace):
                if source is not None:
                    poll.register(source.fileno(), select.EPOLLIN)
            if self.limits.attended:
                poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
            deadline, until = begun + self.limits.seconds, None
            while not self.cut:
                now = time.monotonic()
                if now >= min(deadline, until or deadline):
                    return
                ready = [fd for fd, _ in poll.poll(0.05)]
                if self.limits.attended and sys.stdin.fileno() in ready and not self._command():
                    until = time.monotonic() + LINGER
                    poll.unregister(sys.stdin.fileno())
                self._read(packet_watch, trace)
                if self._probe_ended():
                    until = until or (None if self.limits.attended else time.monotonic() + LINGER)
                wait = self.limits.wait
                if not self.limits.attended and wait is not None and not self._probe:
                    if self._attempts:
                        until = until or now + LINGER + wait
                    elif now >= begun + wait:
                        self._send()
        finally:
            poll.close()

    def _command(self) -> bool:
        """Do what standard input says; False at its end or at `stop`."""
        words = os.read(sys.stdin.fileno(), 4096).decode(errors="replace").split()
        if "send" in words and self._probe is None:
            self._send()
        return bool(words) and "stop" not in words

    def _send(self) -> None:
        def work() -> None:
            try:
                self._result = probe.attempt(self.question, self.sending, self._make)
            except Exception as error:  # noqa: BLE001 - told as the probe's result
                self._result = Probe("failed", 0.0, str(error))

        self._probe = threading.Thread(target=work, name="probe", daemon=True)
        self._probe.start()

    def _make(self, function: Callable[[], socket.socket]) -> socket.socket:
        return function() if self._source is None else self._source.run(function)

    def _probe_ended(self) -> bool:
        if self._result is None:
            return False
        result, self._result = self._result, None
        self._tell(result)
        return True

    def _read(self, packet_watch: packets.PacketWatch | None, trace: RuleTrace | None) -> None:
        for seen in packet_watch.read() if packet_watch is not None else ():
            if seen.netns in self._places and (line := self._packet(seen)) is not None:
                self._tell(line)
        for step in trace.read() if trace is not None else ():
            self._tell(self._rules.rule(step))

    def _packet(self, seen: packets.Seen) -> Packet | None:
        head = heads.read(seen.packet)
        if head is None or not self._relevance.concerns(head):
            return None
        forward = head.source == self.question.source and head.inner is None
        if forward:
            self._attempts += 1
            if self._places[seen.netns] == NODE and seen.kind == packets.SENT:
                self._target = head.destination
        dropped = seen.kind == packets.DROPPED
        return Packet(
            seen.time,
            self._places[seen.netns],
            _KINDS[seen.kind],
            self._interface(seen.netns, seen.ifindex),
            head,
            f"{seen.skb:x}",
            packets.reason_name(seen.reason) if dropped else "",
            packets.symbol(seen.location) if dropped else "",
        )

    def _interface(self, namespace: int, index: int) -> str:
        if not index:
            return ""
        if (namespace, index) not in self._names:
            self._names[namespace, index] = self._look_up(namespace, index)
        return self._names[namespace, index]

    def _look_up(self, namespace: int, index: int) -> str:
        pods = [pod for pod in (self._source, self._destination) if pod is not None]
        pod = next((pod for pod in pods if pod.inode == namespace), None)
        try:
            if pod is not None:
                return pod.run(lambda: socket.if_indextoname(index))
            return socket.if_indextoname(index) if namespace == self._own else str(index)
        except OSError:
            return str(index)

    def _tell(self, line: Line) -> None:
        if isinstance(line, (Packet, Rule)):
            if self.lines >= self.limits.count:
                self.cut = True
                return
            self.lines += 1
        self.out.write(encode(line))
        self.out.flush()
