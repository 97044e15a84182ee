"""Addresses of services of type LoadBalancer: from pools for this use, told in their status.

Invariants (tests/controllers/test_load_balancers.py):
  LBS-1  A service keeps its addresses as long as they fit what it asks for.
  LBS-2  What a service held is given back when it is gone, also if it went while no controller
         watched; the API is asked for it first.
  LBS-3  The status of a service that is not ours is not touched, nor one that changed since.
Source: docs/reference/data-model.md#addresses-of-load-balancers.
"""

from __future__ import annotations

import asyncio
import logging

from controllers.addresses.service_addresses import desired_addresses, handle_of, steps
from controllers.addresses.service_allocation import held_by, mend_handles, take_missing
from controllers.mirror.mirror import PERIOD
from controllers.mirror.objects import SERVICES, Service
from controllers.queue import WorkQueue
from ipam.allocator.release import Release, release_by_handle, release_ips
from ipam.records import blocks
from ipam.records.blocks import IPAddress
from ipam.records.errors import IPAMError, NotAllocated
from ipam.records.pools import SERVICE, Pool, usable
from libcalico.datastore.interface import CommitConflict, Datastore, Selection
from libcalico.errors import InvalidValue, MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import Conflict, ObjectNotFound
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.reflector import Reflector
from libcalico.model.keys import BlockKey

log = logging.getLogger(__name__)


