"""The four namespaces of the cases, in the lab of tests/netpol: x, y, z and one more, w.

             node1                  node2
    x/a   y/b   z/a   w/a      x/b   y/a   z/b   w/b        node1 and node2 themselves serve, too

Upstream's houses are gryffindor x, ravenclaw y, slytherin z, hufflepuff w, two pods each; a pod
serves two ports of each protocol, here always 80 and 81. ClusterNetworkPolicies are converted as
the controller converts them, and given to `calicoctl apply`; the fence of tests/netpol tells when
every node enforces them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from libcalico.conversion import NodeAddresses
from tests.netpol import pods
from tests.netpol.matrix import Pair, as_wanted, differences, expectation, table
from tests.netpol.pods import Prober
from tests.netpol.world import (
    NODES,
    World,
    documents,
    namespace_yaml,
    not_lasting,
    patience,
)
from tests.support.patience import patient

PODS = tuple(f"{space}/{pod}" for space in "xyzw" for pod in "ab")
GUESTS = {"w/a": NODES[0], "w/b": NODES[1]}
LINUX = {"kubernetes.io/os": "linux"}
SECONDS = 10.0
LEAST_LOOKS = 5
OPEN_TRIES = 4
CLUSTER = "ClusterNetworkPolicy"
Document = dict[str, Any]
Poke = tuple[str, str, str, bool]
"""Client, door, server, whether it is open."""


@dataclass
class Houses:
    """The world with the fourth house and the nodes' own servers."""

    world: World
    probers: Mapping[str, Prober]
    nodes: Sequence[NodeAddresses]
    _applied: dict[str, Document] = field(default_factory=dict)

    def address(self, name: str) -> str:
        """Where a pod or node is found."""
        return self.probers[name].address

    def apply(self, changed: Sequence[Document]) -> None:
        """Create or change objects; returns when every node enforces them."""
        own = [document for document in changed if document["kind"] == CLUSTER]
        self.world.apply([document for document in changed if document["kind"] != CLUSTER])
        self._applied |= {document["metadata"]["name"]: document for document in own}
        self.world.store_cluster(own, self.nodes)
        self.world.fence()

    def reset(self) -> None:
        """Take away what the case applied."""
        self.world.drop_cluster([*self._applied.values()], self.nodes)
        self._applied.clear()
        self.world.reset()

    def see(self, doors: Mapping[str, Sequence[str]]) -> None:
        """Every door's matrix becomes as its lines say, and is the same at a second look."""
        wanted = {door: expectation(PODS, lines) for door, lines in doors.items()}
        begun, looks = time.monotonic(), 0
        while True:
            seen = self._observe(wanted, 1, patience(looks))
            looks += 1
            wrong = [door for door in wanted if differences(wanted[door], seen[door])]
            if not wrong:
                break
            if looks >= LEAST_LOOKS and time.monotonic() - begun > patient(SECONDS):
                tables = [f"{door}\n{table(wanted[door], seen[door])}" for door in wrong]
                raise AssertionError("not as expected: " + "\n".join(tables))
            time.sleep(0.05)
        again = not_lasting(
            wanted, lambda timeout: self._observe(wanted, OPEN_TRIES, timeout), patience(looks - 1)
        )
        for door, seen_again in again.items():
            raise AssertionError(f"{door} changed:\n{table(wanted[door], seen_again)}")

    def poke(self, pokes: Sequence[Poke]) -> None:
        """Single connections become as they say."""
        begun, looks = time.monotonic(), 0
        while wrong := [poke for poke in pokes if not self._poke(poke, patience(looks))]:
            looks += 1
            late = looks >= LEAST_LOOKS and time.monotonic() - begun > patient(SECONDS)
            assert not late, f"not as expected: {wrong}"
        # What is open may be late once more, what is shut was shut at this patience before.
        times = {poke: patience(LEAST_LOOKS if poke[3] else looks) for poke in pokes}
        assert [poke for poke, timeout in times.items() if not self._poke(poke, timeout)] == []

    def _poke(self, poke: Poke, timeout: float) -> bool:
        client, door, server, open_ = poke
        address = self.address(server)
        tries = OPEN_TRIES if open_ else 1
        self.probers[client].ask({door: {address: tries}}, timeout)
        return as_wanted(open_, self.probers[client].answer()[door][address], server)

    def _observe(
        self, wanted: Mapping[str, Mapping[Pair, bool]], tries: int, timeout: float
    ) -> dict[str, dict[Pair, str]]:
        several = {
            door: {pair: tries for pair, open_ in pairs.items() if open_}
            for door, pairs in wanted.items()
        }
        return pods.observe_all([self.probers[name] for name in PODS], several, timeout)


@contextmanager
def houses(world: World) -> Iterator[Houses]:
    """The fourth house and the nodes' servers, gone afterwards."""
    lab = world.lab
    listed = documents("---\n".join(_each(world.ctl(["get", "nodes", "-o", "yaml"]))))
    addresses = {
        node["metadata"]["name"]: node["spec"]["bgp"]["ipv4Address"].partition("/")[0]
        for node in listed
    }
    # Cases of tests/cyclonus may have deleted the namespace or left labels on it.
    world.have_namespace("w")
    world.store(documents(namespace_yaml("w")))
    servers: dict[str, Prober] = {}
    try:
        for name, node in GUESTS.items():
            world.start(name, node)
        for node in NODES:
            machine = lab.machine(node)
            command = machine.command([*pods.COMMAND, node, *pods.SERVED])
            servers[node] = pods.start(command, machine.environment(), node, addresses[node])
        pods.ready(servers.values())
        nodes = [NodeAddresses(LINUX, (addresses[node],)) for node in NODES]
        yield Houses(world, {**world.probers, **servers}, nodes)
    finally:
        for prober in servers.values():
            prober.end()
        for name in GUESTS:
            if name in world.places:
                world.stop(name)


def _each(text: str) -> Iterator[str]:
    for document in documents(text):
        for item in document.get("items", [document]):
            yield json.dumps(item) + "\n"
