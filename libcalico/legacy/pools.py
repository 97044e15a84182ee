"""Finds the stored pool that a v1 pool means: v1 pools are known by network, v3 pools by name.

`calicoctl apply` of a v1 pool changes the stored pool with that network, under any name, and
only the fields that v1 has: a block size or a node selector of the pool stays. Invariant
LEG-1: no v1 document ever makes a second pool of one network
(tests/calicoctl/test_legacy.py).
"""

from __future__ import annotations

from msgspec.structs import replace

from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.model.keys import IPNetwork
from libcalico.model.kinds import Resource
from libcalico.model.resources.pool import IPPool
from libcalico.pools import network_of


async def pool_with_cidr(store: Datastore, network: IPNetwork) -> Entry | None:
    """The stored pool of exactly this network, or None."""
    listing = await store.list(Selection("IPPool"))
    for entry in listing.entries:
        if network_of(entry.value) == network:
            return entry
    return None


async def onto_stored(store: Datastore, resource: Resource) -> Resource:
    """The resource to write for one that came from a v1 document.

    A pool takes name and settings of the stored pool of its network. A pool of a new network and
    any other resource stay as they are.
    """
    if not isinstance(resource, IPPool):
        return resource
    entry = await pool_with_cidr(store, resource.spec.network)
    return resource if entry is None else merged(entry.value, resource)


def merged(stored: IPPool, legacy: IPPool) -> IPPool:
    """The stored pool with the fields of a v1 document: IP-in-IP, NAT, disabled."""
    ipip = legacy.spec.ipipMode or "Never"
    vxlan = stored.spec.vxlanMode if ipip == "Never" else "Never"
    # The document's author has not seen the stored revision: there is none to compare with.
    metadata = replace(stored.metadata, resourceVersion="")
    spec = replace(
        stored.spec,
        ipipMode=ipip,
        vxlanMode=vxlan,
        natOutgoing=legacy.spec.natOutgoing,
        disabled=legacy.spec.disabled,
    )
    return replace(stored, metadata=metadata, spec=spec)
