"""Our tables of both families: desired, actual, and one batch for the difference.

Problem: the tables are ours alone, so those of others are never read or written. But another
program may flush ours, and a dump before each write would cost more than the write. The ruleset
remembers what it wrote, as hashes; a commit compares with the memory and `refresh` finds drift. An
error drops the memory, and the next attempt starts from a dump.

A changed chain is emptied and filled again in the same batch; unchanged chains, and the counters
of their rules, stay as they are. No packet meets a half-written batch. The kernel holds removed
objects until their readers have left, and a removal of links waits for that too. So a commit may
leave undesired objects to a later sweep: elements, and chains that the kernel does not call.

NFT-1: nothing is sent while nothing changed; all changes of both families are one batch, and one
       more where an interface begins to lead to a chain that is made, or a rule to ask a set of
       ports that is (`linux.nftables.plan`).
NFT-2: only tables of our name are written.
NFT-3: after a refused batch the kernel has the old rules, and the next attempt dumps first.
NFT-4: where the kernel takes no datagram of that size, as from a user without rights on the host,
       the batch comes in parts, each chain whole and those that the kernel calls last.
Tested in tests/linux/test_nftables.py.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from linux.closing import Closing
from linux.errors import KernelError
from linux.nftables import messages
from linux.nftables.connection import Connection, Refused
from linux.nftables.dump import Actual, read_counters, read_table
from linux.nftables.expressions import Family, interface_key
from linux.nftables.messages import Hook
from linux.nftables.plan import Change, DesiredTable, Plan
from linux.nftables.rules import Packed

_TRIES = 3
_FIRST_PAUSE = 0.02
# Another program may have changed the tables since the dump; else it is refused again.
_RACES = (errno.ENOENT, errno.EEXIST, errno.EBUSY, errno.EINTR)
_TRIAL = "trial"
_FEW = 60
"""Chains and elements that are written in the event loop."""
_BIG = 64 << 10
_READERS_LEAVE = 0.05
"""Seconds in which every packet has left rules that are gone: it takes microseconds, unless the
processor itself is taken away, as from a virtual machine."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a commit did; `drift` names what a dump found different from our last write."""

    chains_written: tuple[str, ...] = ()
    chains_deleted: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    messages: int = 0
    bytes: int = 0


