"""One ADD under way: what it was asked, what it has done, and how that is taken back.

Tested in tests/cni/test_add_order.py and tests/cni/test_daemon_faults.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from cni.node.daemon_context import DaemonContext
from cni.node.felix_client import Subject
from cni.pods.endpoint import EndpointWriter
from cni.pods.endpoint_requests import EndpointRequest
from cni.pods.pod_source import PodFacts
from cni.request.attachment import Attachment
from cni.request.request import Request
from cni.socket.trace import Trace
from cni.verbs import delete
from cni.verbs.delegation import Line
from cni.verbs.pod_veth import PodVeth
from cni.verbs.sources import Source


@dataclass(slots=True)
class Adding:
    """The call, and what an undo takes back: the veth pair, the addresses, the offer to felix."""

    context: DaemonContext
    request: Request
    netns_fd: int
    trace: Trace
    line: Line
    attachment: Attachment
    veth: PodVeth | None = None
    source: Source | None = None
    offered: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """The pod, as the datastore and felix hear of it.

    `wait`: seconds for felix, 0 for none. `repeated`: the pod of an earlier ADD may run on the
    pair. `stale`: the pair is an older sandbox's.
    """

    facts: PodFacts
    requested: EndpointRequest
    writer: EndpointWriter
    subject: Subject
    wait: float
    repeated: bool
    stale: bool


async def undo(call: Adding) -> None:
    """Take back what this call did, and only that (ADD-07). Never raises."""
    left: list[Exception] = []
    gone = True
    if call.veth is not None:
        try:
            await call.veth.undo()
        except Exception as error:  # noqa: BLE001 - an undo goes on; kept in `left`, for the journal
            left.append(error)
    if call.source is not None:
        try:
            gone = await call.source.undo()
        except Exception as error:  # noqa: BLE001 - an undo goes on; kept in `left`, for the journal
            # Whether the datastore did it is unknown; the journal finds out when it is back.
            left.append(error)
    if call.offered:
        subject = delete.subject_of(call.attachment)
        if gone or (call.veth is not None and call.veth.begun):
            call.context.felix.retract(subject)
        else:
            # The first ADD's pod runs on: felix must not take its routes and policy away (ADD-07).
            call.context.felix.stored(subject, 0)
    await delete.remember_undo(call.context, call.request, left)
