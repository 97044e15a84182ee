"""Addresses of services against a plain model: every order of what happens to services.

Real are the controller and IPAM. Played are a store in memory and the API, which fail and lose
answers, and a watch that tells in order and late; events come between any two of their calls, and
the controller is replaced by another one. Once all is quiet, each service holds and shows exactly
what it asks for, no other one holds anything (LBS-2), and no service shows what it does not hold
unless another implementation wrote it (LBS-3).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any

from msgspec.structs import replace

from controllers.addresses.load_balancers import LoadBalancers
from controllers.addresses.service_addresses import (
    ADDRESSES,
    REQUESTED_ONLY,
    desired_addresses,
    handle_of,
)
from controllers.mirror.objects import Service, ServiceSpec
from ipam.records import blocks
from libcalico.datastore.interface import Change, CommitConflict, Listing, Selection
from libcalico.errors import DatastoreUnavailable
from libcalico.kubernetes.errors import ObjectNotFound, Unreachable, of_status
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Meta
from libcalico.kubernetes.service_objects import Ingress, LoadBalancer, ServiceStatus
from libcalico.model.keys import HandleKey, Key
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_pool
from tests.size import examples

NAMES = ("a", "b", "c")
FOREIGN = "192.0.2.1"


class Store(MemoryStore):
    """Other things happen between two calls."""

    def __init__(self, between: Callable[[], Any]) -> None:
        super().__init__()
        self._between = between

    async def get_many(self, keys: Sequence[Key]) -> Any:
        await self._between()
        return await super().get_many(keys)

    async def list(self, selection: Selection) -> Listing:
        await self._between()
        return await super().list(selection)

    async def commit(self, changes: Sequence[Change]) -> int:
        await self._between()
        return await super().commit(changes)


@dataclass
class Played:
    """A service as the API has it; `ours`: this controller wrote its status last."""

    value: Service
    ours: bool = False


class World:
    """One cluster. `play` plays a story, and checks."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = Store(self.between)
        self.store.before_commit, self.store.after_commit = self._before, self._after
        self.services: dict[str, Played] = {}
        self.untold: deque[Callable[[], None]] = deque()
        self.troubled = self.lively = self.lost = False
        self.uids = self.versions = 0
        self.assign = self.chance.choice(("", REQUESTED_ONLY))
        self.trace: list[str] = []
        self.part = self._made()

    def _made(self) -> LoadBalancers:
        client: Any = self
        return LoadBalancers(client, self.store, assign=self.assign)

    # -- the store and the API ---------------------------------------------------------------------

    async def between(self) -> None:
        if self.lively and self.chance.random() < 0.15:
            self.happen()
        for _ in range(self.chance.randint(0, 2)):
            await asyncio.sleep(0)

    def _before(self, changes: Sequence[Change]) -> None:
        if self.troubled and self.chance.random() < 0.1:
            if self.chance.random() < 0.5:
                raise CommitConflict({c.key: self.store.entries.get(c.key) for c in changes})
            raise DatastoreUnavailable("played")

    def _after(self, _: Sequence[Change]) -> None:
        if self.troubled and self.chance.random() < 0.05:
            raise DatastoreUnavailable("played: the answer was lost")

    async def get(self, _: Any, name: str, namespace: str) -> Service:
        """The API's answer, as of some moment before it comes."""
        await self.between()
        if self.troubled and self.chance.random() < 0.1:
            raise Unreachable("played")
        found = self.services.get(name)
        await self.between()
        if found is None:
            raise ObjectNotFound(f"GET {name}", 404, "NotFound")
        return found.value

    async def patch(self, _: Any, name: str, body: Any, namespace: str, part: str) -> Service:
        """A status is written."""
        await self.between()
        if self.troubled and self.chance.random() < 0.1:
            raise Unreachable("played")
        found = self.services.get(name)
        if found is None:
            raise ObjectNotFound(f"PATCH {name}", 404, "NotFound")
        now = found.value.metadata.resourceVersion
        if body.get("metadata", {}).get("resourceVersion", now) != now:
            raise of_status(f"PATCH {name}", 409, b"{}", 0.0)
        texts = [one["ip"] for one in body["status"]["loadBalancer"]["ingress"]]
        assert _class_of(found.value) != "other", (self.trace, "LBS-3")
        self._put(name, _showing(found.value, texts), ours=True)
        if self.troubled and self.chance.random() < 0.1:
            raise Unreachable("played: the answer was lost")
        return self.services[name].value

    def _put(self, name: str, value: Service, *, ours: bool) -> None:
        self.versions += 1
        metadata = replace(value.metadata, resourceVersion=str(self.versions))
        value = replace(value, metadata=metadata)
        self.services[name] = Played(value, ours)
        self.untold.append(partial(self._tell, name, value))

    def _tell(self, name: str, value: Service | None) -> None:
        if value is None:
            self.part.gone(Name("s", name))
        else:
            self.part.put(Name("s", name), value)

    # -- events ------------------------------------------------------------------------------------

    def happen(self) -> None:
        chance = self.chance
        event = chance.choice((self.create, self.delete, self.edit, self.hear, self.hear))
        name = chance.choice(NAMES)
        self.trace.append(f"{event.__name__} {name}")
        event(name)

    def create(self, name: str) -> None:
        if name in self.services:
            return
        self.uids += 1
        meta = Meta(name=name, namespace="s", uid=f"u{self.uids}")
        value = self._edited(Service(metadata=meta, spec=ServiceSpec()))
        other = _class_of(value) == "other"
        self._put(name, _showing(value, [FOREIGN]) if other else value, ours=False)

    def delete(self, name: str) -> None:
        if self.services.pop(name, None) is not None:
            self.untold.append(partial(self._tell, name, None))

    def edit(self, name: str) -> None:
        found = self.services.get(name)
        if found is None:
            return
        value = self._edited(found.value)
        if value.spec.type == "LoadBalancer" == found.value.spec.type:
            # The API keeps a class while the type stays.
            chosen = found.value.spec.loadBalancerClass
            value = replace(value, spec=replace(value.spec, loadBalancerClass=chosen))
        ours = found.ours
        if value.spec.type != "LoadBalancer":
            value, ours = _showing(value, []), False
        if _class_of(value) == "other" and _class_of(found.value) != "other":
            value, ours = _showing(value, [FOREIGN]), False
        self._put(name, value, ours=ours)

    def _edited(self, value: Service) -> Service:
        chance = self.chance
        type_ = chance.choice(("LoadBalancer",) * 4 + ("ClusterIP",))
        spec = ServiceSpec(
            type=type_,
            loadBalancerClass=chance.choice((None, None, "calico", "other"))
            if type_ == "LoadBalancer"
            else None,
            ipFamilies=chance.choice((["IPv4"], ["IPv4", "IPv6"], ["IPv6"])),
        )
        notes = {}
        if "IPv4" in (spec.ipFamilies or ()) and chance.random() < 0.4:
            notes[ADDRESSES] = f'["10.9.0.{chance.randint(1, 3)}"]'
        return replace(value, spec=spec, metadata=replace(value.metadata, annotations=notes))

    def hear(self, _: str = "") -> None:
        for _n in range(self.chance.randint(1, 3)):
            if self.untold:
                self.untold.popleft()()

    def replaced(self) -> None:
        """Another controller lists, and works."""
        self.trace.append("replaced")
        self.part = self._made()
        self.untold.clear()
        for name, played in self.services.items():
            self._tell(name, played.value)

    def lose_handle(self) -> None:
        """An operator deletes a handle."""
        found = [key for key in self.store.entries if isinstance(key, HandleKey)]
        if found:
            self.trace.append("lose handle")
            self.lost = True
            del self.store.entries[self.chance.choice(found)]

    # -- the controller's work ---------------------------------------------------------------------

    async def work(self) -> None:
        part, queue = self.part, self.part.queue
        while queue._waiting:
            name, _ = queue._waiting.popitem(last=False)
            queue._working.add(name)
            done = await part._settle(name)
            queue._working.discard(name)
            if not done or name in queue._again:
                self.failed.add(name)
            queue._again.discard(name)

    async def sweep(self) -> None:
        part = self.part
        try:
            await part._sweep()
        except (DatastoreUnavailable, CommitConflict, Unreachable):
            return
        for name in list(part._services):
            part.queue.add(name)

    async def round(self) -> None:
        self.failed: set[Name] = set()
        await asyncio.gather(self.work(), self.sweep())
        for name in self.failed:
            self.part.queue.add(name)

    # -- what must hold ----------------------------------------------------------------------------

    def held(self) -> dict[str, set[str]]:
        """Addresses by handle."""
        found: dict[str, set[str]] = {}
        for block in self.store.blocks().values():
            for one in blocks.allocations(block):
                found.setdefault(one.handle_id, set()).add(str(one.address))
        return found

    def check(self) -> None:
        held = self.held()
        shown: list[str] = []
        for name, played in self.services.items():
            value = played.value
            handle = handle_of(name, "s", value.metadata.uid)
            has, shows = held.pop(handle, set()), set(_shown(value))
            desired = desired_addresses(value, self.assign)
            versions = sorted(ip_address(one).version for one in has)
            about = (name, value, has, self.trace)
            if desired is None:
                assert not has, about
            else:
                named = {str(one) for one in desired.fixed}
                assert len(set(versions)) == len(versions), about
                taken = {one for other in held.values() for one in other}
                assert named <= has | taken | set(self.others(name)), about
                assert set(desired.families) - set(versions) <= {4}, about
                assert shows == has, about
            if desired is not None or (played.ours and not self.lost):
                # Without its handle nothing says whose the status of one that asks no more is.
                assert shows <= has, about
                shown += shows
            elif _class_of(value) == "other":
                assert shows == {FOREIGN}, about
        assert not held, (held, self.trace)
        assert len(shown) == len(set(shown)), self.trace

    def others(self, name: str) -> list[str]:
        return [
            address
            for other, played in self.services.items()
            if other != name
            for address in _shown(played.value)
        ]

    async def play(self) -> None:
        await put_pool(self.store, "s4", "10.9.0.0/29", 30, allowedUses=["LoadBalancer"])
        await put_pool(self.store, "s6", "fd09::/124", 126, allowedUses=["LoadBalancer"])
        for _ in range(self.chance.randint(3, 12)):
            self.troubled, self.lively = self.chance.random() < 0.5, True
            self.happen()
            await self.round()
            if self.chance.random() < 0.1:
                self.replaced()
            if self.chance.random() < 0.1:
                self.lose_handle()
        self.troubled = self.lively = False
        while self.untold:
            self.hear()
        for _ in range(4):
            await self.round()
            while self.untold:
                self.hear()
        self.check()


def _class_of(value: Service) -> str:
    return value.spec.loadBalancerClass or ""


def _shown(value: Service) -> list[str]:
    return [one.ip for one in value.status.loadBalancer.ingress or ()]


def _showing(value: Service, texts: Sequence[str]) -> Service:
    ingress = [Ingress(ip=text) for text in texts]
    return replace(value, status=ServiceStatus(loadBalancer=LoadBalancer(ingress=ingress)))


def test_services_hold_and_show_what_they_ask_for_and_nothing_else() -> None:
    for seed in range(examples(300)):
        asyncio.run(World(seed).play())
