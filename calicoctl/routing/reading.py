"""The stored objects that decide about BGP sessions, as one view.

Tested in tests/calicoctl/test_bgp_topology.py.
"""

from __future__ import annotations

from bgp.cluster.view import ClusterView
from calicoctl.session import Options, datastore
from libcalico.datastore.capabilities import pages_of
from libcalico.datastore.interface import Selection

READ = ("Node", "BGPConfiguration", "BGPPeer", "BGPFilter")


async def read_view(options: Options) -> tuple[ClusterView, tuple[str, ...]]:
    """The view (of no node in particular), and a sentence for each object that cannot be read."""
    view, unreadable = ClusterView(""), list[str]()
    async with datastore(options) as store:
        for kind in READ:
            async for page in pages_of(store, Selection(kind)):
                for entry in page.entries:
                    view.apply(entry.key, entry.value)
                unreadable += [f"{name} cannot be read: {reason}" for name, reason in page.broken]
    unreadable += [f"{name} cannot be used: {reason}" for name, reason in view.broken.items()]
    return view, tuple(unreadable)
