"""The decision process: which of several paths to a prefix are used. Pure.

RFC 4271 section 9.1, with the steps of RFC 4456 section 9 for reflected routes, in this
order: LOCAL_PREF; length of AS_PATH; ORIGIN; MULTI_EXIT_DISC among paths of one neighbouring
AS; eBGP before iBGP; (metric to the next hop: unknown here, so equal; paths whose next hop cannot
be reached are no candidates, see `bgp.cluster.resolving`); what is left is used
together, as several next hops. For the one best of them: lower ORIGINATOR_ID or router id,
shorter CLUSTER_LIST, lower peer address.

Tested in tests/bgp/test_rib.py, against a plain model with hypothesis: the result does
not depend on the order of the paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TypeVar

from bgp.speaker.interface import Attributes, IPAddress
from libcalico.host_address import is_host

DEFAULT_LOCAL_PREF = 100
PRIORITIES = 2_147_483_647 // 2
"""A LOCAL_PREF above this carries a kernel metric, as 2147483647 less the metric."""
NORMAL_LOCAL_PREF = 2_147_483_647 - 1024


@dataclass(frozen=True, slots=True)
class Source:
    """The session a path came over.

    `in_cluster`: a node of this cluster sent it, `node` is its name. `client`: we reflect for
    it; `own_cluster` is our cluster id, if we reflect. `filters` are the peering's BGPFilters.
    `leaving`: its peering is gone, and the session about to end. `joins`: we may have joined its
    cluster a moment ago, and take what it reflected itself (RFL-6).
    """

    peer: IPAddress
    internal: bool
    local_as: int
    remote_as: int
    router_id: IPv4Address
    own_router_id: IPv4Address
    in_cluster: bool = False
    allowed_local_as: int = 0
    node: str = ""
    client: bool = False
    own_cluster: str = ""
    filters: tuple[str, ...] = ()
    leaving: bool = False
    joins: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A path that may be used. `preference`: what our own rules made of LOCAL_PREF."""

    source: Source
    next_hop: IPAddress
    attributes: Attributes
    path_id: int = 0
    preference: int | None = None


def acceptable(candidate: Candidate) -> str:
    """Why a path must not be used; empty if it may.

    Loops: our AS number in the path (RFC 4271 9.1.2), our id as ORIGINATOR_ID or our cluster
    id in CLUSTER_LIST (RFC 4456 8).
    """
    source, attributes = candidate.source, candidate.attributes
    if source.leaving:
        return "its peering is gone"
    if attributes.as_path.count(source.local_as) > source.allowed_local_as:
        return f"AS loop: {source.local_as} is in the path"
    if attributes.originator_id == source.own_router_id:
        return "reflected back to its originator"
    crossed = attributes.cluster_list[1 if source.joins else 0 :]
    if source.own_cluster and source.own_cluster in crossed:
        return f"reflection loop: cluster {source.own_cluster} is in its list"
    hop = candidate.next_hop
    if not is_host(hop):
        return f"the next hop {hop} is no host address"
    return ""


def is_loop(reason: str) -> bool:
    """Whether `acceptable` refused a path because of a loop, which its peer cannot know."""
    return reason.startswith(("AS loop", "reflection loop", "reflected back"))


C = TypeVar("C")
_Key = Callable[[Candidate], int]


def select(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The paths to use, best first; several if they are equal up to the tie-breakers."""
    rest = list(candidates)
    for key in (_local_pref, _path_length, _origin):
        rest = _least(rest, key)
    rest = _lowest_med(rest)
    rest = _least(rest, _internal)
    return sorted(rest, key=_tie_break)


def _least(candidates: list[Candidate], key: _Key) -> list[Candidate]:
    if len(candidates) < 2:
        return candidates
    best = min(map(key, candidates))
    return [each for each in candidates if key(each) == best]


def local_pref(candidate: Candidate) -> int | None:
    """The LOCAL_PREF that counts here; of an external peer none (RFC 4271 5.1.5)."""
    if candidate.preference is not None:
        return candidate.preference
    return candidate.attributes.local_pref if candidate.source.internal else None


def _local_pref(candidate: Candidate) -> int:
    given = local_pref(candidate)
    if given is None:
        given = DEFAULT_LOCAL_PREF
    elif given > PRIORITIES:
        # Newer Calico carries a kernel metric in it. Its normal metric is what a plain 100
        # is elsewhere, so that mixed clusters share the load of one prefix.
        given += DEFAULT_LOCAL_PREF - NORMAL_LOCAL_PREF
    return -given


def _path_length(candidate: Candidate) -> int:
    return candidate.attributes.as_path_length


def _origin(candidate: Candidate) -> int:
    return candidate.attributes.origin


def _internal(candidate: Candidate) -> int:
    return candidate.source.internal


def neighbouring_as(candidate: Candidate) -> int:
    """The AS that a path entered ours from; our own for a route that began inside."""
    path = candidate.attributes.as_path
    return path[0] if path else candidate.source.local_as


def _med(candidate: Candidate) -> int:
    return candidate.attributes.med or 0


def _lowest_med(candidates: list[Candidate]) -> list[Candidate]:
    lowest: dict[int, int] = {}
    for each in candidates:
        neighbour = neighbouring_as(each)
        lowest[neighbour] = min(lowest.get(neighbour, 1 << 32), _med(each))
    return [each for each in candidates if _med(each) == lowest[neighbouring_as(each)]]


def _tie_break(candidate: Candidate) -> tuple[int, int, int, int]:
    attributes = candidate.attributes
    return (
        int(attributes.originator_id or candidate.source.router_id),
        len(attributes.cluster_list),
        int(candidate.source.peer),
        candidate.path_id,
    )
