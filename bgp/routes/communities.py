"""Communities of announced routes: BGPConfiguration's prefixAdvertisements. Pure.

A route gets the communities of every entry whose CIDR it lies in. A community is written out
(`aa:nn`, `aa:nn:mm`) or is a name of `spec.communities`. The list of a node's own
BGPConfiguration replaces the cluster's (docs/reference/dataplane.md#communities-and-filters); the
names are always the cluster's. Tested in tests/bgp/test_communities.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_network

from bgp.cluster.view import ClusterView
from bgp.routes.filters import community
from bgp.routes.prefix_search import lies_in
from bgp.speaker.interface import IPNetwork

_VALUE = re.compile(r"\d+:\d+(:\d+)?")


@dataclass(frozen=True, slots=True)
class Tags:
    """The communities of routes by network, and the entries that could not be read."""

    entries: tuple[tuple[IPNetwork, tuple[str, ...]], ...] = ()
    problems: tuple[str, ...] = ()

    def of(self, prefix: IPNetwork) -> tuple[str, ...]:
        """The communities of a route."""
        communities: dict[str, None] = {}
        for cidr, values in self.entries:
            if lies_in(prefix, cidr):
                communities.update(dict.fromkeys(values))
        return tuple(communities)


def tags(view: ClusterView) -> Tags:
    """The tags of this node's routes."""
    names = {each.name: each.value for each in view.defaults.communities}
    own = view.configurations.get(f"node.{view.me}")
    source, advertisements = (
        f"BGPConfiguration(node.{view.me})",
        own.prefixAdvertisements if own else [],
    )
    if not advertisements:
        source, advertisements = (
            "BGPConfiguration(default)",
            view.defaults.prefixAdvertisements,
        )
    entries, problems = [], []
    for index, each in enumerate(advertisements):
        where = f"{source}: spec.prefixAdvertisements[{index}]"
        try:
            cidr = ip_network(each.cidr, strict=False)
        except ValueError:
            problems.append(f"{where}.cidr: {each.cidr!r} is not valid: a network")
            continue
        values = []
        for text in each.communities:
            if text not in names and not _VALUE.fullmatch(text):
                problems.append(f"{where}.communities: {text!r} is neither a value nor a name")
                continue
            try:
                values.append(community(names.get(text, text)))
            except ValueError as error:
                problems.append(f"{where}.communities: {text!r}: {error}")
        entries.append((cidr, tuple(values)))
    return Tags(tuple(entries), tuple(problems))
