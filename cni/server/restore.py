"""The pods of this node that run have their endpoint and addresses in the datastore.

An operator may delete there what a running pod has: with its Node, its block, its handle, or its
endpoint by name. Then felix takes its rules away, and its address is free for another. So what is
remembered of each attachment (`cni.node.records`), and whose link still stands here with its mark,
is compared with the datastore: at start, when the Node was missing, when an address was given out
twice, when a block was made anew (by another node, where its claim was deleted too), a while after
block and claim went with all that the datastore had of their pods, a while after felix told that an
endpoint went, when the datastore was put back to an earlier state, and every `AUDIT` seconds. What
is missing is put back by the node that has the pod: address under the same handle, and the endpoint
as it was. What another one holds by now cannot be; that is a condition, and the pod has to be
started again.

On the Kubernetes datastore the endpoint is the Pod: without one nothing is put back.

Invariants (tests/cni/test_restore.py):
  CNI-102  Only an attachment whose link stands with its mark is put back, and only while its
           container's lock is held. One whose link is away is forgotten after two looks that are
           GAP_SECONDS apart: a link may be renamed for a moment. Until then its address is kept
           where a block is made anew.
  CNI-103  Nothing that is there is changed: neither another container's endpoint nor another
           handle's address. An object that cannot be read keeps its own pods out, and no others.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from functools import partial

from cni.node.daemon_context import DaemonContext
from cni.node.felix_client import Subject
from cni.node.own_machine import why_foreign
from cni.node.records import Record
from cni.server.put_back import PutBack, attributes_of
from cni.server.stored_attachments import StoredAttachments
from cni.socket.container_locks import Acquire
from cni.verbs.recorded import kernel_marks, learn
from ipam.allocator.restoration import Use
from ipam.collector.collector import GAP_SECONDS
from libcalico.errors import MuslinError
from libcalico.model.keys import IPNetwork, ResourceKey
from libcalico.process.backoff import Backoff
from libcalico.process.counters import Gauge
from linux.errors import KernelError

log = logging.getLogger(__name__)

AUDIT = 300.0
"""Seconds between two comparisons, up to a fifth less so that nodes do not ask together. One reads
two objects of each pod: at 1,000 nodes of 110 pods that is some 800 reads a second."""
AGAIN, SELDOM = 5.0, 60.0
"""Seconds until what could not be put back is tried again, that alone: at first, and at most."""
REMOVAL = 15.0
"""Seconds that the removal of a node may take, from its first claim to its Node."""
LOST = Gauge("calico_cni_attachments_lost", "Running attachments that cannot be put back")


class Restorer:
    """`run` keeps comparing. `lost` names what cannot be put back, and why."""

    def __init__(
        self, context: DaemonContext, container_lock: Acquire, *, audit: float = AUDIT
    ) -> None:
        self._context, self._audit = context, audit
        self._records = context.records
        self._stored = StoredAttachments(context)
        self._put_back = PutBack(context, container_lock, self._stored).put_back
        self._handles_too = not self._stored.native
        """Whether the next comparison reads handles: where a block is made anew they may be gone
        as well, and a DEL would leave what no handle names."""
        self.lost: dict[str, str] = {}
        self._lost: list[Record] = []
        self._away: dict[ResourceKey, tuple[Record, float]] = {}
        """Records whose link is away, and since when."""
        self._trouble = ""
        self.gap = 0.0
        """Seconds from the last comparison to the next."""
        self.looked = 0
        self._later: asyncio.TimerHandle | None = None
        context.felix.on_vanished = self.vanished
        context.cluster.node_came = self._records.comparison_due.set
        own = context.allocator.own
        own.remembered, own.made_again = self.remembered, self.compare_soon
        own.all_gone = self.compare_later
        own.foreign = partial(why_foreign, context, runtime=True)

    def remembered(self, cidr: IPNetwork) -> list[Use]:
        """The addresses of a block that attachments of this node have, while they may stand.

        For a block that is made anew where its endpoints were deleted as well.
        """
        records = [
            (record, address)
            for record in self._records.all()
            for address in record.addresses
            if address.version == cidr.version and address in cidr
        ]
        if not records:
            return []
        try:
            marks = kernel_marks()
        except (KernelError, OSError) as error:
            log.warning("whether attachments still stand is not known, so they do: %s", error)
            standing = records
        else:
            gone = self._gone([record for record, _ in records], marks)
            standing = [one for one in records if one[0] not in gone]
        return [
            Use(address, record.attachment.handle_id, attributes_of(record))
            for record, address in standing
        ]

    def compare_soon(self) -> None:
        """Compare soon, handles too: a block was made anew, and handles of its pods may be gone."""
        self._handles_too = True
        self._records.comparison_due.set()

    def vanished(self, subject: Subject) -> None:
        """felix tells that the datastore lost an endpoint, which no DEL asked for.

        It may be the removal of this node that takes it. However many go: one comparison.
        """
        key = ResourceKey("WorkloadEndpoint", subject.name, subject.namespace)
        if not self._stored.native and self._records.knows_endpoint(key, subject.container_id):
            self.compare_later()

    def compare_later(self) -> None:
        """Compare when a removal of this node is over, after which there is no Node."""
        if self._later is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(REMOVAL, self._compare_now_it_is_over)

    def _compare_now_it_is_over(self) -> None:
        self._later = None
        self.compare_soon()

    async def run(self) -> None:
        """Compare, and put back what is missing, until cancelled."""
        await self._context.cluster.wait_in_sync()
        again = Backoff(AGAIN, SELDOM)
        loop, known, due = asyncio.get_running_loop(), False, 0.0
        while True:
            whole = self._records.comparison_due.is_set() or loop.time() >= due
            self._records.comparison_due.clear()
            left = True
            try:
                if not known:
                    await learn(self._context)
                    known = True
                if whole:
                    due = 0.0  # until it was possible
                    if await self.look():
                        due = loop.time() + self._audit * random.uniform(0.8, 1.0)
                else:
                    await self.look_again()
                left, self._trouble = bool(self._lost or self._away) or not due, ""
            except (MuslinError, KernelError, OSError, TimeoutError) as error:
                self._complain(str(error) or "no answer in time")
            if left:
                self.gap = self._sooner(again.next())
            else:
                again.reset()
                self.gap = max(0.0, due - loop.time())
            try:
                async with asyncio.timeout(self.gap):
                    await self._records.comparison_due.wait()
            except TimeoutError:
                pass

    def _complain(self, why: str) -> None:
        if why != self._trouble:
            log.warning("pods of this node cannot be compared with the datastore: %s", why)
        self._trouble = why

    async def look(self) -> bool:
        """Compare once, and put back what is missing; False where that is not possible now.

        Raises MuslinError, KernelError, OSError.
        """
        if not await self._possible():
            return False
        # What a block that is made anew from here on asks for is the next comparison's.
        handles, self._handles_too = self._handles_too, not self._stored.native
        whole = False
        try:
            whole = await self._look(self._records.all(), handles=handles)
        finally:
            self._handles_too |= handles and not whole
        return True

    async def look_again(self) -> None:
        """Compare only those that could not be put back the last time, or whose link was away."""
        if await self._possible():
            again = [*self._lost, *(record for record, _ in self._away.values())]
            still = [one for one in self._records.all() if one in again]
            await self._look(still, handles=True)

    async def _possible(self) -> bool:
        """Whether the datastore is not locked, and this machine is known to be the node."""
        context = self._context
        if context.cluster.locked or not context.cluster.has_node(context.node):
            return False
        if not self._records.all():
            return True
        return not await why_foreign(context, runtime=True, unknown=False)

    async def _look(self, records: list[Record], *, handles: bool) -> bool:
        """Compare these records; whether all were compared, and nothing is missing any more."""
        kept = self._records.all()
        self._away = {key: one for key, one in self._away.items() if one[0] in kept}
        if not records:
            self._lost = []
            self._tell({})
            return True
        # In this order: what is remembered by now had its link before.
        marks = await self._context.in_thread(kernel_marks)
        for record in self._gone(records, marks):
            # Without the container's lock, which the collector would take for a call of it.
            self._records.drop_this(record)
            del self._away[record.key]
        standing = [one for one in records if one.stands(marks)]
        missing = await self._stored.missing(standing, handles=handles)
        lost: dict[str, str] = {}
        self._lost = []
        for record in missing:
            try:
                await self._put_back(record)
            except (MuslinError, TimeoutError) as error:
                lost[str(record.attachment)] = str(error) or "no answer in time"
                self._lost.append(record)
        self._tell(lost)
        self.looked += 1
        return not lost and not self._stored.unread

    def _sooner(self, pause: float) -> float:
        """The pause, cut where a link will have been away for long before its end.

        Where that is past already, the last look was not possible: it is not asked for at once.
        """
        now = time.monotonic()
        ends = (since + GAP_SECONDS - now for _, since in self._away.values())
        return min((end for end in ends if 0 < end < pause), default=pause)

    def _gone(self, records: list[Record], marks: Mapping[str, str]) -> list[Record]:
        """Those of the records whose link has been away for long."""
        now = time.monotonic()
        gone = []
        for record in records:
            before, since = self._away.get(record.key, (None, now))
            if record.stands(marks):
                self._away.pop(record.key, None)
            elif before is not record:
                self._away[record.key] = record, now
            elif now - since >= GAP_SECONDS:
                gone.append(record)
        return gone

    def _tell(self, lost: dict[str, str]) -> None:
        for name, why in lost.items():
            if name not in self.lost:
                log.error("%s runs and cannot be put back into the datastore: %s", name, why)
        self.lost = lost
        LOST.set(len(lost))