class LoadBalancers:
    """Keeps addresses so while `run` runs. `writes` counts changes of both kinds."""

    name = "loadbalancer"

    def __init__(
        self, client: Client, store: Datastore, *, assign: str = "", period: float = PERIOD
    ) -> None:
        self._client, self._store = client, store
        self._assign, self._period = assign, period
        self._services: dict[Name, Service] = {}
        self._handles: dict[Name, str] = {}
        self.queue: WorkQueue[Name] = WorkQueue()
        self.reflector = Reflector(client, SERVICES, self)
        self._listed = asyncio.Event()
        self.swept = 0
        self.writes = self.failures = 0

    @property
    def in_sync(self) -> bool:
        """Whether everything was looked at, and nothing waits."""
        return bool(self.swept) and not len(self.queue)

    def put(self, name: Name, value: Service) -> None:
        """Store a service."""
        if value.spec.type == "LoadBalancer" or name in self._handles:
            self._services[name] = value
            self._handles.setdefault(name, _handle(name, value))
            self.queue.add(name)

    def gone(self, name: Name) -> None:
        """Remove it."""
        if self._services.pop(name, None) is not None:
            self.queue.add(name)

    def listed(self) -> None:
        """Note that the list is complete."""
        self._listed.set()

    async def run(self) -> None:
        """Work until cancelled: one service after the other, for they share blocks."""
        beside = self.reflector.run(), self._resync()
        await self.queue.serve(self._settle, *beside, after=self._listed)

    async def _resync(self) -> None:
        await self._listed.wait()
        while True:
            try:
                await self._sweep()
                self.swept += 1
            except (MuslinError, CommitConflict) as error:
                log.warning("addresses of services are not swept: %s", error)
            except ValueError as error:
                # A stored object that no check has seen: the other controllers go on.
                log.exception("addresses of services are not swept: %s", error)
            for name in list(self._services):
                self.queue.add(name)
            await asyncio.sleep(self._period)

    async def _settle(self, name: Name) -> bool:
        try:
            await self._service(name)
        except CommitConflict:
            return False
        except InvalidValue as problem:
            # Its next change brings it back.
            log.error("no addresses: %s", problem, extra={"service": str(name)})
        except MuslinError as error:
            self.failures += 1
            log.warning("tried again: %s", error, extra={"service": str(name)})
            return False
        except ValueError as error:
            self.failures += 1
            log.exception("tried again: %s", error, extra={"service": str(name)})
            return False
        return True

    async def _service(self, name: Name) -> None:
        if name not in self._handles:
            return  # it went, came and went while its addresses were released
        service = self._services.get(name)
        if service is None or _handle(name, service) != self._handles[name]:
            # It is gone, or another service has its name.
            await self._release(self._handles[name])
            service = self._services.get(name)  # one that returned meanwhile needs a handle
            if service is None:
                del self._handles[name]
                return
            self._handles[name] = _handle(name, service)
        handle = self._handles[name]
        before = await held_by(self._store, handle)
        desired = desired_addresses(service, self._assign)
        if desired is None and not before:
            return
        todo = steps(desired, before, await self._pools())
        # It may show fewer than it holds: not all that it got were told.
        ours = {*_ingress(service)} <= {str(one) for one in before}
        if desired is None and ours:
            # First: once nothing is held, nothing says whose the status is.
            await self._tell(name, service, [])
        if todo.release:
            await release_ips(self._store, [Release(one, handle) for one in todo.release])
            self.writes += 1
        pools = desired.pools if desired else {}
        short = await take_missing(self._store, name, handle, todo, pools, self._wrote)
        if desired is not None:
            await self._tell(name, service, await held_by(self._store, handle))
        if short:
            raise IPAMError(short)

    def _wrote(self, count: int) -> None:
        self.writes += count

    async def _tell(self, name: Name, service: Service, addresses: list[IPAddress]) -> None:
        texts = [str(one) for one in addresses]
        if sorted(texts) == _ingress(service):
            return
        body: dict[str, object] = {
            "status": {"loadBalancer": {"ingress": [{"ip": text} for text in texts]}}
        }
        if version := service.metadata.resourceVersion:
            # Another service may have its name by now, or another process may have the lease.
            body["metadata"] = {"resourceVersion": version}
        fresh: Service | None = None
        try:
            fresh = await self._client.patch(
                SERVICES, name.name, body, name.namespace, part="status"
            )
        except ObjectNotFound:
            pass
        except Conflict:
            fresh = await self._living(name, self._handles[name])
        else:
            self.writes += 1
            log.info("addresses: %s", ", ".join(texts) or "none", extra={"service": str(name)})
            self._learn(name, service, fresh)
            return
        self._learn(name, service, fresh)
        raise CommitConflict({})

    def _learn(self, name: Name, before: Service, fresh: Service | None) -> None:
        """Store what an answer said, unless the watch told something since it was asked for."""
        if self._services.get(name) is not before:
            return
        if fresh is None:
            del self._services[name]
        else:
            self._services[name] = fresh

    async def _release(self, handle: str) -> None:
        try:
            await release_by_handle(self._store, handle)
            self.writes += 1
        except NotAllocated:
            return

    async def _pools(self) -> list[Pool]:
        listing = await self._store.list(Selection("IPPool"))
        return usable(listing.entries)

    async def _sweep(self) -> None:
        """Give back what services held that are gone, or of another type by now (LBS-2).

        In every block: one whose claim was released has no owner, and an address that was asked
        for by name may lie in a node's.
        """
        given: dict[str, dict[BlockKey, list[IPAddress]]] = {}
        left: dict[str, Name] = {}
        stored = (await self._store.list(Selection("Block"))).entries
        known = set(self._handles.values())
        for entry in stored:
            assert isinstance(entry.key, BlockKey)
            if blocks.problem(entry.value):
                continue
            for one in blocks.allocations(entry.value):
                words = one.attributes
                name = Name(words.get("namespace", ""), words.get("service", ""))
                if words.get("type") != SERVICE or not one.handle_id:
                    continue
                there = given.setdefault(one.handle_id, {})
                there.setdefault(entry.key, []).append(one.address)
                if one.handle_id not in known and all(name):
                    left[one.handle_id] = name
        await mend_handles(self._store, given)
        for handle, name in left.items():
            service = await self._living(name, handle)
            if service is None:
                await self._release(handle)
            elif name not in self._handles:
                self._services[name], self._handles[name] = service, handle
                self.queue.add(name)

    async def _living(self, name: Name, handle: str) -> Service | None:
        try:
            service = await self._client.get(SERVICES, name.name, name.namespace)
        except ObjectNotFound:
            return None
        return service if _handle(name, service) == handle else None


def _handle(name: Name, service: Service) -> str:
    return handle_of(name.name, name.namespace, service.metadata.uid)


def _ingress(service: Service) -> list[str]:
    return sorted(one.ip for one in service.status.loadBalancer.ingress or () if one.ip)
