"""Which pods live and which address each has; compared with the store at every change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Any

from cni.request.attachment import Attachment
from tests.simulation.cluster import Cluster, EtcdCluster
from tests.simulation.trace import Trace


@dataclass
class Pod:
    """A pod from the success of its ADD to the beginning of its DEL."""

    name: str
    node: str
    handle: str
    attachment: Attachment
    address: IPv4Address | IPv6Address | None = None
    had: bool = False


class Ledger:
    """`lives` and `dies` are the runtimes' word; `look` reads the store."""

    def __init__(self, trace: Trace, cluster: Cluster) -> None:
        self._trace, self._cluster = trace, cluster
        self.pods: dict[str, Pod] = {}
        self.doomed: set[IPv4Network] = set()
        """Blocks that an operator is about to delete."""
        self._deleted: set[IPv4Network] = set()
        """Blocks that an operator deleted and that are not back with their pods in them."""

    def of(self, node: str) -> list[Pod]:
        """The living pods of a node."""
        return [pod for pod in self.pods.values() if pod.node == node]

    def lives(self, pod: Pod) -> None:
        """Its ADD succeeded."""
        for other in self.pods.values():
            if other.address == pod.address:
                self._trace.fail(f"{pod.address} of {other.name} was given to {pod.name} as well")
        self.pods[pod.name] = pod
        self.look()

    def dies(self, pod: Pod) -> None:
        """Its DEL began, or its machine is gone."""
        if self.pods.get(pod.name) is pod:
            del self.pods[pod.name]

    def holders(self) -> dict[str, str]:
        """Who holds each address, by all blocks: its handle."""
        found: dict[str, str] = {}
        for block in self.blocks():
            network = IPv4Network(block["cidr"])
            for ordinal, index in enumerate(block.get("allocations") or []):
                if index is None:
                    continue
                attribute = block["attributes"][index]
                handle = attribute.get("handle_id") or ""
                found[str(network[ordinal])] = handle
        return found

    def blocks(self) -> Iterator[dict[str, Any]]:
        """All blocks as they are stored."""
        if isinstance(self._cluster, EtcdCluster):
            for path, (raw, _) in self._cluster.database.values.items():
                if path.startswith("/calico/ipam/v2/assignment/"):
                    yield json.loads(raw)
            return
        for path, tree in self._cluster.api.objects.items():
            if "/ipamblocks/" in path:
                yield tree["spec"]

    def claims(self) -> Iterator[tuple[str, IPv4Network]]:
        """All claims that are stored: the node of each, and its block."""
        if isinstance(self._cluster, EtcdCluster):
            for path in self._cluster.database.values:
                if path.startswith("/calico/ipam/v2/host/") and "/ipv4/block/" in path:
                    node, _, block = path.removeprefix("/calico/ipam/v2/host/").partition("/")
                    cidr = block.removeprefix("ipv4/block/").replace("-", "/")
                    yield node, IPv4Network(cidr)
            return
        for path, tree in self._cluster.api.objects.items():
            if "/blockaffinities/" in path:
                yield tree["spec"]["node"], IPv4Network(tree["spec"]["cidr"])

    def claimed(self, cidr: IPv4Network) -> bool:
        """Whether a node's claim on a block is stored."""
        return any(block == cidr for _, block in self.claims())

    def look(self) -> None:
        """No living pod's address is free, or another's."""
        if not self.pods:
            return
        holders = self.holders()
        standing = {IPv4Network(block["cidr"]) for block in self.blocks()}
        self._deleted |= self.doomed - standing
        self.doomed &= standing
        for pod in self.pods.values():
            holder = holders.get(str(pod.address))
            if holder == pod.handle:
                pod.had = True
            elif holder:
                self._trace.fail(f"{pod.address} of {pod.name}, which lives, is given to {holder}")
            elif pod.had and not any(pod.address in network for network in self._deleted):
                self._trace.fail(f"{pod.address} of {pod.name}, which lives, was freed")
        # A block that another node makes has the pods' addresses once their own node put them back.
        self._deleted -= {
            cidr
            for cidr in standing
            if all(str(pod.address) in holders for pod in self.pods.values() if pod.address in cidr)
        }

    def lacking(self) -> Iterator[str]:
        """What is wrong when all is quiet."""
        holders = self.holders()
        standing = {IPv4Network(block["cidr"]) for block in self.blocks()}
        claims = set(self.claims())
        for pod in self.pods.values():
            if holders.get(str(pod.address)) is not None:
                continue
            # A block that was deleted alone is made again when its node next needs an address or
            # compares all of its pods; until then felix has a condition (felix/calc/blocks.py).
            alone = any(node == pod.node and pod.address in cidr for node, cidr in claims)
            if not alone or any(pod.address in cidr for cidr in standing):
                yield f"quiet: {pod.address} of {pod.name}, which lives, is free"
