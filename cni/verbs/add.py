"""ADD: connect one interface of one container.

The order is measured (pod start takes a few milliseconds). Names and MAC are chosen; the allocator
plans an address and starts its one transaction. While that travels, the veth pair is made and
felix hears of the endpoint. The runtime is answered only when the transaction is committed and
felix has the endpoint in force, so that a pod never sends a packet that no policy covers. The
phases are functions of that order: admit, identify, plan and wire, commit, confirm. What each has
done is in `cni.verbs.add_state`, which takes it back.

Invariants (tests/cni/test_daemon_add.py, tests/cni/test_daemon_faults.py):
  CNI-30  ADD returns success only for an address that the datastore has given to this handle,
          and whose rules felix has reported in force (unless told not to wait). The routes that
          felix leaves to it are written after that and before the answer. What felix says of a
          link that an older sandbox left is no word about the new one: that link goes first.
  CNI-31  A failed or cancelled ADD leaves nothing: the veth pair is removed, the addresses and the
          endpoint are released by one transaction or, if the datastore does not answer, by a
          record in the journal. The first error is the one reported (ADD-05).
  CNI-32  A repeated ADD of the same attachment keeps its addresses and its veth pair (ADD-04).

Source: docs/reference/cni.md#add, docs/reference/data-model.md#add-of-a-pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from cni.node.daemon_context import DaemonContext, check_node_name, require_known_node
from cni.pods.endpoint import EndpointWriter
from cni.pods.endpoint_requests import endpoint_request
from cni.request import chain, readiness_gates
from cni.request.attachment import attachment_of, check_endpoint_name
from cni.request.request import Request
from cni.request.result import Interface, IPConfig, Result
from cni.socket import call_log
from cni.socket.trace import Trace
from cni.verbs import address_source, datastore_release, delete, network_profile, policy_only
from cni.verbs.add_confirmation import confirm, remember_attachment
from cni.verbs.add_state import Adding, Identity, undo
from cni.verbs.delegation import Line, destinations, is_delegated
from cni.verbs.failures import DatastoreLimit, as_cni_error
from cni.verbs.pod_veth import PodVeth, veth_spec
from cni.verbs.sources import DelegatedAddresses, Source
from cni.veth import extra_routes, pod_end, wiring
from ipam.records.blocks import IPAddress
from libcalico.errors import MuslinError
from libcalico.model.keys import IPNetwork
from linux.errors import KernelError

log = call_log.logger(__name__)


async def add(
    context: DaemonContext,
    request: Request,
    netns_fd: int,
    trace: Trace,
    seconds: float,
    line: Line,
) -> Result:
    """Serve one ADD within `seconds`; raises CNIError with everything undone (CNI-31).

    `line` leads to the executable, which runs another IPAM plugin where one is configured.
    """
    attachment = attachment_of(request, context.node)
    context.released.forget(attachment)
    call = Adding(context, request, netns_fd, trace, line, attachment)
    try:
        try:
            async with asyncio.timeout(seconds):
                return await _add(call)
        except BaseException:
            # Shielded: the runtime may have gone away, the undo happens all the same.
            await asyncio.shield(context.keep(undo(call)))
            raise
    except (MuslinError, KernelError, TimeoutError, OSError) as error:
        raise as_cni_error(error) from error


async def _add(call: Adding) -> Result:
    context, request, trace = call.context, call.request, call.trace
    previous = chain.previous_of(request)
    if chain.is_policy_only(request, previous):
        assert previous is not None
        return await policy_only.add(context, request, call.netns_fd, trace, previous)
    until = await _admit(call)
    with ExitStack() as opened:
        pod, veth = await _identify(call, opened)
        trace.mark("names")
        early = None if pod.repeated or pod.stale else partial(_offer, call, pod)
        source = call.source = address_source.choose(call, pod, early)
        until = await _ask_others(call, veth, source, until)
        async with DatastoreLimit(until):
            addresses = await source.planned()
            granted = await source.settled() if pod.repeated else None
            addresses = granted.addresses if granted else addresses
            pair = await _wire(call, pod, veth, source, addresses)
            granted = granted or await source.settled()
        trace.mark("commit")
        if granted.addresses != addresses:
            again = replace(pair, reused=True)
            _wire_again(call, pod, veth, again, source, granted.addresses)
    await confirm(call, pod, pair, granted)
    remember_attachment(call, pod, source, granted.addresses)
    own = _result(request, veth.spec, pair, granted.addresses, source.extra)
    return chain.chained(previous, chain.with_dns(request, own))


async def _admit(call: Adding) -> float:
    """Check all that must hold before an ADD begins; until when it waits for the datastore."""
    context, request, settings = call.context, call.request, call.context.settings
    check_node_name(request.config.document, settings, context.node)
    check_endpoint_name(call.attachment)
    context.check_store(request.config.store)
    until = asyncio.get_running_loop().time() + settings.datastore_seconds
    await require_known_node(context, request.config.document)
    if request.config.readiness_gates:
        await readiness_gates.wait(request.config.readiness_gates)
    if context.journal.holds(request):
        # An earlier attempt of this very attachment may still come to light: take it back first.
        async with DatastoreLimit(until):
            await datastore_release.release(context, call.attachment)
    if network_profile.is_wanted(context, request):
        async with DatastoreLimit(until):
            await network_profile.ensure(context, request)
    return until


async def _identify(call: Adding, opened: ExitStack) -> tuple[Identity, PodVeth]:
    """Which pod it is, and the veth pair that it has or gets."""
    context, request, attachment = call.context, call.request, call.attachment
    facts = await context.pod_source.facts(request)
    requested = endpoint_request(request, facts)
    for complaint in requested.complaints:
        log.warning("annotation %s", complaint, extra={"object": str(attachment.endpoint_key)})
    pod_end.require_netns(call.netns_fd)
    spec = veth_spec(context, request, attachment, requested.mac)
    veth = call.veth = PodVeth(context, call.netns_fd, spec, attachment, opened)
    if is_delegated(request) or veth.taken:
        # There may be a pair of this attachment, and then it keeps what it has.
        veth.find()
    pair = veth.pair
    pod = Identity(
        facts=facts,
        requested=requested,
        writer=EndpointWriter(attachment, facts, pair.mac if pair else spec.mac, requested),
        subject=delete.subject_of(attachment),
        wait=request.config.policy_setup_timeout,
        # The pod of an earlier ADD may run on this pair: felix hears what is committed, not what
        # would be planned for a new one.
        repeated=pair is not None,
        # An older sandbox's link has the name: what felix says while that stands goes with it.
        stale=veth.taken and pair is None,
    )
    return pod, veth


def _offer(call: Adding, pod: Identity) -> None:
    """Offer felix the endpoint, so that it begins while the transaction is on its way."""
    felix = call.context.felix
    if pod.stale and pod.wait:
        # Asked first, felix hears at once what the kernel has told of the old link.
        felix.expect(pod.subject)
    call.offered = True
    felix.offer(pod.subject, pod.writer.stored_bytes(), wired=bool(pod.wait))


async def _ask_others(call: Adding, veth: PodVeth, source: Source, until: float) -> float:
    """Have another IPAM plugin choose, where one is configured; until when the datastore has."""
    if call.request.config.ipam.type == "dhcp" and veth.pair is None and is_delegated(call.request):
        # It asks for its lease on the container's interface, which must stand by then.
        await veth.up()
    if isinstance(source, DelegatedAddresses):
        async with DatastoreLimit(until):
            await source.look()
        await source.ask()
        # The plugin has a limit of its own; the datastore's time begins anew.
        return asyncio.get_running_loop().time() + call.context.settings.datastore_seconds
    return until


async def _wire(
    call: Adding, pod: Identity, veth: PodVeth, source: Source, addresses: Sequence[IPAddress]
) -> wiring.VethPair:
    """The pair, its addresses and its routes, while the transaction is on its way."""
    context, trace = call.context, call.trace
    context.records.refuse_taken(addresses, call.attachment)
    # Let the transaction really leave before the wiring holds the loop.
    if not context.allocator.prompt:
        for _ in range(3):
            await asyncio.sleep(0)
    trace.mark("plan")
    if pod.stale:
        await veth.made()
    if not call.offered:
        _offer(call, pod)
    trace.mark("offer")
    # The transaction is on its way, and felix at work: this takes no time of its own.
    pair = await veth.made()
    veth.configure(pair, addresses, _destinations(call, source))
    extra_routes.install(veth.pod, pair.pod, source.extra)
    trace.mark("wire")
    return pair


def _destinations(call: Adding, source: Source) -> Sequence[IPNetwork]:
    """What the container's plain routes lead to."""
    return extra_routes.plain(destinations(call.request, source.extra), source.extra)


def _wire_again(
    call: Adding,
    pod: Identity,
    veth: PodVeth,
    pair: wiring.VethPair,
    source: Source,
    addresses: Sequence[IPAddress],
) -> None:
    """What was committed is not what was planned: another node was faster."""
    log.info("a race was lost: wiring again", extra={"attachment": str(call.attachment)})
    call.context.records.refuse_taken(addresses, call.attachment)
    _offer(call, pod)
    veth.configure(pair, addresses, _destinations(call, source))
    call.trace.mark("rewire")


def _result(
    request: Request,
    spec: wiring.VethSpec,
    pair: wiring.VethPair,
    addresses: Sequence[IPAddress],
    extra: Result,
) -> Result:
    return Result(
        interfaces=(
            Interface(name=spec.host_interface, mtu=pair.mtu),
            Interface(name=spec.ifname, mac=pair.mac, mtu=pair.mtu, sandbox=request.netns),
        ),
        ips=tuple(
            IPConfig(address=pod_end.host_prefix(address), interface=1) for address in addresses
        ),
        routes=extra.routes,
        dns=extra.dns,
    )
