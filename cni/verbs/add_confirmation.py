"""After the commit of an ADD: felix's word, the host routes, and what is remembered of the pod.

Tested in tests/cni/test_add_order.py and tests/cni/test_in_force.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from cni.node.records import Record
from cni.request.errors import CNIError, Code
from cni.socket import call_log
from cni.verbs.add_state import Adding, Identity
from cni.verbs.delegation import is_delegated
from cni.verbs.sources import OwnAddresses, Source
from cni.veth import wiring
from ipam.allocator.requests import Granted
from ipam.records.blocks import IPAddress

log = call_log.logger(__name__)


async def confirm(call: Adding, pod: Identity, pair: wiring.VethPair, granted: Granted) -> None:
    """Wait for felix, and lead packets to the pod; what is committed is felix's from here."""
    context, attachment = call.context, call.attachment
    if pod.wait:
        await _in_force(call, pod)
        routes = context.felix.routes(pod.subject)
        wiring.add_host_routes(context.host, attachment.host_interface, pair.host, routes)
        call.trace.mark("in_force")
    context.felix.stored(pod.subject, granted.revision_of(attachment.endpoint_key))
    context.journal.drop(call.request)
    if not is_delegated(call.request):
        context.del_cache.keep(attachment, granted)


async def _in_force(call: Adding, pod: Identity) -> None:
    felix, attachment = call.context.felix, call.attachment
    try:
        refusal = await felix.in_force(pod.subject, pod.wait)
    except TimeoutError:
        state = "did not report it" if felix.connected else "cannot be reached"
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            f"routes and policy of {attachment} were not in force within {pod.wait:g} s",
            f"calico-felix {state}; look at its log and http://localhost:9099/readiness",
        ) from None
    if refusal:
        raise CNIError(Code.TRY_AGAIN_LATER, f"felix cannot put {attachment} in force: {refusal}")


def remember_attachment(
    call: Adding, pod: Identity, source: Source, addresses: Sequence[IPAddress]
) -> None:
    """Keep what an operator may delete of it while it runs (cni.node.records), and log the ADD."""
    assert pod.writer.written is not None
    attachment = call.attachment
    link = attachment.host_interface
    ours = tuple(addresses) if isinstance(source, OwnAddresses) else ()
    call.context.records.remember(Record(attachment, link, ours, pod.writer.written.value))
    call.trace.afterwards(
        lambda: log.info(
            "attachment added",
            extra={
                "attachment": str(attachment),
                "container": attachment.container_id,
                "addresses": ",".join(map(str, addresses)),
                "link": link,
            },
        )
    )
