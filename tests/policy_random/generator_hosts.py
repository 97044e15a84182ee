"""Random worlds of one node with host endpoints, for packets that it receives, sends and forwards.

Most policies select host endpoints and act at a stage of their own: before connections are
tracked, before addresses are translated, on what passes through, on the node itself. Their rules
come from the generator of worlds of pods, which here knows the node and its neighbours as ends too.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.policy_random.generator import POD_LABELS, Generator, Pod, World
from tests.policy_random.generator_extras import PORTS

Document = dict[str, Any]
POLICIES = 14
STAGES: dict[str, Document] = {
    "doNotTrack": {"doNotTrack": True, "applyOnForward": True},
    "preDNAT": {"preDNAT": True, "applyOnForward": True},
    "forward": {"applyOnForward": True},
    "normal": {},
}
SHARES = (35, 25, 20, 20)
DIALLED = {80: 30080, 443: 30443, 53: 30053}
"""Ports that are dialled on the node in the place of those that listen."""
OPEN = "open"


class HostGenerator:
    """One world in the making; `interfaces`: those of the node, with their addresses."""

    def __init__(
        self,
        random: Random,
        ends: list[Pod],
        workloads: list[Pod],
        interfaces: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.random, self.workloads, self.interfaces = random, workloads, interfaces
        self.common = Generator(random, ends)
        self.chance = self.common.chance

    def world(self, seed: int, number: int) -> World:
        """All documents, in an order in which they can be created."""
        common = self.common
        tiers = common.tiers()
        names = [tier["metadata"]["name"] for tier in tiers]
        documents = [*tiers, *common.profiles(), self.open_profile(), *common.sets()]
        documents += [self.policy(i, names) for i in range(POLICIES)]
        documents += [common.endpoint(pod) for pod in self.workloads]
        return World(seed, number, documents + self.hosts())

    def open_profile(self) -> Document:
        """Without one that lets everything pass most host endpoints would be shut."""
        rules = [{"action": "Allow"}]
        return self.common.document("Profile", OPEN, {"ingress": rules, "egress": rules})

    def policy(self, number: int, tiers: list[str]) -> Document:
        """One policy of everywhere, or one of pods."""
        found = self.common.policy(number, tiers)
        if self.chance(0.2):
            return found
        spec = found["spec"]
        for name in ("serviceAccountSelector", "namespaceSelector", "applyOnForward"):
            spec.pop(name, None)
        if self.chance(0.6):
            spec["selector"] = "has(host)"
        (stage,) = self.random.choices(list(STAGES), SHARES)
        spec |= STAGES[stage]
        if stage == "preDNAT":
            spec["types"] = ["Ingress"]
            spec.pop("egress", None)
            spec.setdefault("ingress", self.common.rules())
        if stage in ("preDNAT", "doNotTrack"):
            self.dial(spec)
        return self.common.document("GlobalNetworkPolicy", found["metadata"]["name"], spec)

    def dial(self, spec: Document) -> None:
        """Some ports are those that are dialled."""
        for rule in spec.get("ingress", []):
            for name in ("ports", "notPorts"):
                ports = rule.get("destination", {}).get(name, [])
                ports[:] = [DIALLED.get(p, p) if self.chance(0.6) else p for p in ports]

    def hosts(self) -> list[Document]:
        """Host endpoints of the interfaces, mostly one of each; now and then another wants it."""
        found = []
        for number, (interface, addresses) in enumerate(self.interfaces.items()):
            if number == 0 or self.chance(0.6):
                found.append(self.host(f"b-{interface}", interface, addresses))
                if self.chance(0.15):
                    found.append(self.host(f"a-{interface}", interface, addresses))
        return found

    def host(self, name: str, interface: str, addresses: tuple[str, ...]) -> Document:
        """One by the interface's name or by addresses of it."""
        labels = self.common.labels(POD_LABELS, 0.6) | {"host": ""}
        spec: Document = {"node": self.workloads[0].node}
        if self.chance(0.6):
            spec["interfaceName"] = interface
        if "interfaceName" not in spec or self.chance(0.5):
            spec["expectedIPs"] = self.random.sample(addresses, self.random.randint(1, 2))
        profiles = [name for name, share in ((OPEN, 0.6), ("extra", 0.2)) if self.chance(share)]
        if profiles:
            spec["profiles"] = self.random.sample(profiles, len(profiles))
        spec["ports"] = [
            {"name": name, "protocol": protocol, "port": self.random.choice(numbers)}
            for name, protocol, numbers in PORTS
            if self.chance(0.6)
        ]
        return self.common.document("HostEndpoint", name, spec, labels=labels)


def make_host_world(
    seed: int,
    number: int,
    ends: list[Pod],
    workloads: list[Pod],
    interfaces: Mapping[str, tuple[str, ...]],
) -> World:
    """World `number` of a seed."""
    random = Random(f"hosts/{seed}/{number}")
    return HostGenerator(random, ends, workloads, interfaces).world(seed, number)
