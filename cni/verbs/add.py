"""ADD: connect one interface of one container.

The order is measured (pod start takes a few milliseconds): names and MAC are chosen, the
allocator plans an address and starts its one transaction, and while that travels the cable
is made and felix hears of the endpoint. Only when the transaction is committed and felix has
the endpoint in force is the runtime answered, so that a pod never sends a packet that no
policy covers.

Invariants (tests/cni/test_daemon_add.py, tests/cni/test_daemon_faults.py):
  CNI-30  ADD returns success only for an address that the datastore has given to this handle,
          and whose rules felix has reported in force (unless told not to wait). The routes that
          felix leaves to it are written after that and before the answer. What felix says of a
          link that an older sandbox left is no word about the new one: that link goes first.
  CNI-31  A failed or cancelled ADD leaves nothing: the cable is removed, the addresses and the
          endpoint are released by one transaction or, if the datastore does not answer, by a
          record in the journal. The first error is the one reported (ADD-05).
  CNI-32  A repeated ADD of the same attachment keeps its addresses and its cable (ADD-04).

Source: conformance section 10, data model 5.3.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from types import TracebackType

from cni.node.daemon_context import READY_SECONDS, DaemonContext, check_node_known, check_node_name
from cni.node.felix_client import Subject
from cni.node.records import Record
from cni.pods.endpoint import EndpointWriter
from cni.pods.pod_requests import (
    AddressRequest,
    EndpointRequest,
    address_request,
    check_delegated,
    check_families,
    endpoint_request,
)
from cni.pods.pod_source import PodFacts
from cni.request import chain, readiness_gates
from cni.request.attachment import Attachment, attachment_of, check_endpoint_name
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.request.result import Interface, IPConfig, Result
from cni.socket import call_log
from cni.socket.trace import Trace
from cni.verbs import delete, network_profile, policy_only
from cni.verbs.delegation import Delegate, Line, destinations, is_delegated
from cni.verbs.sources import DelegatedAddresses, OwnAddresses, Source, UnmanagedAddresses
from cni.veth import extra_routes, wiring
from ipam.allocator.requests import Allocate
from ipam.records.blocks import IPAddress
from ipam.records.errors import IPAMError, NoPool
from ipam.records.naming import pod_attributes
from libcalico.errors import DatastoreError, MuslinError
from libcalico.model.keys import IPNetwork
from linux import links
from linux.errors import KernelError

log = call_log.logger(__name__)


@dataclass(slots=True)
class _Progress:
    """What an ADD has done so far, for its undo."""

    attachment: Attachment
    source: Source | None = None
    wired: bool = False
    offered: bool = False


async def add(
    services: DaemonContext,
    request: Request,
    netns_fd: int,
    trace: Trace,
    seconds: float,
    line: Line,
) -> Result:
    """Serve one ADD within `seconds`; raises CNIError with everything undone (CNI-31).

    `line` leads to the executable, which runs another IPAM plugin where one is configured.
    """
    call_log.wish(request.config.log_level)
    progress = _Progress(attachment_of(request, services.node))
    try:
        try:
            async with asyncio.timeout(seconds):
                return await _add(services, request, netns_fd, trace, progress, line)
        except BaseException:
            # Shielded: the runtime may have gone away, the undo happens all the same.
            await asyncio.shield(services.keep(_undo(services, request, progress)))
            raise
    except (MuslinError, KernelError, TimeoutError, OSError) as error:
        raise as_cni_error(error) from error


async def _add(
    services: DaemonContext,
    request: Request,
    netns_fd: int,
    trace: Trace,
    progress: _Progress,
    line: Line,
) -> Result:
    attachment, settings = progress.attachment, services.settings
    previous = chain.previous_of(request)
    if chain.is_policy_only(request, previous):
        assert previous is not None
        return await policy_only.add(services, request, netns_fd, trace, previous)
    check_node_name(request.config.document, settings, services.node)
    check_endpoint_name(attachment)
    services.check_store(request.config.store)
    patience = asyncio.get_running_loop().time() + settings.datastore_seconds
    await services.cluster.require_ready(min(READY_SECONDS, settings.datastore_seconds))
    await services.cluster.require_settled(min(READY_SECONDS, settings.datastore_seconds))
    await services.cluster.find_node()
    check_node_known(request.config.document, services.cluster, services.node)
    if request.config.readiness_gates:
        await readiness_gates.wait(request.config.readiness_gates)
    if services.journal.holds(request):
        # An earlier attempt of this very attachment may still come to light: take it back first.
        async with _Datastore(patience):
            await delete.release(services, attachment)
    if network_profile.is_wanted(services, request):
        async with _Datastore(patience):
            await network_profile.ensure(services, request)
    facts = await services.pod_source.facts(request)
    wishes = endpoint_request(request, facts)
    wiring.require_netns(netns_fd)
    with ExitStack() as opened:
        cable = _cable(services, request, attachment, wishes.mac)
        pod: wiring.PodSocket | None = None
        ends: wiring.Ends | None = None
        taken = wiring.is_taken(services.host, cable.host_interface)
        if is_delegated(request) or taken:
            # There may be a cable of this attachment, and then it keeps what it has.
            pod = opened.enter_context(wiring.open_pod(netns_fd))
            ends = wiring.existing(services.host, pod, cable)
        writer = EndpointWriter(attachment, facts, ends.mac if ends else cable.mac, wishes)
        trace.mark("names")
        wait = request.config.policy_setup_timeout
        subject = delete.subject_of(attachment)
        # The pod of an earlier ADD may run on this cable: felix hears what is committed, not what
        # would be planned for a new one.
        repeated = ends is not None
        # An older sandbox's link has the name: what felix says while that stands goes with it.
        stale = taken and not repeated

        def offer() -> None:
            if stale and wait:
                # Asked first, felix hears at once what the kernel has told of the old link.
                services.felix.expect(subject)
            _offer(services, subject, writer, wait, progress)

        early = None if repeated or stale else offer
        source = _source(services, request, attachment, facts, writer, line, wishes, early)
        progress.source = source
        if request.config.ipam.type == "dhcp" and pod is not None and ends is None:
            # It asks for its lease on the container's interface, which must stand by then.
            progress.wired = True
            ends = await _make_cable(services, netns_fd, pod, cable, attachment)
            pod.transact([links.set_up(ends.pod)])[0].check(f"bring up {cable.ifname}")
        if isinstance(source, DelegatedAddresses):
            async with _Datastore(patience):
                await source.look()
            await source.ask()
            # The plugin has a limit of its own; the datastore's time begins anew.
            patience = asyncio.get_running_loop().time() + settings.datastore_seconds
        async with _Datastore(patience):
            addresses = await source.planned()
            granted = await source.settled() if repeated else None
            addresses = granted.addresses if granted else addresses
            services.records.refuse_taken(addresses, attachment)
            # Let the transaction really leave before the wiring holds the loop.
            if not services.allocator.prompt:
                for _ in range(3):
                    await asyncio.sleep(0)
            trace.mark("plan")
            if stale and ends is None:
                assert pod is not None
                progress.wired = True
                ends = await _make_cable(services, netns_fd, pod, cable, attachment)
            if not progress.offered:
                offer()
            trace.mark("offer")
            if pod is None:
                # The transaction is on its way, and felix at work: this takes no time of its own.
                pod = opened.enter_context(wiring.open_pod(netns_fd))
            if ends is None:
                progress.wired = True
                ends = await _make_cable(services, netns_fd, pod, cable, attachment)
            ways = extra_routes.plain(destinations(request, source.extra), source.extra)
            _configure(pod, netns_fd, cable, ends, addresses, ways)
            extra_routes.install(pod, ends.pod, source.extra)
            trace.mark("wire")
            granted = granted or await source.settled()
        trace.mark("commit")
        if granted.addresses != addresses:
            log.info("a race was lost: wiring again", extra={"attachment": str(attachment)})
            addresses = granted.addresses
            services.records.refuse_taken(addresses, attachment)
            offer()
            _configure(pod, netns_fd, cable, replace(ends, reused=True), addresses, ways)
            trace.mark("rewire")
    if wait:
        await _in_force(services, subject, attachment, wait)
        wiring.lead(services.host, cable.host_interface, ends.host, services.felix.routes(subject))
        trace.mark("in_force")
    services.felix.stored(subject, granted.revision_of(attachment.endpoint_key))
    services.journal.drop(request)
    if not is_delegated(request):
        services.memory.keep(attachment, granted)
    _remember(services, attachment, cable.host_interface, source, writer, addresses)
    trace.afterwards(
        lambda: log.info(
            "attachment added",
            extra={
                "attachment": str(attachment),
                "container": attachment.container_id,
                "addresses": ",".join(map(str, addresses)),
                "link": cable.host_interface,
            },
        )
    )
    own = _result(request, cable, ends, addresses, source.extra)
    return chain.chained(previous, chain.with_dns(request, own))


def _remember(
    services: DaemonContext,
    attachment: Attachment,
    link: str,
    source: Source,
    writer: EndpointWriter,
    addresses: Sequence[IPAddress],
) -> None:
    """For what an operator may delete of it while it runs (cni.node.records)."""
    assert writer.written is not None
    ours = tuple(addresses) if isinstance(source, OwnAddresses) else ()
    services.records.remember(Record(attachment, link, ours, writer.written.value))


def _source(
    services: DaemonContext,
    request: Request,
    attachment: Attachment,
    facts: PodFacts,
    writer: EndpointWriter,
    line: Line,
    wishes: EndpointRequest,
    offer: Callable[[], None] | None,
) -> Source:
    if is_delegated(request):
        check_delegated(request, facts)
        delegate = Delegate(line, request, services.cluster.pod_cidrs(services.node))
        return DelegatedAddresses(services, attachment, writer, delegate)
    wanted = address_request(request, facts)
    check_families(wishes, wanted)
    if not request.config.ipam.type and not wanted.unmanaged:
        raise CNIError(Code.INVALID_CONFIG, "invalid network configuration: ipam.type is missing")
    if wanted.unmanaged:
        return UnmanagedAddresses(services, attachment, writer, wanted.fixed)
    ticket = services.allocator.submit(_allocation(attachment, wanted, writer))
    if offer is not None:
        # felix begins while the transaction is written and the pod is wired.
        ticket.when_planned = offer
    return OwnAddresses(services, attachment, ticket)


def _cable(
    services: DaemonContext, request: Request, attachment: Attachment, mac: str
) -> wiring.Cable:
    config = request.config
    queues = config.document.get("num_queues")
    return wiring.Cable(
        host_interface=attachment.host_interface,
        ifname=attachment.ifname,
        mark=attachment.mark,
        mac=mac or config.mac or wiring.random_mac(),
        mtu=_configured_mtu(services, config.mtu) or _node_mtu(services, request),
        queues=queues if isinstance(queues, int) and 0 < queues <= 64 else 1,
        forwarding=config.allow_ip_forwarding,
    )


def _configured_mtu(services: DaemonContext, mtu: int) -> int:
    """The configuration's; said once where it is more than the node's encapsulation leaves."""
    told = f"mtu {mtu}"
    if mtu and told not in services.told:
        services.told.add(told)
        with suppress(OSError, ValueError):
            most = int(services.settings.mtu_file.read_text())
            if most < mtu:
                log.warning(
                    "mtu %d of the network configuration is more than the %d bytes that fit"
                    " through this node's tunnels (%s): large packets will be lost",
                    mtu,
                    most,
                    services.settings.mtu_file,
                )
    return mtu


def _node_mtu(services: DaemonContext, request: Request) -> int:
    """What felix found out, else what the default route's link has (data model 5.1, `mtu`)."""
    file = services.settings.mtu_file
    try:
        mtu = services.mtu(file)
    except FileNotFoundError:
        if request.config.document.get("require_mtu_file") is True:
            raise CNIError(
                Code.TRY_AGAIN_LATER, f"{file} does not exist yet, and require_mtu_file is true"
            ) from None
        mtu = 0
    except ValueError:
        log.warning("%s holds no number, it is ignored", file)
        mtu = 0
    return mtu if 68 <= mtu <= 65535 else wiring.default_mtu(services.host)


