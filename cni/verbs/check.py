"""CHECK: is the attachment still as ADD left it?

Three places are asked: the kernel at both ends of the veth pair, the datastore, and felix. What
felix repairs by itself within a moment (host routes, settings of the host's end, policy) is
waited for, a few seconds at most, because a runtime may ask right after ADD (CHK-08). All
that differs is named in one error.

Invariants (tests/cni/test_check.py):
  CNI-50  CHECK changes nothing, in the kernel and in the datastore.
  CNI-53  Code 3 ("unknown, nothing to clean up") only when nothing at all is held; while the
          datastore is away that is not known, and the answer is 11.

Source: docs/reference/cni.md#check; comparisons in `cni.verbs.comparison`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from cni.node.daemon_context import DaemonContext
from cni.request import chain
from cni.request.attachment import Attachment, attachment_of, check_endpoint_name
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.socket.trace import Trace
from cni.verbs import delete, policy_only
from cni.verbs.attachment_state import (
    HostSide,
    PodSide,
    Stored,
    host_side,
    pod_side,
    read_stored,
    remains,
)
from cni.verbs.comparison import (
    Complaint,
    Expected,
    expected_of,
    host_complaints,
    pod_complaints,
    stored_complaints,
)
from cni.verbs.delegation import Delegate, Line, is_delegated
from cni.verbs.failures import as_cni_error
from cni.veth.pod_end import open_pod
from libcalico.errors import MuslinError
from linux.errors import KernelError
from linux.netlink import Socket

HASTE = 0.2
"""How long felix is asked, in seconds, when something is wrong anyway."""


@dataclass(frozen=True, slots=True)
class _Kernel:
    host: HostSide
    pod: PodSide

    def complaints(self, expected: Expected, born: str) -> list[Complaint]:
        return [
            *pod_complaints(expected, self.pod, self.host, born),
            *host_complaints(expected, self.host),
        ]


async def check(
    context: DaemonContext,
    request: Request,
    netns_fd: int | None,
    trace: Trace,
    seconds: float,
    line: Line,
) -> None:
    """Serve one CHECK within `seconds`; `netns_fd` None: the namespace is gone.

    Raises CNIError: 7 and 6 for prevResult, 3 for an unknown container, 11 while datastore or
    felix do not answer, 100 naming what differs.
    """
    attachment = attachment_of(request, context.node)
    check_endpoint_name(attachment)
    previous = chain.previous_of(request)
    if not request.config.ipam.type and previous and chain.is_policy_only(request, previous):
        try:
            await policy_only.check(context, request, netns_fd)
        except (MuslinError, KernelError, OSError) as error:
            raise as_cni_error(error) from error
        return
    expected = expected_of(request, attachment)
    if is_delegated(request):
        await Delegate(line, request, context.cluster.pod_cidrs(context.node)).check()
    until = asyncio.get_running_loop().time() + min(context.settings.check_seconds, seconds)
    try:
        if netns_fd is None:
            await _without_namespace(context, request, expected, until)
        else:
            await _compare(context, request, expected, netns_fd, trace, until)
    except (MuslinError, KernelError, OSError) as error:
        raise as_cni_error(error) from error


async def _compare(
    context: DaemonContext,
    request: Request,
    expected: Expected,
    netns_fd: int,
    trace: Trace,
    until: float,
) -> None:
    attachment = expected.attachment
    stored = await read_stored(context, attachment, until)
    trace.mark("datastore")
    endpoint = stored.endpoint if stored else None
    born = endpoint.spec.mac if endpoint else ""
    kernel, complaints = await _settled(context.host, netns_fd, expected, born, until)
    trace.mark("kernel")
    if stored is not None:
        if kernel.pod.link is None:
            _refuse_unknown(context, request, kernel.host, stored)
        complaints += stored_complaints(expected, stored)
    policy = await _policy(context, attachment, until, hasty=bool(complaints))
    trace.mark("in_force")
    if isinstance(policy, Complaint) and not policy.settles:
        complaints.append(policy)
    if complaints:
        listing = "; ".join(map(str, complaints))
        unseen = "" if stored is not None else "the datastore did not answer and was not compared"
        raise CNIError(Code.CALICO, f"CHECK of {attachment}: {listing}", unseen)
    if stored is None:
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            f"CHECK of {attachment}: the datastore does not answer, try again later",
            "interfaces, addresses and routes are as they should be",
        )
    if policy is not None:
        raise CNIError(Code.TRY_AGAIN_LATER, f"CHECK of {attachment}: {policy}")


async def _settled(
    host: Socket, netns_fd: int, expected: Expected, born: str, until: float
) -> tuple[_Kernel, list[Complaint]]:
    """The kernel's facts, as soon as felix has made or repaired its part of them."""
    loop, pause = asyncio.get_running_loop(), 0.02
    with open_pod(netns_fd) as pod:
        while True:
            kernel = _Kernel(_host_side(host, expected), pod_side(pod, expected.attachment.ifname))
            complaints = kernel.complaints(expected, born)
            final = not complaints or not all(complaint.settles for complaint in complaints)
            if final or loop.time() + pause > until:
                return kernel, complaints
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.25)


def _host_side(host: Socket, expected: Expected) -> HostSide:
    ips = [address.ip for address in expected.addresses]
    return host_side(host, expected.attachment.host_interface, ips)


async def _policy(
    context: DaemonContext, attachment: Attachment, until: float, *, hasty: bool
) -> Complaint | None:
    """None when felix has the endpoint in force; `settles` when it has not said so yet."""
    left = max(0.05, until - asyncio.get_running_loop().time())
    subject = delete.subject_of(attachment)
    try:
        refusal = await context.felix.in_force(subject, min(left, HASTE) if hasty else left)
    except TimeoutError:
        state = "did not say" if context.felix.connected else "cannot be reached to say"
        return Complaint(f"calico-felix {state} that its policy is in force", settles=True)
    finally:
        context.felix.stop_waiting(subject)
    return Complaint(f"its policy is not in force: {refusal}") if refusal else None


async def _without_namespace(
    context: DaemonContext, request: Request, expected: Expected, until: float
) -> None:
    stored = await read_stored(context, expected.attachment, until)
    if stored is None:
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            "the network namespace of CNI_NETNS does not exist, and the datastore does not "
            "answer, try again later",
        )
    host = _host_side(context.host, expected)
    _refuse_unknown(context, request, host, stored)
    raise CNIError(
        Code.CALICO,
        f"CHECK of {expected.attachment}: the network namespace {request.netns} does not exist",
        "still held: " + ", ".join(_held(context, request, host, stored)),
    )


def _refuse_unknown(
    context: DaemonContext, request: Request, host: HostSide, stored: Stored
) -> None:
    """Raise code 3 if nothing is held for this container (CNI-53)."""
    if not list(_held(context, request, host, stored)):
        raise CNIError(
            Code.UNKNOWN_CONTAINER,
            f"container {request.container_id} is unknown: nothing is held for it",
        )


def _held(
    context: DaemonContext, request: Request, host: HostSide, stored: Stored
) -> Iterator[str]:
    mark = attachment_of(request, context.node).mark
    yield from remains(mark, host, stored, request.container_id)
    if context.journal.holds(request):
        yield "a release that waits for the datastore"
