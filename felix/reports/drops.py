"""Denied packets for those who watch: rules log them (NFLOG) while there is a watcher.

The packets come by the one reader of this felix (`felix.telling`). The prefix of a message
names the rule (`felix.rules.nflog_prefix`); names are looked up in this felix's calculation.

Invariants:
  DRP-1  Watching changes no verdict (TEL-1) and ends with the last watcher.
  DRP-2  A watcher that does not read costs a bounded number of messages; it is sent the number
         of those that it missed.
Tested in tests/felix/kernel/test_drops.py.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Hashable, Sequence
from ipaddress import ip_network
from typing import Protocol

from felix.calc.sets.pods_by_address import pod_at
from felix.dataplane.loop import Dataplane
from felix.explain.answering import denier
from felix.rules import nflog_prefix
from felix.rules.nflog_prefix import Said, Tell, Verdict
from felix.telling import Telling
from libcalico.local.node_api import Message
from libcalico.local.trace_messages import Denier, Dropped, Watching
from libcalico.model import ResourceKey
from linux.errors import KernelError
from linux.nflog import Logged

MOST_WAITING = 2000
"""Messages that may wait for one watcher."""
_KNOWN_FOR = 1.0
_DENIED = Verdict.DENIED.value


class Watcher(Protocol):
    """A receiver of denied packets; `waiting` counts the messages that were not sent yet."""

    @property
    def waiting(self) -> int:
        """Messages that wait to be sent."""

    def post(self, subject: Hashable, message: Message) -> None:
        """Send as soon as the watcher reads."""


class Drops:
    """The watchers of one felix."""

    def __init__(self, node: str, plane: Dataplane, telling: Telling) -> None:
        self._node, self._plane, self._telling = node, plane, telling
        self._watchers: dict[Watcher, int] = {}
        self._greeted: set[Watcher] = set()
        self._number = 0
        self._deniers: dict[str, Denier] = {}
        self._pods: dict[str, str] = {}
        self._known_until = 0.0

    def watch(self, watcher: Watcher) -> None:
        """Send denied packets to this watcher from now on."""
        if not self._watchers:
            try:
                self._telling.join(self, Tell.DENIED)
            except KernelError as error:
                why = f"denied packets cannot be read: {error}"
                watcher.post("watching", Watching(self._node, why))
                return
        self._watchers[watcher] = 0
        self.published()

    def leave(self, watcher: Watcher) -> None:
        """Forget a watcher that is gone."""
        self._watchers.pop(watcher, None)
        self._greeted.discard(watcher)
        if not self._watchers:
            self._telling.leave(self)

    def published(self) -> None:
        """Follow a turn of the main loop: greet new watchers once the rules tell."""
        if not self._watchers or self._telling.tells is Tell.NOTHING:
            return
        for watcher in self._watchers.keys() - self._greeted:
            self._greeted.add(watcher)
            watcher.post("watching", Watching(self._node))

    def deaf(self, why: str) -> None:
        """Tell all watchers that packets cannot be read any more, and forget them."""
        for watcher in self._watchers:
            watcher.post("watching", Watching(self._node, why))
        self._watchers.clear()
        self._greeted.clear()

    def heard(self, packets: Sequence[Logged], lost: int) -> None:
        """Send the denied ones of these packets."""
        for packet in packets:
            message = self._dropped(packet) if packet.prefix[:1] == _DENIED else None
            if message is None:
                continue
            self._number += 1
            for watcher in self._watchers:
                self._watchers[watcher] += lost
                if watcher.waiting >= MOST_WAITING:
                    self._watchers[watcher] += 1
                    continue
                missed, self._watchers[watcher] = self._watchers[watcher], 0
                watcher.post(("dropped", self._number), message(missed))
            lost = 0
        for watcher in self._watchers:
            self._watchers[watcher] += lost

    def _dropped(self, packet: Logged) -> Callable[[int], Dropped] | None:
        by, head = self._denier(packet.prefix), packet.head
        if by is None or head is None:
            return None
        into, out = self._name(packet.in_interface), self._name(packet.out_interface)

        def message(lost: int) -> Dropped:
            return Dropped(
                packet.time,
                by,
                str(head.source),
                str(head.destination),
                head.protocol,
                head.source_port,
                head.destination_port,
                head.icmp_type,
                head.icmp_code,
                self._pod(into, str(head.source)),
                self._pod(out, str(head.destination)),
                into,
                out,
                lost,
            )

        return message

    def _name(self, index: int) -> str:
        link = self._plane.view.links.get(index)
        if link is not None:
            return link.name
        try:
            return socket.if_indextoname(index) if index else ""
        except OSError:
            return ""

    def _pod(self, interface: str, address: str) -> str:
        endpoint = self._plane.state.active.get(interface)
        if endpoint is not None and ip_network(address) in endpoint.networks:
            return endpoint.workload
        return self._elsewhere(address)

    def _elsewhere(self, address: str) -> str:
        """A pod of another node, as felix knows the endpoints of the cluster."""
        self._renew()
        pod = self._pods.get(address)
        if pod is None:
            pod = pod_at(self._plane.calc.policy.places.population, address)
            self._pods[address] = pod
        return pod

    def _renew(self) -> None:
        """Forget what was looked up a while ago: rules are renumbered, pods come and go."""
        now = asyncio.get_running_loop().time()
        if now >= self._known_until:
            self._deniers.clear()
            self._pods.clear()
            self._known_until = now + _KNOWN_FOR

    def _denier(self, prefix: str) -> Denier | None:
        self._renew()
        if prefix not in self._deniers:
            resolved = self._look_up(prefix)
            if resolved is None:
                return None
            self._deniers[prefix] = resolved
        return self._deniers[prefix]

    def _look_up(self, prefix: str) -> Denier | None:
        denial = nflog_prefix.read(prefix)
        if denial is None:
            return None
        engine = self._plane.calc.policy
        if denial.rule is None:
            return Denier(denial.ingress, self._tier(denial))
        keys: list[ResourceKey] = list(engine.policies)
        if denial.profile:
            keys = [ResourceKey("Profile", name) for name in engine.profiles]
        for key in keys:
            if nflog_prefix.by_rule(key, denial.rule, ingress=denial.ingress) == prefix:
                return denier(engine, key, denial.rule, ingress=denial.ingress)
        # The rule is gone meanwhile: the prefix is all that is known.
        return Denier(denial.ingress, name=denial.name)

    def _tier(self, denial: Said) -> str:
        if denial.profile or not denial.name.startswith("_"):
            return denial.name
        tiers = {policy.tier for policy in self._plane.calc.policy.policies.values()}
        for tier in tiers:
            if nflog_prefix.by_tier(tier, ingress=denial.ingress).endswith(denial.name):
                return tier
        return denial.name