def _allocation(attachment: Attachment, wanted: AddressRequest, writer: EndpointWriter) -> Allocate:
    return Allocate(
        handle_id=attachment.handle_id,
        attributes=pod_attributes(
            attachment.node, attachment.namespace, attachment.pod, time.time_ns()
        ),
        families=wanted.families,
        requested=wanted.pools,
        fixed=wanted.fixed,
        namespace=attachment.namespace if attachment.pod else "",
        companion=writer.companion(),
    )


def _offer(
    services: DaemonContext,
    subject: Subject,
    writer: EndpointWriter,
    wait: float,
    progress: _Progress,
) -> None:
    progress.offered = True
    services.felix.offer(subject, writer.stored_bytes(), wired=bool(wait))


async def _make_cable(
    services: DaemonContext,
    netns_fd: int,
    pod: wiring.PodSocket,
    cable: wiring.Cable,
    attachment: Attachment,
) -> wiring.Ends:
    try:
        return wiring.create(services.host, netns_fd, cable)
    except KernelError as error:
        if error.errno != errno.EEXIST:
            raise
    # Which end's name is taken, the kernel does not say. What somebody has in the container is
    # refused; what is left of a killed daemon goes.
    wiring.existing(services.host, pod, cable)
    # The older sandbox of a pod has the same host interface; it is dead once a new one starts.
    # Without a pod the name is made of the container's own id, so another's is a collision.
    mark = None if attachment.pod else cable.mark
    await services.in_thread(wiring.remove_stale, cable.host_interface, mark)
    return wiring.create(services.host, netns_fd, cable)


