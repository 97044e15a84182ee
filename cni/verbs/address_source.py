"""Which source gives the addresses of an ADD: our allocator, the pod's annotation, a delegate.

Tested in tests/cni/test_annotations.py, tests/cni/test_delegation.py, tests/cni/test_daemon_add.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cni.pods.endpoint import EndpointWriter
from cni.pods.endpoint_requests import check_families
from cni.pods.pod_requests import AddressRequest, address_request, check_delegated
from cni.request.attachment import Attachment
from cni.request.errors import CNIError, Code
from cni.verbs.add_state import Adding, Identity
from cni.verbs.delegation import Delegate, is_delegated
from cni.verbs.sources import DelegatedAddresses, OwnAddresses, Source, UnmanagedAddresses
from ipam.allocator.requests import Allocate
from ipam.records.naming import pod_attributes


def choose(call: Adding, pod: Identity, planned: Callable[[], None] | None) -> Source:
    """The source, at work already where it is our allocator; `planned` is called with its plan.

    Raises CNIError where the configuration or the annotations contradict themselves.
    """
    context, request, attachment = call.context, call.request, call.attachment
    stands = pod.repeated and context.records.knows(attachment)
    if is_delegated(request):
        check_delegated(request, pod.facts)
        delegate = Delegate(call.line, request, context.cluster.pod_cidrs(context.node))
        return DelegatedAddresses(context, attachment, pod.writer, delegate, stands)
    requested = address_request(request, pod.facts)
    check_families(pod.requested, requested)
    if not request.config.ipam.type and not requested.unmanaged:
        raise CNIError(Code.INVALID_CONFIG, "invalid network configuration: ipam.type is missing")
    if requested.unmanaged:
        return UnmanagedAddresses(context, attachment, pod.writer, requested.fixed)
    ticket = context.allocator.submit(_allocation(attachment, requested, pod.writer))
    if planned is not None:
        ticket.when_planned = planned
    return OwnAddresses(context, attachment, ticket, stands)


def _allocation(
    attachment: Attachment, request: AddressRequest, writer: EndpointWriter
) -> Allocate:
    return Allocate(
        handle_id=attachment.handle_id,
        attributes=pod_attributes(
            attachment.node, attachment.namespace, attachment.pod, time.time_ns()
        ),
        families=request.families,
        requested=request.pools,
        fixed=request.fixed,
        namespace=attachment.namespace if attachment.pod else "",
        companion=writer.companion(),
    )
