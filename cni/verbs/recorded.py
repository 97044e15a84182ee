"""Records of attachments that stand on this host and have none: from the datastore.

An earlier release, or a daemon that was killed, left pods that run and no file. Their endpoints,
and the allocations that name their containers, say all that is to be remembered
(`cni.node.records`). Tested in tests/cni/test_restore.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from cni.node.daemon_context import DaemonContext
from cni.node.own_machine import why_foreign
from cni.node.records import Record
from cni.request.attachment import Attachment
from cni.verbs.garbage import held_here
from ipam.records.blocks import IPAddress
from ipam.records.endpoints import addresses_of
from libcalico import names
from libcalico.datastore.interface import Entry
from linux import links
from linux.netlink import Socket


async def learn(context: DaemonContext) -> None:
    """Remember them. Raises DatastoreError, KernelError, OSError."""
    marks = await context.in_thread(kernel_marks)
    # A record of a container before, whose link had the name, says nothing of the one that runs.
    known = {one.link for one in context.records.all() if one.stands(marks)}
    strange = {mark: name for name, mark in marks.items() if name not in known}
    if not strange or await why_foreign(context, runtime=True, unknown=False):
        return
    endpoints, allocations = await held_here(context)
    networks = {
        (container, one.address): one.handle_id[: -len(container) - 1]
        for one, _ in allocations
        for container in names.containers_of(one.handle_id)
    }
    for entry in endpoints:
        record = _recorded(entry, strange, networks, context.node)
        if record is not None:
            context.records.remember(record)


def kernel_marks() -> dict[str, str]:
    """The alias of every link of this host that has one: ours name container and interface."""
    with Socket() as sock:
        return {link.name: link.alias for link in links.dump(sock) if link.alias}


def _recorded(
    entry: Entry,
    strange: Mapping[str, str],
    networks: Mapping[tuple[str, IPAddress], str],
    node: str,
) -> Record | None:
    spec = entry.value.spec
    link = strange.get(f"{spec.containerID}/{spec.endpoint}")
    if link is None or link != spec.interfaceName:
        return None
    ours = [address for address in addresses_of(entry) if (spec.containerID, address) in networks]
    network = networks[spec.containerID, ours[0]] if ours else ""
    pod = spec.pod if spec.orchestrator == names.KUBERNETES else ""
    attachment = Attachment(
        node, network, spec.containerID, spec.endpoint, entry.value.metadata.namespace, pod
    )
    if attachment.endpoint_key != entry.key:
        return None
    return Record(attachment, link, tuple(ours), entry.value)