def _configure(
    pod: wiring.PodSocket,
    netns_fd: int,
    cable: wiring.Cable,
    ends: wiring.Ends,
    addresses: Sequence[IPAddress],
    ways: Sequence[IPNetwork],
) -> None:
    where = {"container": cable.mark, "link": cable.host_interface}
    log.debug("veth found" if ends.reused else "veth created", extra=where)
    log.debug("address assigned", extra={**where, "addresses": ",".join(map(str, addresses))})
    wiring.configure(pod, netns_fd, cable, ends, addresses, ways)
    log.debug("address configured", extra=where)


async def _in_force(
    services: DaemonContext, subject: Subject, attachment: Attachment, seconds: float
) -> None:
    try:
        refusal = await services.felix.in_force(subject, seconds)
    except TimeoutError:
        state = "did not report it" if services.felix.connected else "cannot be reached"
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            f"routes and policy of {attachment} were not in force within {seconds:g} s",
            f"calico-felix {state}; look at its log and http://localhost:9099/readiness",
        ) from None
    if refusal:
        raise CNIError(Code.TRY_AGAIN_LATER, f"felix cannot put {attachment} in force: {refusal}")


def _result(
    request: Request,
    cable: wiring.Cable,
    ends: wiring.Ends,
    addresses: Sequence[IPAddress],
    extra: Result,
) -> Result:
    return Result(
        interfaces=(
            Interface(name=cable.host_interface, mtu=ends.mtu),
            Interface(name=cable.ifname, mac=ends.mac, mtu=ends.mtu, sandbox=request.netns),
        ),
        ips=tuple(IPConfig(address=wiring.alone(address), interface=1) for address in addresses),
        routes=extra.routes,
        dns=extra.dns,
    )


