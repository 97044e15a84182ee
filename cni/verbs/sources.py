"""Where an ADD gets its addresses: our own pools, another IPAM plugin, or the pod itself.

All answer twice, because wiring need not wait for the datastore: `planned` says which
addresses it will be, `settled` that they are given. `undo` takes back what came of it.
Where our pools do not give the addresses, the endpoint alone is written.

Tested in tests/cni/test_daemon_add.py and tests/cni/test_delegation.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from cni.node.daemon_context import DaemonContext
from cni.pods.endpoint import EndpointWriter
from cni.request.attachment import Attachment
from cni.request.errors import CNIError, Code
from cni.request.result import Result
from cni.verbs import datastore_release
from cni.verbs.delegation import Delegate
from ipam.allocator.requests import Granted
from ipam.allocator.service import PendingRequest
from ipam.records.blocks import IPAddress
from ipam.records.errors import IPAMError
from libcalico.datastore.interface import CommitConflict, Entry, revision_of
from libcalico.errors import DatastoreUnavailable


class Source(Protocol):
    """The addresses of one ADD."""

    @property
    def extra(self) -> Result:
        """Routes and DNS that come with the addresses."""

    async def planned(self) -> tuple[IPAddress, ...]:
        """The addresses, as far as anyone knows; raises what refuses them."""

    async def settled(self) -> Granted:
        """The addresses, given; they may differ from the planned ones after a lost race."""

    async def undo(self) -> bool:
        """Take back what came of it; raises the error that leaves that open.

        False: an earlier ADD of the attachment had the same, and it stands.
        """


@dataclass(slots=True)
class OwnAddresses:
    """From our pools: one transaction holds addresses and endpoint.

    `stands`: an earlier ADD's pod runs with what it was given.
    """

    context: DaemonContext
    attachment: Attachment
    ticket: PendingRequest
    stands: bool = False
    extra: Result = field(default=Result(), init=False)

    async def planned(self) -> tuple[IPAddress, ...]:
        """What the allocator means to commit."""
        return await self.ticket.tentative

    async def settled(self) -> Granted:
        """What it has committed."""
        return await self.ticket.settled()

    async def undo(self) -> bool:
        """Release, unless nothing was granted or the attachment held it before."""
        if not self.ticket.started:
            self.ticket.abandon()
            return True
        try:
            async with asyncio.timeout(self.context.settings.release_seconds):
                granted = await asyncio.shield(self.ticket.done)
        except IPAMError:
            return True  # refused: there is nothing to give back
        except Exception:
            if self.stands:
                return False  # done or not, the DEL of what stands takes it (ADD-07)
            raise
        if granted.fresh and not self.stands:
            await datastore_release.release(self.context, self.attachment)
            return True
        return False


@dataclass(slots=True)
class _EndpointAlone:
    """Addresses that our pools know nothing of: a guarded commit writes the endpoint."""

    context: DaemonContext
    attachment: Attachment
    writer: EndpointWriter
    extra: Result = field(default=Result(), init=False)
    _given: tuple[IPAddress, ...] = field(default=(), init=False)
    _written: bool = field(default=False, init=False)
    _unknown: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.writer.tells_network = True

    async def settled(self) -> Granted:
        """Write the endpoint."""
        assert self.writer.written is not None
        self._written = self._unknown = True
        try:
            revision = await self.context.store.commit([self.writer.written])
        except CommitConflict as error:
            self._unknown = False
            raise CNIError(
                Code.TRY_AGAIN_LATER, f"the endpoint of {self.attachment} was changed meanwhile"
            ) from error
        self._unknown = False
        written = self.writer.written
        entry = Entry(written.key, written.value, revision_of(revision, written.key), b"")
        return Granted(self._given, entries={written.key: entry})

    async def undo(self) -> bool:
        """Remove the endpoint, if it was written.

        Raises DatastoreUnavailable where it may still be: the journal goes on for a while (CNI-19).
        """
        if self._written:
            await datastore_release.release(self.context, self.attachment)
        if self._unknown:
            raise DatastoreUnavailable("whether the endpoint was written is not known")
        return True


@dataclass(slots=True)
class UnmanagedAddresses(_EndpointAlone):
    """The pod names its addresses, and no pool is asked (`ipAddrsNoIpam`)."""

    fixed: tuple[IPAddress, ...]
    _stood: bool = field(default=False, init=False)

    async def planned(self) -> tuple[IPAddress, ...]:
        """As wanted."""
        self._given = self.fixed
        entry = await self.context.store.get(self.writer.key)
        self._stood = bool(self.writer.recorded(entry))
        self.writer.change(entry, self._given)
        return self._given

    async def undo(self) -> bool:
        """Remove the endpoint, unless an earlier ADD wrote it (ADD-07)."""
        return False if self._stood else await _EndpointAlone.undo(self)


@dataclass(slots=True)
class DelegatedAddresses(_EndpointAlone):
    """From another plugin on the host. `stands`: an earlier ADD's pod runs."""

    delegate: Delegate
    stands: bool = False
    _before: Entry | None = field(default=None, init=False)
    _asked: bool = field(default=False, init=False)

    async def look(self) -> None:
        """Read the endpoint of an earlier ADD, if there is one."""
        self._before = await self.context.store.get(self.writer.key)

    async def ask(self) -> None:
        """Run the plugin. A repeated ADD gives back first: the plugin would refuse it else."""
        if self.writer.recorded(self._before):
            self.delegate.configured()  # what this refuses must not cost the pod its lease
            await self.delegate.delete()
        self._asked = True
        try:
            self.extra = await self.delegate.add()
        except CNIError:
            self._asked = False  # its own failure undid itself
            raise
        self._given = tuple(ip.address.ip for ip in self.extra.ips)

    async def planned(self) -> tuple[IPAddress, ...]:
        """What the plugin gave."""
        self.writer.change(self._before, self._given)
        return self._given

    async def undo(self) -> bool:
        """The plugin's DEL, also where its answer was not waited for, then the endpoint.

        Of a pod that runs, the DEL of what stands takes both (ADD-07).
        """
        if self.stands:
            return False
        if self._asked:
            await self.delegate.delete()
        return await _EndpointAlone.undo(self)
