"""Messages of `node.sock`: what `felix`, `bgp` and `cni` of one node tell each other.

Frames are those of `libcalico.local.framing`. The first frame each way is `Hello`. Only
`felix` listens. New fields are optional, unknown message types are ignored, so both
neighbours of a release understand each other.

From `bgp`: `PathsBegin`, any number of `Paths`, `PathsEnd` (a snapshot), then more `Paths`
as things change. Until the first `PathsEnd` felix keeps the routes that the kernel has.
From `cni`: `Offer` an endpoint as soon as it is known, `Await` its being in force, say that it is
`Stored`, and `Retract` it on DEL. From felix: `Refused` paths, `InForce`, `Fact`, to `cni`
`Vanished`, and to `bgp` `Borrowed` for each block with borrowed addresses, `BorrowedEnd`, then more
as things change.
From `calicoctl`: `Ask` what felix decides about a packet and what the kernel has counted, answered
by `Told`; `WatchDrops`, answered by `Watching` and then one `Dropped` for each denied packet that
the kernel told of; `CountDrops`, answered by `DropCounts`.
Tested in tests/libcalico/test_framing.py.
"""

from __future__ import annotations

import msgspec

from libcalico.local.trace_messages import (
    Ask,
    CountDrops,
    DropCounts,
    Dropped,
    Told,
    WatchDrops,
    Watching,
)

VERSION = 1

ROUTE_PROTOCOL = 109
"""The rtnetlink protocol number of every route that we write (80, 12, 3 are
Calico's and BIRD's)."""

ROUTE_METRIC = 1024
"""The metric of every route of ours: Calico v3.32's normal route priority, and IPv6's own default.

It is never 0, so that replacing a route of ours can never hit a connected route of the kernel.
"""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The sender: `process` is `felix`, `bgp`, `cni` or `calicoctl`."""

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
    """Felix did not take a path, and why; without a reason: it does now, or the path is gone."""

    prefix: str
    reason: str


class Offer(msgspec.Struct, tag="offer", frozen=True):
    """An endpoint about to be stored: the exact bytes of the WorkloadEndpoint value."""

    namespace: str
    name: str
    value: str


class Stored(msgspec.Struct, tag="stored", frozen=True):
    """What was offered for this container is in the datastore since `revision`.

    From that revision on the datastore's word counts, not the offer. 0: the revision is not known,
    and the next word counts. An offer is followed by this or by `Retract`, in every case.
    """

    namespace: str
    name: str
    container_id: str
    revision: int = 0


class Retract(msgspec.Struct, tag="retract", frozen=True):
    """The endpoint is gone (DEL) or was never stored (a failed ADD).

    `container_id` guards a successor: an endpoint of another container stays. `forgotten`: its
    link is gone, and after that the flows of all its addresses were removed from the kernel.
    """

    namespace: str
    name: str
    container_id: str
    forgotten: bool = False


class Unreleased(msgspec.Struct, tag="unreleased", frozen=True):
    """The containers whose release waits in `cni`'s journal, all of them, whenever that changes.

    The datastore may name these for as long, and rightly so.
    """

    containers: list[str] = []


class Await(msgspec.Struct, tag="await", frozen=True):
    """Answer `InForce` once routes and rules of this endpoint are in the kernel.

    `number` is the asker's own and comes back with the answer: of two questions about one
    container, the second after another offer, an answer to the first is none to the second.
    `wired`: the asker makes the link, and the routes that the answer names: rules and sets are
    enough for an answer, whether or not the link is there.
    """

    namespace: str
    name: str
    container_id: str
    number: int = 0
    wired: bool = False


class InForce(msgspec.Struct, tag="in_force", frozen=True):
    """The endpoint is in force; or `error` says why it is not and will not be soon.

    `routes`: only for an `Await` with `wired`: prefixes that felix wants to lead to the endpoint's
    link and that the kernel lacks. The asker writes them (`ROUTE_PROTOCOL`, `ROUTE_METRIC`); it
    is in force then. The second of the two to come writes what is there already.
    """

    namespace: str
    name: str
    container_id: str
    error: str = ""
    number: int = 0
    routes: list[str] = []


class Vanished(msgspec.Struct, tag="vanished", frozen=True):
    """The datastore has no such endpoint of this node any more, and `cni` did not retract it.

    Told once, when it happens: what `cni` does not hear it finds by its own comparisons.
    """

    namespace: str
    name: str
    container_id: str


class Fact(msgspec.Struct, tag="fact", frozen=True):
    """What of the node `bgp` cannot see itself: its addresses, and its connected networks with
    the interface of each."""

    local_addresses: list[str] = []
    networks: dict[str, str] = {}


class Borrowed(msgspec.Struct, tag="borrowed", frozen=True):
    """The addresses of a block that are used on another node than its owner's, each with its node.

    All of the block, instead of what was said of it before; this node's own are among them.
    """

    block: str
    users: dict[str, str] = {}


class BorrowedEnd(msgspec.Struct, tag="borrowed_end", frozen=True):
    """All is said: blocks that were not named since the connection began have no such address."""


Message = (
    Hello
    | PathsBegin
    | Paths
    | PathsEnd
    | RefusedPath
    | Offer
    | Stored
    | Retract
    | Unreleased
    | Await
    | InForce
    | Vanished
    | Fact
    | Borrowed
    | BorrowedEnd
    | Ask
    | Told
    | WatchDrops
    | Watching
    | Dropped
    | CountDrops
    | DropCounts
)
