"""Messages of `node.sock`: what `felix`, `bgp` and `cni` of one node tell each other.

Frames are those of `libcalico.local.framing`. The first frame each way is `Hello`. Only
`felix` listens. New fields are optional, unknown message types are ignored, so both
neighbours of a release understand each other.

From `bgp`: `PathsBegin`, any number of `Paths`, `PathsEnd` (a snapshot), then more `Paths`
as things change. Until the first `PathsEnd` felix keeps the routes that the kernel has.
From `cni`: `Offer` an endpoint as soon as it is known, `Await` its being in force, and
`Retract` it on DEL. From felix: `Refused` paths, `InForce`, `Fact`.
"""

from __future__ import annotations

import msgspec

VERSION = 1


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """Who speaks: `process` is `felix`, `bgp`, `cni` or `calicoctl`."""

    process: str
    version: int = VERSION
    features: list[str] = []


class Path(msgspec.Struct, frozen=True):
    """Best path of one prefix. `next_hops` are addresses, several for ECMP.

    `origin` is `node` (learned from a node of this cluster) or `external` (a configured
    peer such as a top-of-rack router); felix allows the two different things.
    """

    prefix: str
    next_hops: list[str]
    origin: str = "node"
    peer: str = ""


class PathsBegin(msgspec.Struct, tag="paths_begin", frozen=True):
    """A full snapshot follows."""


class Paths(msgspec.Struct, tag="paths", frozen=True):
    """Best paths that are new or changed, and prefixes that have none any more."""

    updated: list[Path] = []
    withdrawn: list[str] = []


class PathsEnd(msgspec.Struct, tag="paths_end", frozen=True):
    """The snapshot is complete: what it did not name is gone."""


class RefusedPath(msgspec.Struct, tag="refused", frozen=True):
    """Felix did not take a path, and why."""

    prefix: str
    reason: str


class Offer(msgspec.Struct, tag="offer", frozen=True):
    """An endpoint about to be stored: the exact bytes of the WorkloadEndpoint value."""

    namespace: str
    name: str
    value: str


class Retract(msgspec.Struct, tag="retract", frozen=True):
    """The endpoint is gone (DEL) or was never stored (a failed ADD).

    `container_id` guards a successor: an endpoint of another container stays.
    """

    namespace: str
    name: str
    container_id: str


class Await(msgspec.Struct, tag="await", frozen=True):
    """Answer `InForce` once routes and rules of this endpoint are in the kernel."""

    namespace: str
    name: str
    container_id: str


class InForce(msgspec.Struct, tag="in_force", frozen=True):
    """The endpoint is in force; or `error` says why it is not and will not be soon."""

    namespace: str
    name: str
    container_id: str
    error: str = ""


class Fact(msgspec.Struct, tag="fact", frozen=True):
    """Something of the node that `bgp` cannot see itself: `local_addresses`, for now."""

    local_addresses: list[str] = []


Message = (
    Hello | PathsBegin | Paths | PathsEnd | RefusedPath | Offer | Retract | Await | InForce | Fact
)
