"""The profile of a network without a policy engine (`policy.type` empty, CAL-17).

Without Kubernetes a pod has no policy, and a pod without a profile is closed. So the
first ADD of such a network creates a profile with the network's name: everything may go out, and
in comes what other pods of the network send (under Kubernetes: everything). It is never changed
afterwards, since it is the operator's from then on.
Tested in tests/cni_conformance/test_runtimes.py.
"""

from __future__ import annotations

import logging

import msgspec

from cni.node.daemon_context import DaemonContext
from cni.request.request import Request
from libcalico.datastore.interface import ABSENT, CommitConflict, Put
from libcalico.errors import InvalidValue, PermissionDenied
from libcalico.model import ResourceKey
from libcalico.model.codec import decode_value
from libcalico.selectors import selectors

log = logging.getLogger(__name__)


async def ensure(context: DaemonContext, request: Request) -> None:
    """Create the profile if it is missing; asks the datastore once a network and process.

    Raises DatastoreError or TimeoutError. Where nodes may not write profiles, pods of Kubernetes
    do without: theirs are those of the namespace and the service account.
    """
    network = request.config.name
    if not is_wanted(context, request):
        return
    try:
        await _create(context, network, kubernetes=request.pod is not None)
    except PermissionDenied as error:
        if request.pod is None:
            raise
        log.warning(
            "no profile of the network's name: this node may not write it, and no pod of "
            "Kubernetes needs it (policy.type k8s does without): %s",
            error,
            extra={"network": network},
        )
    context.done_once.add(f"profile {network}")


def is_wanted(context: DaemonContext, request: Request) -> bool:
    """Whether this daemon has not seen to it yet, and there is to be one."""
    known = f"profile {request.config.name}"
    return not (request.config.policy_type or known in context.done_once)


async def _create(context: DaemonContext, network: str, *, kubernetes: bool) -> None:
    key = ResourceKey("Profile", network)
    if await context.store.get(key) is not None:
        return
    try:
        value = decode_value(key, _document(network, kubernetes=kubernetes))
        await context.store.commit([Put(key, value, ABSENT)])
    except CommitConflict:
        pass  # another node was first: it stays as it is


def _document(network: str, *, kubernetes: bool) -> bytes:
    inbound: dict[str, object] = {"action": "Allow"}
    if not kubernetes:
        inbound["source"] = {"selector": f"has({network})"}
        try:
            selectors.parse(f"has({network})")
        except InvalidValue:
            inbound = {"action": "Deny"}  # a name that no label can have lets nothing in
    tree = {
        "apiVersion": "projectcalico.org/v3",
        "kind": "Profile",
        "metadata": {"name": network},
        "spec": {
            "egress": [{"action": "Allow"}],
            "ingress": [inbound],
            "labelsToApply": {network: ""},
        },
    }
    return msgspec.json.encode(tree)
