"""What `calicoctl` asks felix on its node: the calculation's own word, and the kernel's counts.

Questions never change anything. The kernel is read once a question and family, by the back end
that writes it.
Tested in tests/felix/test_explain_live.py.
"""

from __future__ import annotations

import asyncio
from typing import Literal, cast

import msgspec

from felix.dataplane.loop import Dataplane
from felix.dataplane.settings import rule_settings
from felix.explain.answering import chains_of_denials, decide, denials, length, packet_of
from felix.explain.matching import Matcher
from felix.explain.path import TABLES
from felix.rules.static import RuleSettings
from libcalico.local.node_api import Ask, CountDrops, Decided, DropCount, DropCounts, Station, Told
from linux.errors import CommandError, KernelError

Family = Literal[4, 6]


class Questions:
    """The answers of one felix."""

    def __init__(self, node: str, plane: Dataplane) -> None:
        self._node, self._plane = node, plane

    async def ask(self, question: Ask) -> Told:
        """What felix decides at each station, and what its rules have counted."""
        plane = self._plane
        told = Told(question.id, self._node)
        if not plane.calc.in_sync or plane.tables is None:
            return msgspec.structs.replace(told, error="felix has not read the datastore yet")
        try:
            packet = packet_of(question)
        except ValueError as error:
            return msgspec.structs.replace(told, error=str(error))
        matcher = Matcher(plane.calc.policy, plane.unusable)
        decided = [decide(plane.calc.policy, matcher, packet, s) for s in question.stations]
        unread = ""
        try:
            decided = await self._counted(question, cast("Family", packet.version), decided)
        except (KernelError, CommandError) as failure:
            unread = f"the kernel's rules cannot be read: {failure}"
        return msgspec.structs.replace(
            told,
            ready=plane.state.applied and not plane.state.failures,
            backend=plane.tables.name,
            decided=decided,
            error=unread,
        )

    async def _counted(
        self, question: Ask, family: Family, decided: list[Decided]
    ) -> list[Decided]:
        tables = self._plane.tables
        assert tables is not None
        found: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for table in {s.table for s in question.stations if s.table and s.chain}:
            chains = {s.chain for s in question.stations if s.table == table and s.chain}
            read = await tables.counters(family, table, chains)
            for chain, rules in read.items():
                found[table, chain] = [(packets, octets) for packets, octets, _ in rules]
        answered = []
        for station, one in zip(question.stations, decided, strict=True):
            counted = found.get((station.table, station.chain))
            place = tables.places.get((family, station.table or TABLES[station.stage]))
            stands = counted is not None and place is not None and not place.differs(station.chain)
            wanted = length(
                self._plane.calc.policy,
                station,
                one,
                self._interface(station),
                family,
                self._settings(family),
            )
            # What somebody flushed since the last look is not known to differ yet.
            stands = stands and (wanted is None or wanted == len(counted or ()))
            answered.append(msgspec.structs.replace(one, rules=counted, stands=stands))
        return answered

    def _interface(self, station: Station) -> str:
        for interface, endpoint in self._plane.state.active.items():
            if endpoint.key == (station.kind, station.name, station.namespace):
                return interface
        return ""

    async def count(self, question: CountDrops) -> DropCounts:
        """Who has denied how many packets since the rules were written."""
        plane = self._plane
        answer = DropCounts(question.id, self._node)
        if not plane.calc.in_sync or plane.tables is None:
            return msgspec.structs.replace(answer, error="felix has not read the datastore yet")
        engine = plane.calc.policy
        endpoints = {
            interface: policy
            for interface, endpoint in plane.state.active.items()
            if (policy := engine.endpoint(endpoint.key)) is not None
        }

        def called(interface: str) -> str:
            endpoint = plane.state.active.get(interface)
            return interface if endpoint is None else endpoint.workload

        counts: list[DropCount] = []
        try:
            for version in sorted(plane.families):
                settings = self._settings(version)
                names = chains_of_denials(engine, endpoints)
                read = await plane.tables.counters(cast("Family", version), "filter", names)
                plain = {c: [(p, o) for p, o, _ in rules] for c, rules in read.items()}
                for some in denials(engine, endpoints, version, settings, plain, called):
                    counts += some
                    # Rules go on being written while somebody counts.
                    await asyncio.sleep(0)
        except (KernelError, CommandError) as failure:
            return msgspec.structs.replace(
                answer, error=f"the kernel's rules cannot be read: {failure}"
            )
        counts.sort(key=lambda one: -one.packets)
        return msgspec.structs.replace(answer, counts=counts)

    def _settings(self, version: int) -> RuleSettings:
        return rule_settings(self._plane.config, version, tell=self._plane.tells)
