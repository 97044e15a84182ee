"""Several nodes and a crashing datastore call: no address ever has two owners, none is lost.

The production allocator runs on an in-memory store with etcd's semantics. Between steps, and
inside them (a commit that is refused, or applied though the caller hears an error), the model
checks after every single commit:

  IPAM-1   the queue of every block,
  IPAM-5   handles, blocks and endpoints agree,
  IPAM-10  a used block names its owner, and blocks do not overlap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_network
from itertools import combinations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ipam.allocator.service import NodeAllocator
from ipam.records import blocks
from ipam.records.errors import IPAMError
from libcalico.datastore.interface import Change, Put
from libcalico.errors import DatastoreUnavailable
from libcalico.model import IPAMConfig
from libcalico.model.keys import IPAMConfigKey, ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import allocate, put_pool, release
from tests.size import examples
from tests.support.patience import HANG

HOSTS = ("n1", "n2", "n3")


class AllocatorModel(RuleBasedStateMachine):
    """Pods come and go on three nodes; `granted` is what callers believe to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = MemoryStore()
        self.granted: dict[str, tuple[str, set[object]]] = {}
        self.unknown: set[str] = set()
        self.fault = ""
        self.number = 0

    @initialize(strict=st.booleans())
    def begin(self, strict: bool) -> None:
        self.loop.run_until_complete(put_pool(self.store, "p", "10.0.0.0/28", 30))
        self.loop.run_until_complete(put_pool(self.store, "q", "fd00::/124", 126))
        if strict:
            config = IPAMConfig(strict_affinity=True, auto_allocate_blocks=True)
            self.loop.run_until_complete(self.store.commit([Put(IPAMConfigKey(), config)]))
        self.store.before_commit = self.before
        self.store.after_commit = self.after
        self.start()

    def start(self) -> None:
        self.allocators = {host: NodeAllocator(self.store, host) for host in HOSTS}
        self.tasks = [self.loop.create_task(a.run()) for a in self.allocators.values()]

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*self.tasks, return_exceptions=True))

    def before(self, changes: Sequence[Change]) -> None:
        if self.fault == "lost":
            self.fault = ""
            raise DatastoreUnavailable("the request was lost")

    def after(self, changes: Sequence[Change]) -> None:
        self.check()
        if self.fault == "answer":
            self.fault = ""
            raise DatastoreUnavailable("the answer was lost")

    def perform(self, work: Sequence[tuple[str, str, object]]) -> list[object]:
        async def together() -> list[object]:
            async with asyncio.timeout(HANG):
                return list(
                    await asyncio.gather(
                        *(self.allocators[host].perform(request) for host, _, request in work),  # type: ignore[arg-type]
                        return_exceptions=True,
                    )
                )

        return self.loop.run_until_complete(together())

    @rule(
        where=st.lists(st.sampled_from(HOSTS), min_size=1, max_size=5),
        dual=st.booleans(),
        fault=st.sampled_from(["", "", "", "lost", "answer"]),
    )
    def add(self, where: list[str], dual: bool, fault: str) -> None:
        work = []
        for host in where:
            self.number += 1
            name = f"pod{self.number}"
            work.append((host, name, allocate(name, families=(4, 6) if dual else (4,))))
        self.fault = fault
        for (host, name, _), answer in zip(work, self.perform(work), strict=True):
            self.took(host, name, answer)
        self.fault = ""

    def took(self, host: str, name: str, answer: object) -> None:
        if isinstance(answer, DatastoreUnavailable):
            self.unknown.add(name)
        elif isinstance(answer, BaseException):
            assert isinstance(answer, IPAMError), answer
        else:
            self.granted[name] = (host, set(answer.addresses))  # type: ignore[attr-defined]

    @rule(data=st.data())
    def repeat_an_add(self, data: st.DataObject) -> None:
        if self.granted:
            name = data.draw(st.sampled_from(sorted(self.granted)))
            host, addresses = self.granted[name]
            families = tuple(sorted({a.version for a in addresses}))  # type: ignore[attr-defined]
            (answer,) = self.perform([(host, name, allocate(name, families=families))])
            assert set(answer.addresses) == addresses, answer  # type: ignore[attr-defined]

    @rule(data=st.data(), fault=st.sampled_from(["", "", "lost", "answer"]))
    def remove(self, data: st.DataObject, fault: str) -> None:
        known = sorted({*self.granted, *self.unknown})
        if not known:
            return
        chosen = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True))
        work = [(data.draw(st.sampled_from(HOSTS)), name, release(name)) for name in chosen]
        self.fault = fault
        for (_, name, _), answer in zip(work, self.perform(work), strict=True):
            self.granted.pop(name, None)
            self.unknown.add(name)
            if not isinstance(answer, BaseException):
                self.unknown.discard(name)
        self.fault = ""

    @rule()
    def restart(self) -> None:
        """A killed daemon forgets its view."""
        self.stop()
        self.start()

    @invariant()
    def check(self) -> None:
        stored = self.store.blocks()
        held: dict[str, dict[str, int]] = {}
        owner: dict[object, str] = {}
        for block in stored.values():
            assert blocks.problem(block) == "", block
            for item in blocks.allocations(block):
                held.setdefault(item.handle_id, {}).setdefault(block.cidr, 0)
                held[item.handle_id][block.cidr] += 1
                owner[item.address] = item.handle_id.removeprefix("net.")
        for one, other in combinations(stored, 2):
            assert not one.cidr.overlaps(other.cidr)
        assert {name: handle.block for name, handle in self.store.handles().items()} == held
        recorded = {
            key.name: {blocks.parse_address(text) for text in entry.value.spec.ipNetworks}
            for key, entry in self.store.entries.items()
            if isinstance(key, ResourceKey) and key.kind == "WorkloadEndpoint"
        }
        by_owner: dict[str, set[object]] = {}
        for address, name in owner.items():
            by_owner.setdefault(name, set()).add(address)
        assert by_owner == recorded

    @invariant()
    def what_callers_hold_is_theirs(self) -> None:
        everything = [a for _, addresses in self.granted.values() for a in addresses]
        assert len(everything) == len(set(everything)), "an address with two owners"
        for name, (_, addresses) in self.granted.items():
            key = ResourceKey("WorkloadEndpoint", name, "default")
            entry = self.store.entries[key]
            assert {blocks.parse_address(t) for t in entry.value.spec.ipNetworks} == addresses

    def teardown(self) -> None:
        if hasattr(self, "tasks"):
            for name in sorted({*self.granted, *self.unknown}):
                self.perform([("n1", name, release(name))])
            used = sum(blocks.used_count(block) for block in self.store.blocks().values())
            assert used == 0, "an address was lost"
            assert self.store.handles() == {}
            self.stop()
        self.loop.close()


AllocatorModel.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=25, deadline=None
)


@pytest.mark.ipam_model
class TestAllocatorModel(AllocatorModel.TestCase):  # type: ignore[misc, valid-type]
    """The state machine as a test."""


def test_the_pool_of_the_model_is_small_enough_to_run_dry() -> None:
    assert blocks.size(ip_network("10.0.0.0/28")) == 16
