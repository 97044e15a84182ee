"""DEL: remove all that is left of an attachment.

The veth pair goes first, so that its address cannot be given out while a route to the old pod
stands. Then the flows of the address are forgotten. Then one transaction takes address, handle
and endpoint. A missing namespace, link, endpoint or address is no error. What cannot be done now,
for any reason, is written to the journal and the DEL succeeds: a pod whose DEL fails hangs in
"terminating", and asking again would help no more than the journal does.

What the datastore records is given back by `cni.verbs.datastore_release`; a DEL that is repeated
does not ask for it again (`cni.node.released`).

Invariants (tests/cni/test_daemon_add.py, tests/cni/test_daemon_faults.py):
  CNI-20  Only what belongs to this container id and interface is removed.
  CNI-21  A DEL succeeds only if everything is released, or the journal has it on disk.

Source: docs/reference/cni.md#del.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from cni.node.daemon_context import DaemonContext
from cni.node.felix_client import Subject
from cni.request.attachment import Attachment, attachment_of
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.socket import call_log
from cni.socket.trace import Trace
from cni.verbs import datastore_release
from cni.verbs.delegation import Delegate, Line, is_delegated
from cni.veth import orphan_veths
from ipam.records.blocks import IPAddress
from libcalico.errors import InvalidValue, MuslinError
from linux.errors import KernelError

log = call_log.logger(__name__)


async def delete(
    context: DaemonContext,
    request: Request,
    trace: Trace,
    line: Line | None = None,
    netns_fd: int | None = None,
) -> None:
    """Serve one DEL. Raises CNIError only if something is neither removed nor remembered.

    `netns_fd`: the container's namespace, if the runtime still has one.

    The failure of another IPAM plugin is the caller's answer: only the runtime's next DEL can
    run it again, since the plugin lives where the runtime does.
    """
    attachment, own = attachment_of(request, context.node), request.config.ipam.type
    context.records.drop(attachment)
    left: list[Exception] = []
    released: list[IPAddress] = []
    removed = await _unwire(context, attachment, netns_fd, left)
    retracted = False

    def forgot() -> None:
        # Before the datastore tells felix: it would look for the flows once more.
        nonlocal retracted
        if removed:
            retracted = True
            _retract(context, attachment, forgotten=True)

    trace.mark("unwire")
    refused = await _release_elsewhere(request, line)
    try:
        if removed or left or not _is_released(context, request, attachment):
            released = await datastore_release.release(
                context, attachment, unwired=removed, policy_only=not own, forgot=forgot
            )
            context.released.note(attachment)
    except Exception as error:  # noqa: BLE001 - a DEL goes on; kept in `left`, for the journal
        left.append(error)
    trace.mark("commit")
    if not retracted:
        _retract(context, attachment)
    if left:
        await remember(context, request, left)
    if refused:
        raise refused
    if left:
        trace.mark("answer")
        return
    context.journal.released(request)
    trace.mark("answer")
    log.info(
        "attachment removed",
        extra={
            "attachment": str(attachment),
            "container": attachment.container_id,
            "released": ",".join(map(str, released)),
        },
    )


async def replay(context: DaemonContext, request: Request) -> None:
    """A journalled DEL once more; raises while something of it cannot be done.

    Where the kernel keeps the veth pair, the addresses are released all the same.
    """
    attachment = attachment_of(request, context.node)
    context.records.drop(attachment)
    if is_delegated(request):
        log.warning(
            "%s is not asked to release: only a DEL of the runtime reaches it",
            request.config.ipam.type,
            extra={"attachment": str(attachment), "container": attachment.container_id},
        )
    kept: KernelError | None = None
    try:
        await _remove_veth(context, attachment)
    except KernelError as error:
        kept = error
        _retract(context, attachment)
    released = await datastore_release.release(
        context, attachment, policy_only=not request.config.ipam.type
    )
    _retract(context, attachment)
    if kept:
        raise kept
    if released:
        log.info(
            "released what a remembered DEL held",
            extra={"attachment": str(attachment), "released": ",".join(map(str, released))},
        )


def _is_released(context: DaemonContext, request: Request, attachment: Attachment) -> bool:
    """Whether a DEL before this one released everything, and nothing is outstanding."""
    return context.released.holds(attachment) and not context.journal.holds(request)


async def _unwire(
    context: DaemonContext, attachment: Attachment, netns_fd: int | None, left: list[Exception]
) -> bool:
    """Remove the pair; whether one was there. What fails is kept in `left`, for the journal."""
    try:
        removed = await _remove_veth(context, attachment)
        if not removed and netns_fd is not None:
            names = (attachment.host_interface, attachment.ifname)
            removed = orphan_veths.remove_in(context.host, netns_fd, *names)
    except Exception as error:  # noqa: BLE001 - a DEL goes on; kept in `left`, for the journal
        left.append(error)
        # The kernel keeps the pair: felix takes route and policy away before another pod can
        # have its address.
        _retract(context, attachment)
        return False
    return removed


async def _release_elsewhere(request: Request, line: Line | None) -> CNIError | None:
    """Have another IPAM plugin release what it gave; what it refused."""
    if line and is_delegated(request):
        try:
            await Delegate(line, request).delete()
        except CNIError as error:
            return error
    return None


def subject_of(attachment: Attachment) -> Subject:
    """What felix knows the attachment by."""
    key = attachment.endpoint_key
    return Subject(key.namespace, key.name, attachment.container_id)


async def _remove_veth(context: DaemonContext, attachment: Attachment) -> bool:
    return await context.veth_remover.remove(attachment.host_interface, attachment.mark)


def _retract(context: DaemonContext, attachment: Attachment, *, forgotten: bool = False) -> None:
    with contextlib.suppress(InvalidValue):  # felix never heard of what cannot have a name
        context.felix.retract(subject_of(attachment), forgotten=forgotten)


async def remember_undo(
    context: DaemonContext, request: Request, left: Sequence[Exception]
) -> None:
    """`remember` what `left` kept an ADD's undo from, if anything. Never raises: the ADD fails
    with the reason that it has."""
    if not left:
        return
    try:
        await remember(context, request, left)
    except CNIError as error:
        log.error("an undo is lost: %s", error)


async def remember(context: DaemonContext, request: Request, left: Sequence[Exception]) -> None:
    """Write to the journal what `left` kept from being done (CNI-21).

    Raises CNIError 11 if the record is not on the disk.
    """
    reason = "; ".join(str(error) or type(error).__name__ for error in left)
    for error in left:
        if not isinstance(error, (MuslinError, KernelError, OSError)):
            log.error("%s failed unexpectedly", request.command, exc_info=error)
    try:
        await context.in_thread(context.journal.record, request)
    except OSError as failure:
        # A runtime takes "not found" in a DEL's error for success (ERR-17).
        text = f"{reason}; {failure.strerror}"
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            "the release could not be finished, nor written to the journal",
            text.replace("not found", "missing").replace("No such", "missing"),
        ) from failure
    context.journal.wake()
    log.warning(
        "a release is remembered, it is finished later",
        extra={"container": request.container_id, "reason": reason},
    )
