"""Policy only: another plugin (ptp, flannel) connects the pod, felix enforces its policy.

The network list has `{"type": "calico"}` without `ipam` behind the plugin that makes the
interface. ADD writes the endpoint with the addresses of prevResult and the name of the host
interface that is the other end of CNI_IFNAME, waits until felix has it in force, and passes
prevResult on. Felix finds the interface by its prefix (`interfacePrefix`); one that it does not
take for a workload's fails the ADD, because policy would not be enforced there.

Invariants (tests/cni_conformance/test_chains.py):
  CNI-95  ADD succeeds only on an interface where felix can enforce: the end of a veth whose
          other end stands on the host and is no bridge port.
  CNI-96  Neither ADD, DEL nor an undo touches a link, address or route.

Source: docs/reference/data-model.md#cni-configuration; docs/architecture.md.
"""

from __future__ import annotations

import asyncio
import logging

from cni.node.daemon_context import DaemonContext, check_node_name, require_known_node
from cni.node.felix_client import Subject
from cni.pods.endpoint import EndpointWriter
from cni.request.attachment import attachment_of, check_endpoint_name
from cni.request.chain import own_index, previous_of
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.request.result import Result
from cni.socket.trace import Trace
from cni.verbs import datastore_release, delete, network_profile
from cni.veth import pod_end
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import CommitConflict, revision_of
from libcalico.errors import DatastoreUnavailable
from linux import links
from linux.links import Link

log = logging.getLogger(__name__)


async def add(
    context: DaemonContext, request: Request, netns_fd: int, trace: Trace, previous: Result
) -> Result:
    """Serve one ADD; raises CNIError, with the endpoint taken back."""
    attachment, settings = attachment_of(request, context.node), context.settings
    check_node_name(request.config.document, settings, context.node)
    check_endpoint_name(attachment)
    context.check_store(request.config.store)
    await require_known_node(context, request.config.document, settled=False)
    inner, outer = _ends(context, request, netns_fd)
    await network_profile.ensure(context, request)
    facts = await context.pod_source.facts(request)
    writer = EndpointWriter(attachment, facts, inner.mac, interface=outer.name)
    addresses = addresses_of(request, previous)
    trace.mark("names")
    subject, wait = delete.subject_of(attachment), request.config.policy_setup_timeout
    stood, unknown = False, None
    try:
        async with asyncio.timeout(settings.datastore_seconds):
            entry = await context.store.get(writer.key)
            stood = bool(writer.recorded(entry))
            writer.change(entry, addresses)
            assert writer.written is not None
            context.felix.offer(subject, writer.stored_bytes())
            unknown = True
            revision = await context.store.commit([writer.written])
            unknown = False
        trace.mark("commit")
        if wait:
            await _in_force(context, str(attachment), subject, wait)
            trace.mark("in_force")
    except CommitConflict as error:
        if stood:  # the first ADD's pod runs on (ADD-07)
            context.felix.stored(subject, 0)
        else:
            context.felix.retract(subject)
        raise CNIError(
            Code.TRY_AGAIN_LATER, f"the endpoint of {attachment} was changed meanwhile"
        ) from error
    except BaseException:
        if stood:
            context.felix.stored(subject, 0)
        elif unknown is not None:
            await asyncio.shield(context.keep(_undo(context, request, unknown)))
        raise
    context.felix.stored(subject, revision_of(revision, writer.key))
    context.journal.drop(request)
    log.info(
        "policy added",
        extra={
            "attachment": str(attachment),
            "container": attachment.container_id,
            "addresses": ",".join(map(str, addresses)),
            "link": outer.name,
        },
    )
    return previous


async def _in_force(context: DaemonContext, text: str, subject: Subject, seconds: float) -> None:
    try:
        refusal = await context.felix.in_force(subject, seconds)
    except TimeoutError:
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            f"the policy of {text} was not in force within {seconds:g} s",
            "look at the log of calico-felix and http://localhost:9099/readiness",
        ) from None
    if refusal:
        raise CNIError(Code.TRY_AGAIN_LATER, f"felix cannot put {text} in force: {refusal}")