class _Datastore:
    """`async with`: until this time of the loop, then code 11. A generator costs four times it."""

    __slots__ = ("_limit",)

    def __init__(self, until: float) -> None:
        self._limit = asyncio.timeout_at(until)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as late:
            error = late
        if isinstance(error, TimeoutError):
            raise CNIError(
                Code.TRY_AGAIN_LATER, "the datastore did not answer in time, try again later"
            ) from None


async def _undo(services: DaemonContext, request: Request, progress: _Progress) -> None:
    """Take back what this call did, and only that (ADD-07). Never raises."""
    attachment = progress.attachment
    left: list[Exception] = []
    gone = True
    if progress.wired:
        try:
            await services.in_thread(wiring.remove, attachment.host_interface, attachment.mark)
        except Exception as error:  # noqa: BLE001 - an undo goes on; kept in `left`, for the journal
            left.append(error)
    if progress.source is not None:
        try:
            gone = await progress.source.undo()
        except Exception as error:  # noqa: BLE001 - an undo goes on; kept in `left`, for the journal
            # Whether the datastore did it is unknown; the journal finds out when it is back.
            left.append(error)
    if progress.offered and (gone or progress.wired):
        services.felix.retract(delete.subject_of(attachment))
    elif progress.offered:
        # The first ADD's pod runs on: felix must not take its routes and policy away (ADD-07).
        services.felix.stored(delete.subject_of(attachment), 0)
    await delete.remember_undo(services, request, left)


def as_cni_error(error: BaseException) -> CNIError:
    """The code and sentence for a runtime (conformance section 7)."""
    match error:
        case CNIError():
            return error
        case NoPool():
            return CNIError(Code.CALICO, str(error))
        case IPAMError():
            return CNIError(Code.TRY_AGAIN_LATER, str(error))
        case DatastoreError():
            return CNIError(
                Code.TRY_AGAIN_LATER, "the datastore is not available, try again later", str(error)
            )
        case TimeoutError():
            return CNIError(Code.TRY_AGAIN_LATER, "the call did not end in time, try again later")
        case _:
            return CNIError(Code.INTERNAL, str(error) or type(error).__name__)
