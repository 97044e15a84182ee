"""What is known of a cluster before it is judged, and how it is read from the datastore.

`read` asks as few things as it can: four listings, the settings, and one batch of the nodes' life
signs. Answers of nodes that were asked live come from elsewhere (`Facts.answers`). Tested in
`tests/calicoctl/test_status.py` on a real etcd.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calicoctl import session
from ipam.records.pools import Pool, reserved_networks, usable
from libcalico.datastore.capabilities import pages_of
from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.errors import DatastoreUnavailable, MuslinError
from libcalico.model import Block, Node
from libcalico.model.keys import FelixStatusKey, IPNetwork, Key, LifeSignKey
from libcalico.model.resources.nodestatus import CalicoNodeStatus
from libcalico.model.resources.status import FelixStatus, LifeSign


@dataclass(frozen=True, slots=True)
class Signs:
    """The life signs of a node.

    On etcd: `felix` and `machine` are there while their leases live, `last` is felix's copy that
    outlives its lease. On Kubernetes: `ready` and `network` are what the kubelet's conditions say
    (True, False, or None where there is none), with `reason`.
    """

    felix: FelixStatus | None = None
    last: FelixStatus | None = None
    machine: LifeSign | None = None
    ready: bool | None = None
    network: bool | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node answered now: its three status files, and how long each process is silent.

    `documents` has `felix`, `bgp` and `cni` (docs/bgp-status.md); one that is absent does not run.
    `error`: why there is no answer.
    """

    documents: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """Everything that is judged. `now`: seconds since the epoch; `only`: the nodes that are asked
    about, all of them where it is empty (the others still have names).
    """

    now: float
    nodes: Mapping[str, Node]
    reports: tuple[CalicoNodeStatus, ...] = ()
    signs: Mapping[str, Signs] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()
    blocks: tuple[Block, ...] = ()
    reserved: tuple[IPNetwork, ...] = ()
    version: str = ""
    kind: str = ""
    unreadable: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that are asked about, in their order."""
        return self.only or tuple(sorted(self.nodes))


class Reading:
    """One reading of a datastore; what cannot be read is noted and no hindrance."""

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self.unreadable: list[str] = []

    async def entries(self, family: str) -> list[Entry]:
        """All objects of a kind; none where this user may not list them."""
        entries: list[Entry] = []
        try:
            async for page in pages_of(self._store, Selection(family)):
                entries += page.entries
                self.unreadable += [f"{name} cannot be read: {why}" for name, why in page.broken]
        except DatastoreUnavailable:
            raise
        except MuslinError as error:
            self.unreadable.append(f"{family} objects cannot be listed: {error}")
        return entries

    async def cluster(self) -> tuple[str, str]:
        """Version and type of the cluster, empty where they cannot be read."""
        try:
            return await session.cluster(self._store)
        except DatastoreUnavailable:
            raise
        except MuslinError as error:
            self.unreadable.append(f"{session.CLUSTER} cannot be read: {error}")
            return "", ""

    async def etcd_signs(self, names: list[str]) -> dict[str, Signs]:
        """The life signs of nodes, from felix's and calico-node's keys in etcd."""
        keys: list[Key] = []
        for name in names:
            keys += [FelixStatusKey(name), FelixStatusKey(name, last=True), LifeSignKey(name)]
        try:
            stored = await self._store.get_many(keys)
        except DatastoreUnavailable:
            raise
        except MuslinError as error:
            self.unreadable.append(f"life signs of nodes cannot be read: {error}")
            return {}

        def value(key: Key) -> object:
            entry = stored.get(key)
            return entry.value if entry is not None else None

        return {
            name: Signs(
                felix=_felix(value(FelixStatusKey(name))),
                last=_felix(value(FelixStatusKey(name, last=True))),
                machine=sign if isinstance(sign := value(LifeSignKey(name)), LifeSign) else None,
            )
            for name in names
        }


def _felix(value: object) -> FelixStatus | None:
    return value if isinstance(value, FelixStatus) else None


async def read(
    store: Datastore, now: float, kubernetes_signs: Mapping[str, Signs] | None = None
) -> Facts:
    """The facts that a datastore has.

    `kubernetes_signs`: the nodes' conditions where the datastore is Kubernetes (`kubelets.py`);
    None: the signs are read from etcd. Raises `DatastoreUnavailable`.
    """
    reading = Reading(store)
    version, kind = await reading.cluster()
    nodes = {entry.value.metadata.name: entry.value for entry in await reading.entries("Node")}
    reports = tuple(entry.value for entry in await reading.entries("CalicoNodeStatus"))
    pools = usable(await reading.entries("IPPool"))
    blocks = tuple(entry.value for entry in await reading.entries("Block"))
    reservations = await reading.entries("IPReservation")
    signs = kubernetes_signs
    if signs is None:
        signs = await reading.etcd_signs(list(nodes))
    return Facts(
        now=now,
        nodes=nodes,
        reports=reports,
        signs=signs,
        pools=tuple(pools),
        blocks=blocks,
        reserved=tuple(reserved_networks(entry.value for entry in reservations)),
        version=version,
        kind=kind,
        unreadable=tuple(reading.unreadable),
    )