def addresses_of(request: Request, previous: Result) -> tuple[IPAddress, ...]:
    """The addresses that prevResult gives the interface; raises CNIError 7 if there is none."""
    own = own_index(request, previous)
    addresses = tuple(ip.address.ip for ip in previous.ips if ip.interface in (None, own))
    if not addresses:
        raise CNIError(
            Code.INVALID_CONFIG, f"prevResult lists no address of interface {request.ifname}"
        )
    return addresses


def _ends(context: DaemonContext, request: Request, netns_fd: int) -> tuple[Link, Link]:
    """The two ends of the pod's veth pair as the kernel has them (CNI-95)."""
    with pod_end.open_pod(netns_fd) as pod:
        inner = links.get(pod, request.ifname)
    if inner is None:
        raise CNIError(
            Code.INVALID_CONFIG,
            f"prevResult lists interface {request.ifname}, and the container has none",
        )
    outer = links.get(context.host, inner.peer_index) if inner.peer_index else None
    paired = outer is not None and outer.kind == "veth" and outer.peer_index == inner.index
    if inner.kind != "veth" or outer is None or not paired:
        raise CNIError(
            Code.CALICO,
            f"interface {request.ifname} is no veth with its other end on the host: "
            "policy cannot be enforced there",
            f"it is a {inner.kind or 'link'}",
        )
    if outer.master:
        raise CNIError(
            Code.CALICO,
            f"host interface {outer.name} is the port of a bridge: policy cannot be enforced there",
            "let ptp make the interface, not bridge",
        )
    return inner, outer


async def _undo(context: DaemonContext, request: Request, unknown: bool) -> None:
    """Take the endpoint back. `unknown`: it may still be written, after this (CNI-19)."""
    attachment = attachment_of(request, context.node)
    left: list[Exception] = []
    if unknown:
        left.append(DatastoreUnavailable("whether the endpoint was written is not known"))
    try:
        await datastore_release.release(context, attachment, unwired=True, policy_only=True)
    except Exception as error:  # noqa: BLE001 - an undo goes on; kept in `left`, for the journal
        left.append(error)
    context.felix.retract(delete.subject_of(attachment))
    await delete.remember_undo(context, request, left)


async def check(context: DaemonContext, request: Request, netns_fd: int | None) -> None:
    """Serve one CHECK: endpoint, host interface and policy are as ADD left them."""
    previous = previous_of(request)
    assert previous is not None
    attachment = attachment_of(request, context.node)
    if netns_fd is None:
        raise CNIError(
            Code.CALICO,
            f"CHECK of {attachment}: the network namespace {request.netns} does not exist",
        )
    _, outer = _ends(context, request, netns_fd)
    expected = {str(address) for address in addresses_of(request, previous)}
    entry = await context.store.get(attachment.endpoint_key)
    if entry is None or entry.value.spec.containerID != attachment.container_id:
        raise CNIError(
            Code.CALICO,
            f"CHECK of {attachment}: WorkloadEndpoint {attachment.endpoint_key.name} "
            + ("does not exist" if entry is None else "belongs to another container"),
        )
    spec = entry.value.spec
    recorded = {text.partition("/")[0] for text in spec.ipNetworks}
    if spec.interfaceName != outer.name or not expected <= recorded:
        raise CNIError(
            Code.CALICO,
            f"CHECK of {attachment}: WorkloadEndpoint {attachment.endpoint_key.name} names "
            f"{spec.interfaceName} with {', '.join(sorted(recorded))}, "
            f"not {outer.name} with {', '.join(sorted(expected))}",
        )
    if request.config.policy_setup_timeout:
        subject = delete.subject_of(attachment)
        try:
            await _in_force(context, str(attachment), subject, context.settings.check_seconds)
        finally:
            context.felix.stop_waiting(subject)
