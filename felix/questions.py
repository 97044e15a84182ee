"""Answers to `calicoctl` on this node: what felix calculates, and what the kernel counts.

A question never changes anything. The back end that writes the kernel's rules reads them, once a
question and family.
Tested in tests/felix/kernel/test_explain_live.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import msgspec

from felix.dataplane.loop import Dataplane
from felix.dataplane.rules.chain_refcounts import FILTER
from felix.dataplane.rules.chain_target import Family
from felix.dataplane.rules.settings import rule_settings
from felix.explain.answering import chains_of_denials, decide, denials, length, packet_of
from felix.explain.matching import Matcher
from felix.explain.places import endpoint_chain
from felix.explain.stations import NORMAL, TABLES
from felix.reports.audit import kernel_lookup, misrouted, unenforced, unlike_datastore
from felix.reports.denials import KeptCounts
from felix.rules.inputs import RuleSettings
from felix.rules.model import Chain
from libcalico.local.trace_messages import (
    Ask,
    CountDrops,
    Decided,
    DropCount,
    DropCounts,
    Station,
    Told,
)
from libcalico.model import ResourceKey
from linux.errors import CommandError, KernelError
from linux.netlink.socket import Socket


class Questions:
    """The answers of one felix."""

    def __init__(self, node: str, plane: Dataplane) -> None:
        self._node, self._plane = node, plane
        self.counts = KeptCounts(self._denials, self._rule_of)

    async def ask(self, question: Ask) -> Told:
        """Felix's decision at each station, and the counts of its rules."""
        plane = self._plane
        answer = Told(question.id, self._node)
        if not plane.calc.in_sync or plane.rules.tables is None:
            return msgspec.structs.replace(answer, error="felix has not read the datastore yet")
        try:
            packet = packet_of(question)
        except ValueError as error:
            return msgspec.structs.replace(answer, error=str(error))
        matcher = Matcher(plane.calc.policy, plane.rules.unusable)
        decided = [decide(plane.calc.policy, matcher, packet, s) for s in question.stations]
        unread = ""
        try:
            decided = await self._counted(question, cast("Family", packet.version), decided)
        except (KernelError, CommandError) as failure:
            unread = f"the kernel's rules cannot be read: {failure}"
        return msgspec.structs.replace(
            answer,
            ready=plane.state.applied and not plane.state.failures,
            backend=plane.rules.tables.name,
            decided=decided,
            error=unread,
        )

    async def _counted(
        self, question: Ask, family: Family, decided: list[Decided]
    ) -> list[Decided]:
        tables = self._plane.rules.tables
        assert tables is not None
        rule_counts: dict[tuple[str, str], list[tuple[int, int]]] = {}
        asked = {(s.table, s.chain) for s in question.stations if s.table and s.chain}
        for station in question.stations:
            own = self._own_chain(station, family)
            if own is not None:
                asked.add((FILTER, own.name))
        for table in {table for table, _ in asked}:
            names = {chain for its, chain in asked if its == table}
            read = await tables.counters(family, table, names)
            for name, rules in read.items():
                rule_counts[table, name] = [(packets, octets) for packets, octets, _ in rules]
        answered = []
        for station, one in zip(question.stations, decided, strict=True):
            counted = rule_counts.get((station.table, station.chain))
            place = tables.places.get((family, station.table or TABLES[station.stage]))
            stands = counted is not None and place is not None and not place.differs(station.chain)
            desired = length(
                self._plane.calc.policy,
                station,
                one,
                self._interface(station),
                family,
                self._settings(family),
            )
            # A chain that was flushed since the last read-back is not known to differ yet.
            stands = stands and (desired is None or desired == len(counted or ()))
            differs = self._differs(station)
            chain = self._own_chain(station, family)
            if chain is not None and chain.name != station.chain:
                place = tables.places.get((family, FILTER))
                there = rule_counts.get((FILTER, chain.name))
                if there is None:
                    differs.append(f"the kernel has no chain {chain.name} in {FILTER}")
                elif place is None or place.differs(chain.name) or len(there) != len(chain.rules):
                    differs.append(f"the kernel's chain {chain.name} is not as felix wants it")
            answered.append(
                msgspec.structs.replace(one, rules=counted, stands=stands, differs=differs)
            )
        return answered

    def _own_chain(self, station: Station, family: Family) -> Chain | None:
        """The chain that a workload's packets pass at its interface."""
        interface = self._interface(station)
        policy = self._plane.calc.policy.endpoint(_key(station))
        if not interface or policy is None or station.stage != NORMAL:
            return None
        settings = self._settings(family)
        settings = replace(settings, verdicts=settings.verdicts_of(FILTER))
        return endpoint_chain(interface, policy, settings, ingress=station.ingress)

    def _differs(self, station: Station) -> list[str]:
        """The differences that an audit finds at a station's endpoint (felix.reports.audit)."""
        key, plane = _key(station), self._plane
        endpoint = plane.calc.endpoints.get(key)
        reasons = [
            reason
            for named, reason in (*unlike_datastore(plane.calc.endpoints), *unenforced(plane))
            if named == str(key)
        ]
        if endpoint is not None and key in plane.state.in_force:
            with Socket() as sock:
                reasons += [reason for _, reason in misrouted(endpoint, kernel_lookup(sock))]
        return reasons

    def _interface(self, station: Station) -> str:
        for interface, endpoint in self._plane.state.active.items():
            if endpoint.key == _key(station):
                return interface
        return ""

    async def count(self, question: CountDrops) -> DropCounts:
        """How many packets each rule has denied since it was written as it is."""
        plane = self._plane
        answer = DropCounts(question.id, self._node)
        if not plane.calc.in_sync or plane.rules.tables is None:
            return msgspec.structs.replace(answer, error="felix has not read the datastore yet")
        try:
            counts = await self.counts.counts()
        except (KernelError, CommandError) as failure:
            return msgspec.structs.replace(
                answer, error=f"the kernel's rules cannot be read: {failure}"
            )
        counts.sort(key=lambda one: -one.packets)
        return msgspec.structs.replace(answer, counts=counts)

    async def _denials(self) -> list[DropCount]:
        """The counts of the kernel's rules that deny. Raises `KernelError`."""
        plane, engine = self._plane, self._plane.calc.policy
        if not plane.calc.in_sync or plane.rules.tables is None:
            return []
        endpoints = {
            interface: policy
            for interface, endpoint in plane.state.active.items()
            if (policy := engine.endpoint(endpoint.key)) is not None
        }

        def called(interface: str) -> str:
            endpoint = plane.state.active.get(interface)
            return interface if endpoint is None else endpoint.workload

        counts: list[DropCount] = []
        for version in sorted(plane.rules.families):
            settings = self._settings(version)
            names = chains_of_denials(engine, endpoints)
            read = await plane.rules.tables.counters(cast("Family", version), "filter", names)
            plain = {c: [(p, o) for p, o, _ in rules] for c, rules in read.items()}
            for some in denials(engine, endpoints, version, settings, plain, called):
                counts += some
                # Rules go on being written during the count.
                await asyncio.sleep(0)
        return counts

    def _rule_of(self, count: DropCount) -> object:
        """The policy of which a rule denied, or the workload at the end of whose policies."""
        engine, by = self._plane.calc.policy, count.by
        if by.kind == "Profile":
            return engine.profiles.get(by.name)
        if by.kind:
            return engine.policies.get(ResourceKey(by.kind, by.name, by.namespace))
        for endpoint in self._plane.state.active.values():
            if endpoint.workload == count.endpoint:
                return engine.endpoint(endpoint.key), endpoint.container_id
        return None

    def _settings(self, version: int) -> RuleSettings:
        return rule_settings(self._plane.config, version, tell=self._plane.rules.tells)


def _key(station: Station) -> ResourceKey:
    return ResourceKey(station.kind, station.name, station.namespace)