class Ruleset(Closing):
    """The tables called `table` of these families. Maps are interface -> goto a chain."""

    def __init__(self, families: Iterable[Family], table: str) -> None:
        self.table = table
        self.commits = self.commit_errors = 0
        self.dumps = self.dump_errors = 0
        self.blamed: dict[tuple[Family, str], int] = {}
        self._connection = Connection()
        self._desired = {family: DesiredTable() for family in families}
        self._actual: dict[Family, Actual] | None = None
        self._changed: set[tuple[Family, str]] = set()
        self._touched: set[tuple[Family, str, str]] = set()
        # Undesired chains and elements, left by commits without sweep.
        self._unswept: tuple[set[tuple[Family, str]], set[tuple[Family, str, str]]] = set(), set()
        # Where a set of ports may have lost its last rule.
        self._ports_changed: set[Family] = set()
        self._committed = self.doubted = False
        self._turn = asyncio.Lock()

    @property
    def port(self) -> int:
        """What the kernel calls our socket: changes that come from it are ours."""
        return self._connection.port

    def close(self) -> None:
        """Closes the connection; the rules stay."""
        self._connection.close()

    # -- desired state -----------------------------------------------------------------------------

    def want(self, family: Family, chain: str, rules: Packed, hook: Hook | None = None) -> None:
        """A chain, whole; nothing happens before the next commit."""
        chains = self._desired[family].chains
        before = chains.get(chain)
        if before is None or before[0] != hook or before[1].hashes != rules.hashes:
            chains[chain] = (hook, rules)
            self._changed.add((family, chain))
            if before is not None and before[1].port_sets.keys() - rules.port_sets.keys():
                self._ports_changed.add(family)

    def unwant(self, family: Family, chain: str) -> None:
        """The chain is not desired any more."""
        before = self._desired[family].chains.pop(chain, None)
        if before is not None:
            self._changed.add((family, chain))
            if before[1].port_sets:
                self._ports_changed.add(family)

    def want_map(self, family: Family, name: str) -> None:
        """A map from interfaces to chains; it may stay empty."""
        if name not in self._desired[family].maps:
            self._desired[family].maps[name] = {}
            self._changed.add((family, ""))

    def want_element(self, family: Family, name: str, interface: str, chain: str) -> None:
        """A packet of this interface goes on in that chain."""
        elements = self._desired[family].maps[name]
        if elements.get(interface) != chain:
            interface_key(interface)
            elements[interface] = chain
            self._touched.add((family, name, interface))

    def unwant_element(self, family: Family, name: str, interface: str) -> None:
        """The map has no element of this interface any more."""
        if self._desired[family].maps[name].pop(interface, None) is not None:
            self._touched.add((family, name, interface))

    @property
    def dirty(self) -> bool:
        """Whether a commit may have something to write."""
        known = self._committed and self._actual is not None and not self.doubted
        return bool(self._changed or self._touched) or not known

    def doubt(self) -> None:
        """Another program has changed the tables: the next commit reads them before it writes."""
        self.doubted = True

    @property
    def garbage(self) -> bool:
        """Whether the kernel has something undesired."""
        return any(self._unswept) or bool(self._ports_changed)

    @property
    def chains(self) -> int:
        """How many chains are desired."""
        return sum(len(desired.chains) for desired in self._desired.values())

    @property
    def rules(self) -> int:
        """How many rules are desired."""
        return sum(
            len(packed.hashes)
            for desired in self._desired.values()
            for _, packed in desired.chains.values()
        )

    @property
    def maps(self) -> int:
        """How many maps are desired."""
        return sum(len(desired.maps) for desired in self._desired.values())

    def differs(self, family: Family, chain: str) -> bool:
        """Whether the kernel has a chain of this name with other rules than desired."""
        if self._actual is None:
            return True
        have = self._actual[family].chains.get(chain)
        desired = self._desired[family].chains.get(chain)
        return have is not None and (desired is None or desired[1].hashes != have[1])

    # -- the kernel --------------------------------------------------------------------------------

    async def refresh(self) -> tuple[str, ...]:
        """Reads the tables; returns what drifted since our last write. Raises `KernelError`."""
        async with self._turn:
            return await self._dump()

    async def _dump(self) -> tuple[str, ...]:
        self.dumps += 1
        # Before the reading: a change during it may concern what was read already.
        self.doubted = False
        self._actual = None
        known, touched = self._changed | self._unswept[0], self._touched | self._unswept[1]

        def read() -> dict[Family, Actual]:
            return {
                family: read_table(self._connection, family, self.table) for family in self._desired
            }

        try:
            self._actual = await asyncio.to_thread(read)
        except KernelError:
            self.dump_errors += 1
            raise
        drifted: list[str] = []
        for family, desired in self._desired.items():
            actual = self._actual[family]
            for chain in desired.chains.keys() | actual.chains.keys():
                have, want = actual.chains.get(chain), desired.chains.get(chain)
                if have is None or want is None or have != (want[0], want[1].hashes):
                    self._changed.add((family, chain))
                    if (family, chain) not in known:
                        drifted.append(chain)
            if not actual.enabled or actual.maps.keys() != desired.maps.keys():
                self._changed.add((family, ""))
                if (family, "") not in known:
                    drifted.append(self.table)
            for name, elements in desired.maps.items():
                there = actual.maps.get(name, {})
                for interface in elements.keys() | there.keys():
                    if elements.get(interface) != there.get(interface):
                        self._touched.add((family, name, interface))
                        if (family, name, interface) not in touched:
                            drifted.append(f"{interface} in {name}")
            if actual.port_sets - desired.port_sets():
                self._ports_changed.add(family)
        return tuple(drifted) if self._committed else ()

    async def commit(self, *, refresh: bool = False, sweep: bool = True) -> Report:
        """Makes the tables as desired with at most one batch.

        The first commit, one after an error or a doubt and one with `refresh` dump before they
        compare. Without `sweep` undesired objects may stay. Raises `KernelError` when the kernel
        still refuses after retries.
        """
        async with self._turn:
            drift: tuple[str, ...] = ()
            for attempt in range(1, _TRIES + 1):
                if self._actual is None or self.doubted or (refresh and attempt == 1):
                    drift = await self._dump() or drift
                # A chain that was left for the sweep may be in the way of one that is desired.
                all_goes = sweep or attempt > 1
                changed, touched = self._take(all_goes)
                plan = self._plan(changed, touched, sweep=all_goes)
                try:
                    await self._send(plan)
                except BaseException as error:
                    self._changed |= changed
                    self._touched |= touched
                    self._actual = None
                    if not isinstance(error, KernelError):
                        raise
                    self.commit_errors += 1
                    self.blamed = plan.blamed(error)
                    if attempt == _TRIES or error.errno not in _RACES:
                        raise
                    await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempt - 1))
                    continue
                self._committed, self.blamed = True, {}
                size = sum(map(len, plan.requests))
                return Report(
                    tuple(plan.written), tuple(plan.deleted), drift, len(plan.requests), size
                )
            raise AssertionError("unreachable")

    def commit_now(self, *, sweep: bool = True) -> bool:
        """As `commit`, before this returns; False where that takes time or was refused: then
        nothing was written, or the tables are read before anything is.
        """
        if self._actual is None or self.doubted or self._turn.locked():
            return False
        size = len(self._changed) + len(self._touched)
        if sweep:
            size += len(self._unswept[0]) + len(self._unswept[1])
        if size > _FEW:
            return False
        changed, touched = self._take(sweep)
        plan = self._plan(changed, touched, sweep=sweep)
        try:
            if plan.requests:
                self._commit(plan)
        except KernelError:
            self._changed |= changed
            self._touched |= touched
            self.commit_errors += 1
            self._actual = None
            return False
        self._committed, self.blamed = True, {}
        return True

    def _take(self, sweep: bool) -> tuple[set[tuple[Family, str]], set[tuple[Family, str, str]]]:
        """The chains and elements that a commit is about; what waits for a sweep is put aside."""
        changed, self._changed = self._changed, set()
        touched, self._touched = self._touched, set()
        chains, elements = self._unswept
        if sweep:
            self._unswept = set(), set()
            return changed | chains, touched | elements
        idle = {place for place in changed if self._idle(*place)}
        gone = {
            (family, name, interface)
            for family, name, interface in touched
            if interface not in self._desired[family].maps[name]
        }
        self._unswept = (chains - changed) | idle, (elements - touched) | gone
        return changed - idle, touched - gone

    def _idle(self, family: Family, chain: str) -> bool:
        """Whether this chain is undesired, and the kernel does not call it."""
        assert self._actual is not None
        have = self._actual[family].chains.get(chain)
        return chain not in self._desired[family].chains and have is not None and have[0] is None

    async def _send(self, plan: Plan) -> None:
        if not plan.requests:
            return
        if sum(map(len, plan.requests)) < _BIG:
            self._commit(plan)
            return
        work = asyncio.ensure_future(asyncio.to_thread(self._commit, plan))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # The socket is the thread's until it is done.
            await asyncio.wait([work])
            raise

    def _commit(self, plan: Plan) -> None:
        for first, end in plan.parts(self._connection.room):
            self.commits += 1
            if plan.splits.get(first):
                time.sleep(_READERS_LEAVE)
            try:
                self._connection.commit(plan.requests[first:end], plan.names[first:end])
            except Refused as error:
                raise error.moved(first) from None

    def _plan(
        self,
        changed: set[tuple[Family, str]],
        touched: set[tuple[Family, str, str]],
        *,
        sweep: bool,
    ) -> Plan:
        assert self._actual is not None
        plan = Plan(self.table)
        changes = []
        unasked = self._unasked_ports() if sweep else {}
        for family, desired in self._desired.items():
            names = sorted(name for f, name in changed if f == family and name)
            elements = sorted((name, key) for f, name, key in touched if f == family)
            gone = unasked.get(family, ())
            if names or elements or gone or (family, "") in changed:
                changes.append(Change(family, desired, self._actual[family], names, elements, gone))
        plan.make(changes)
        return plan

    def _unasked_ports(self) -> dict[Family, Sequence[str]]:
        """Sets of ports that stand and that no rule is to ask; a failed commit reads them anew."""
        assert self._actual is not None
        changed, self._ports_changed = self._ports_changed, set()
        return {
            family: sorted(self._actual[family].port_sets - self._desired[family].port_sets())
            for family in changed
        }

    async def accepts(self, family: Family, rules: Packed) -> bool:
        """Whether the kernel would take a chain with these rules now; nothing is left."""
        async with self._turn:
            there = self._actual[family].port_sets if self._actual is not None else set()
            missing = (ports for name, ports in rules.port_sets.items() if name not in there)
            requests = [
                messages.new_table(family, self.table),
                messages.new_chain(family, self.table, _TRIAL, None),
                *(each for set_ in missing for each in messages.port_set(family, self.table, set_)),
                *rules.requests(family, self.table, _TRIAL),
            ]
            try:
                self._connection.commit(requests, trial=True)
            except KernelError:
                return False
            return True

    async def counters(
        self, family: Family, chains: Collection[str]
    ) -> dict[str, list[tuple[int, int, str]]]:
        """(packets, bytes, comment) of each rule of these chains, those that exist."""
        async with self._turn:
            read = partial(read_counters, self._connection, family, self.table, chains)
            return await asyncio.to_thread(read)

    def remove(self) -> bool:
        """Takes our tables away, with all in them; returns whether there were any.

        The rules go first and the rest when no packet is inside them any more
        (`linux.nftables.plan` says why): in one batch, one of about 100,000 packets was lost. Takes
        a moment, so it is not for an event loop. Raises `KernelError`.
        """
        there = [
            family
            for family in self._desired
            if self._connection.table_flags(family, self.table) is not None
        ]
        if there:
            self._to_tables(there, "empty", messages.flush_table)
            time.sleep(_READERS_LEAVE)
            self._to_tables(there, "remove", messages.delete_table)
        self._actual = None
        return bool(there)

    def _to_tables(
        self, families: Sequence[Family], about: str, request: Callable[[Family, str], bytes]
    ) -> None:
        self._connection.commit(
            [request(family, self.table) for family in families],
            [f"{about} table {self.table}"] * len(families),
        )
