"""The explorer: plays a tape of choices against the world, one store call or fault a step.

A tape is bytes; whoever writes it (hypothesis, or a seed) decides everything: which call goes
next and what becomes of it, who crashes, which pod comes or goes, how pools are edited. The
same tape always gives the same run, so that hypothesis can shrink one that fails. Byte 0 is
the tamest choice everywhere.

Invariants (tests/ipam/model/test_model.py, tests/ipam/model/test_planted.py):
  MODEL-3  When all pods are gone, no address and no endpoint is left.
  MODEL-4  Without new calls and faults, the world comes to rest.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import ipam.allocator.worker
from ipam.allocator.facts import read_facts
from ipam.collector.leak_evidence import Listed
from ipam.records import blocks
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import Change
from libcalico.model.keys import BlockKey
from tests.ipam.memory import MemoryStore
from tests.ipam.model import edits
from tests.ipam.model.calls import ANSWER_LOST, LATE, LOST, OK, Call
from tests.ipam.model.invariants import (
    Holder,
    Violation,
    check_commit,
    check_owners,
    check_store,
    holders,
    within_block,
)
from tests.ipam.model.loop import StepLoop
from tests.ipam.model.world import (
    ADDING,
    FAILED,
    GONE,
    NETWORK,
    UP,
    Container,
    Host,
    Process,
    container_id,
)

CRASH_BEFORE, CRASH_AFTER = "crash before", "crash after"
FATES = (
    [OK] * 238 + [LOST] * 4 + [ANSWER_LOST] * 5 + [LATE] * 4
    + [CRASH_BEFORE] * 2 + [CRASH_AFTER] * 3
)  # fmt: skip
MAX_UP = 26


class TapeEnd(Exception):
    """All choices are made."""


class _Clock:
    """Stands for the module `time` in the allocator, so that a run can be repeated."""

    def __init__(self, loop: StepLoop) -> None:
        self.monotonic, self.time, self.time_ns = loop.time, loop.time, loop.time_ns


class Explorer:
    """One world and its tape. `run()` raises `Violation`; `steps` counts calls and faults."""

    def __init__(self, tape: bytes, extend: Callable[[Explorer], None] | None = None) -> None:
        self._tape, self._at = tape, 0
        self.loop = StepLoop()
        self.steps = 0
        self.trace: list[str] = []
        self.did: Counter[str] = Counter()
        self.store = MemoryStore()
        self.store.after_commit = self._committed
        self._held: Mapping[IPAddress, Holder] = {}
        self._delivering: Call | None = None
        self.calls: list[Call] = []
        self.late: list[Call] = []
        self.containers: dict[str, Container] = {}
        self.reported: set[str] = set()
        self.inspected = False
        self._number = 0
        self.hosts: dict[str, Host] = {}
        self.operators: set[asyncio.Task[Any]] = set()
        self.finishing = False

    # choices

    def pick(self, count: int) -> int:
        """A number below `count`; raises TapeEnd."""
        if self._at >= len(self._tape):
            raise TapeEnd
        self._at += 1
        return self._tape[self._at - 1] % count

    def one(self, options: Sequence[Any]) -> Any:
        """One of them."""
        return options[self.pick(len(options))]

    def note(self, text: str, *, step: bool = True) -> None:
        """A line of the trace; a step unless said otherwise."""
        self.steps += step
        self.did[text.split(":")[0]] += 1
        self.trace.append(text)

    # the run

    def run(self) -> None:
        """Play the tape, then let everything come to rest and look for lost addresses."""
        random.seed(0)
        try:
            with mock.patch.object(ipam.allocator.worker, "time", _Clock(self.loop)):
                self._play()
                self._finish()
        except AssertionError as error:
            story = "\n".join(self.trace[-40:])
            raise Violation(f"{error}\nafter {self.steps} steps; the last:\n{story}") from error
        finally:
            self._end()

    def _play(self) -> None:
        try:
            self._begin()
            while True:
                self._act()
        except TapeEnd:
            pass

    def _begin(self) -> None:
        self.inspected = self.pick(2) == 1
        for number in range(2 + self.pick(3)):
            name = f"h{number}"
            self.hosts[name] = Host(name, cri=self.pick(3) > 0)
        edits.prepare(self)
        for host in self.hosts.values():
            self._start(host)

    def _act(self) -> None:
        acts = self._acts()
        getattr(self, self.one(acts))()
        self.loop.drain()

    def _acts(self) -> list[str]:
        troubled = [h for h in self.hosts.values() if h.partitioned or h.process is None]
        acts = RECOVERING if troubled else ACTS
        if self.reported:
            acts = acts + ["again"] * 40
        if self.inspected:
            acts = acts + ["edit", "vanish", "new_pod"] * 30
        return acts if self.calls else [act for act in acts if act != "deliver"]

    # steps

    def deliver(self) -> None:
        """One pending call meets its fate."""
        call = self.calls[self.pick(len(self.calls))]
        fate = self._fate(call)
        self.calls.remove(call)
        self._meet(call, fate)

    def _fate(self, call: Call) -> str:
        host = call.who.host
        if host is not None and host.partitioned:
            return str(self.one([LOST, LOST, LATE]))
        fate = str(self.one(FATES))
        if host is None:
            # A tool that failed is run again: only now and then it stops half-way.
            return LOST if fate == CRASH_BEFORE else OK
        return fate

    def _meet(self, call: Call, fate: str) -> None:
        owner = call.who.host.name if call.who.host else "operator"
        self.note(f"{fate}: {call.name} of {owner} ({call.purpose}) {_short(call.changes)}")
        self._delivering = call
        if fate == OK:
            call.happen()
        elif fate in (ANSWER_LOST, CRASH_AFTER):
            call.happen_unheard()
        elif fate == LATE and call.name == "commit":
            self.late.append(call)
        self._delivering = None
        if fate in (CRASH_BEFORE, CRASH_AFTER):
            self._kill(call.who)
        elif fate != OK:
            call.fail()

    def arrive(self) -> None:
        """A commit that hung happens after all."""
        if self.late:
            call = self.late.pop(self.pick(len(self.late)))
            self.note(f"arrives late: {call.who.host.name} {_short(call.changes)}")
            self._unheard(call)

    def _unheard(self, call: Call) -> None:
        self._delivering = call
        call.happen_unheard()
        self._delivering = None

    def wait(self) -> None:
        """Time passes to the next timer."""
        if self.loop.advance():
            self.note(f"time passes: {self.loop.time()}", step=False)

    def new_pod(self) -> None:
        """ADD of a new sandbox, sometimes for a pod that lost its last one."""
        host = self.one(list(self.hosts.values()))
        up = [c for c in self.containers.values() if c.state in (UP, ADDING)]
        if host.process is None or len(up) >= MAX_UP:
            return
        again = [
            c for c in self.containers.values() if c.state in (GONE, FAILED) and c.host == host.name
        ][-4:]
        choice = self.pick(4)
        if again and choice < 2:
            container = self.one(again)
        else:
            self._number += 1
            pod = self.one(again).pod if again and choice == 2 else f"p{self._number}"
            if any(c.pod == pod and c.state in (UP, ADDING) for c in self.containers.values()):
                return
            families = self.one([(4,), (4,), (4, 6)])
            container = Container(container_id(self._number), host.name, pod, families)
            self.containers[container.cid] = container
        if any(
            c.pod == container.pod and c.state in (UP, ADDING) for c in self.containers.values()
        ):
            return
        self.note(f"ADD: {container.cid} on {host.name}", step=False)
        self._add(host, container)

    def again(self) -> None:
        """A runtime ends and adds anew a sandbox that an operator has just found dead."""
        busy = {c.pod for c in self.containers.values() if c.state in (UP, ADDING)}
        found = [
            c
            for cid in sorted(self.reported)
            if (c := self.containers[cid]).state == GONE
            and c.pod not in busy
            and self.hosts[c.host].process
        ]
        if found:
            container = self.one(found)
            host = self.hosts[container.host]
            self.note(f"DEL and ADD again: {container.cid} on {host.name}", step=False)
            self._add(host, container)

    def _add(self, host: Host, container: Container) -> None:
        assert host.process
        if container.state == GONE and container.times:
            # A sandbox that ended comes back by an ADD of its own only after its DEL.
            host.journal.add(container.cid)
        container.state = ADDING
        host.sandboxes.add(container.cid)
        host.process.run(host.process.add(container))

    def end_pod(self) -> None:
        """DEL; while the daemon is away the executable writes the journal."""
        known = [c for c in self.containers.values() if c.state in (UP, FAILED)]
        if not known:
            return
        container = self.one(known)
        host = self.hosts[container.host]
        self.note(f"DEL: {container.cid} on {host.name}", step=False)
        if host.process is None:
            host.sandboxes.discard(container.cid)
            host.journal.add(container.cid)
            container.state = GONE
        else:
            container.state = "deleting"
            host.process.run(host.process.delete(container))

    def vanish(self) -> None:
        """A pod ends and its DEL never comes."""
        known = [c for c in self.containers.values() if c.state in (UP, FAILED)]
        if known:
            container = self.one(known)
            self._lose(container)
            self.note(f"vanishes: {container.cid}")

    def _lose(self, container: Container) -> None:
        host = self.hosts[container.host]
        host.sandboxes.discard(container.cid)
        if host.links.get(container.interface) == container.cid:
            del host.links[container.interface]
        container.state = GONE

    def replay(self) -> None:
        """The journal of one host, every record once."""
        host = self.one(list(self.hosts.values()))
        if host.process:
            for cid in sorted(host.journal):
                container = self.containers[cid]
                host.process.run(
                    host.process.replay(container, lambda name=host.name: self._settled(name))
                )

    def _settled(self, name: str) -> bool:
        return not any(call.who.host.name == name for call in self.late)

    def sweep(self) -> None:
        """The collector of one host, at times with the runtime's list of valid attachments."""
        host = self.one(list(self.hosts.values()))
        if host.process is None or host.process.sweeping:
            return
        listed = None
        if self.pick(3) == 0:
            valid = [c.cid for c in self.containers.values() if c.state in (UP, ADDING)]
            listed = Listed(NETWORK, frozenset(valid))
        self.note(f"sweep: {host.name}", step=False)
        host.process.run(host.process.sweep(listed))

    def edit(self) -> None:
        """An operator changes pools, settings, or claims."""
        edits.edit(self)

    # faults

    def crash(self) -> None:
        """SIGKILL of a daemon."""
        host = self.one(list(self.hosts.values()))
        if host.process:
            self.note(f"crash: {host.name}")
            self._kill(host.process)

    def reboot(self) -> None:
        """The machine loses its links and sandboxes; no DEL ever comes for them."""
        host = self.one(list(self.hosts.values()))
        self.note(f"reboot: {host.name}")
        if host.process:
            self._kill(host.process)
        for container in self.containers.values():
            if container.host == host.name and container.state != GONE:
                self._lose(container)
        host.links.clear()
        host.sandboxes.clear()

    def partition(self) -> None:
        """A host loses the datastore."""
        host = self.one(list(self.hosts.values()))
        host.partitioned = True
        self.note(f"partition: {host.name}")

    def recover(self) -> None:
        """A host finds the datastore again, or its daemon starts."""
        host = self.one([h for h in self.hosts.values() if h.partitioned or h.process is None])
        host.partitioned = False
        self.note(f"recovers: {host.name}", step=False)
        if host.process is None:
            edits.half_claim(self, host)
            self._start(host)

    def news(self) -> None:
        """A host's watch tells it how pools and nodes are now; until then it knows old ones."""
        host = self.one(list(self.hosts.values()))
        if host.process and not host.partitioned:
            reading = self.loop.start(read_facts(self.store, host.name))
            self.loop.drain()
            host.process.facts = reading.result()

    def blind(self) -> None:
        """The node cannot see its links and sandboxes, or can again."""
        host = self.one(list(self.hosts.values()))
        if host.process:
            host.process.blind = not host.process.blind
            self.note(f"blind: {host.name} {host.process.blind}")

    def _kill(self, process: Process) -> None:
        if not process.alive:
            return
        process.host.process = None
        mine = [call for call in self.calls if call.who is process]
        self.calls = [call for call in self.calls if call.who is not process]
        process.kill()
        # What was on its way may arrive at any time, or never.
        self.late += [call for call in mine if call.name == "commit"]
        for container in self.containers.values():
            if container.host == process.host.name and container.state in (ADDING, "deleting"):
                container.state = FAILED

    def _start(self, host: Host) -> None:
        host.process = Process(
            host, self.loop, self.store, self.calls_append, self._triples, self.did
        )

    def calls_append(self, call: Call) -> None:
        """A process began a call."""
        self.calls.append(call)

    def _triples(self) -> frozenset[tuple[IPAddress, str, int | None]]:
        return frozenset((a, h.handle_id, h.sequence) for a, h in self._held.items())

    # the truth

    def _committed(self, changes: Sequence[Change]) -> None:
        now = holders(self.store)
        check_store(self.store)
        if self._delivering and self._delivering.who.host:
            check_commit(self.store, self._delivering, self._held, now, self.loop.time())
        for address, holder in now.items():
            if self._held.get(address) != holder:
                key = next(k for k in self.store.blocks() if within_block(address, k))
                owner = blocks.owner_host(self.store.blocks()[key])
                self.did["own" if owner == holder.node else "borrowed"] += 1
        self._held = now
        check_owners(now, self.containers.values())

    def _finish(self) -> None:
        """Everything comes to rest: nothing may be left of anybody."""
        self.finishing = True
        for host in self.hosts.values():
            host.partitioned = False
        self._settle()
        while self.late:
            self._unheard(self.late.pop())
        check_owners(self._held, self.containers.values())
        for host in self.hosts.values():
            if host.process is None:
                self._start(host)
            assert host.process
            host.process.blind = False
            for container in self.containers.values():
                if container.host == host.name and container.state in (UP, FAILED):
                    host.process.run(host.process.delete(container))
            self._settle()
            for cid in sorted(host.journal):
                host.process.run(host.process.replay(self.containers[cid], lambda: True))
            self._settle()
            host.process.run(host.process.sweep(Listed(NETWORK, frozenset())))
            self._settle()
        if self._held:
            raise Violation(f"MODEL-3: addresses are lost: {self._held}")
        if left := [k for k in self.store.entries if getattr(k, "kind", "") == "WorkloadEndpoint"]:
            raise Violation(f"MODEL-3: endpoints are left: {left}")

    def _settle(self) -> None:
        for _ in range(100_000):
            self.loop.drain()
            if self.calls:
                call = self.calls.pop(0)
                self.steps += 1
                self._delivering = call
                call.happen()
                self._delivering = None
            elif not self.loop.advance():
                return
        raise Violation("MODEL-4: it never comes to rest")

    def _end(self) -> None:
        for host in self.hosts.values():
            if host.process:
                self.calls = []
                host.process.kill()
        for task in self.operators:
            task.cancel()
        self.loop.drain()
        self.loop.close()


def _weighted(weights: Mapping[str, int]) -> list[str]:
    return [name for name, weight in weights.items() for _ in range(weight)]


WEIGHTS = {
    "deliver": 200, "new_pod": 40, "end_pod": 10, "vanish": 3, "replay": 4, "sweep": 6,
    "wait": 8, "edit": 6, "crash": 2, "reboot": 1, "partition": 1, "blind": 1, "arrive": 4,
    "news": 5,
}  # fmt: skip
ACTS = _weighted(WEIGHTS)
RECOVERING = _weighted({**WEIGHTS, "recover": 60})


def _short(changes: Sequence[Change]) -> str:
    parts = []
    for change in changes:
        kind = type(change).__name__.lower()
        where = str(change.key.cidr) if isinstance(change.key, BlockKey) else str(change.key)
        parts.append(f"{kind} {where}@{change.guard}")
    return ", ".join(parts)
