"""What a world has beside policies of pods: host endpoints, stages, staged policies, services.

Added to a finished world with a random source of its own, so a world's policies are the same
with and without. Pods' packets are what is judged, so everything here is made to matter to them:
host endpoints expect pods' addresses, services stand for pods, and what must not touch a pod
(staged policies, policies before connection tracking or address translation) selects pods.
"""

from __future__ import annotations

from ipaddress import ip_address
from random import Random
from typing import Any, Protocol

Document = dict[str, Any]
SERVICES = ("front", "data")
PORTS = (
    ("http", "TCP", (80, 443, 8080)),
    ("admin", "TCP", (80, 81)),
    ("client", "TCP", (1500, 33000)),
    ("dns", "UDP", (53, 5353)),
)
INTERFACES = ("eth0", "eth1", "*")


class Place(Protocol):
    """A pod: where it is, and its addresses."""

    @property
    def namespace(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def addresses(self) -> tuple[str, ...]: ...


class Extras:
    """The additions to one world."""

    def __init__(self, random: Random, pods: list[Any], labels: dict[str, tuple[str, ...]]) -> None:
        self.random, self.pods, self.choices = random, pods, labels
        self.namespaces = tuple(dict.fromkeys(pod.namespace for pod in pods))

    def chance(self, share: float) -> bool:
        """True in a share of cases."""
        return self.random.random() < share

    def extend(self, documents: list[Document]) -> list[Document]:
        """Change and add to a world's documents; returns its EndpointSlices."""
        policies = [d for d in documents if d["kind"] in ("NetworkPolicy", "GlobalNetworkPolicy")]
        for policy in policies:
            self.stage(policy)
            self.name_services(policy)
        documents += [self.staged(n, one) for n, one in enumerate(policies) if self.chance(0.15)]
        documents += [self.host(number) for number in range(self.random.randint(0, 4))]
        return [self.slice(number) for number in range(self.random.randint(0, 6))]

    def stage(self, policy: Document) -> None:
        """Some global policies act on hosts before anything else does."""
        spec = policy["spec"]
        if policy["kind"] != "GlobalNetworkPolicy" or not self.chance(0.12):
            return
        inbound = "egress" not in spec and spec.get("types") in (None, ["Ingress"])
        field = "preDNAT" if inbound and self.chance(0.7) else "doNotTrack"
        spec |= {field: True, "applyOnForward": True}

    def name_services(self, policy: Document) -> None:
        """Some rules mean a service, on the side where one may stand."""
        for direction, side in (("ingress", "source"), ("egress", "destination")):
            for rule in policy["spec"].get(direction, []):
                if self.chance(0.06):
                    # As Calico wants it: a service says all that its side says.
                    rule[side] = {"services": self.service(policy)}

    def service(self, policy: Document) -> Document:
        """One of the policy's own namespace, or of a named one."""
        own = policy["metadata"].get("namespace")
        match: Document = {"name": self.random.choice([*SERVICES, *SERVICES, "nobody"])}
        if not own or self.chance(0.5):
            match["namespace"] = self.random.choice(self.namespaces)
        return match

    def staged(self, number: int, policy: Document) -> Document:
        """A policy that would change much, were it in force."""
        spec = dict(policy["spec"])
        spec["stagedAction"] = self.random.choice(["Set", "Set", "Set", "Learn", "Ignore"])
        spec["order"] = self.random.choice([-100, 1, 1000])
        metadata = {**policy["metadata"]}
        if self.chance(0.5):
            metadata["name"] = f"staged-{number}"
        return {**policy, "kind": f"Staged{policy['kind']}", "metadata": metadata, "spec": spec}

    def host(self, number: int) -> Document:
        """A host endpoint that expects addresses of pods."""
        pods = self.random.sample(self.pods, self.random.randint(1, 6))
        spec: Document = {"node": self.random.choice(self.pods).node}
        if self.chance(0.6):
            spec["interfaceName"] = self.random.choice(INTERFACES)
        addresses = [self.random.choice(pod.addresses) for pod in pods]
        if self.chance(0.8) or "interfaceName" not in spec:
            spec["expectedIPs"] = list(dict.fromkeys(addresses))
        if self.chance(0.5):
            spec["profiles"] = self.random.sample(["extra", f"kns.{self.namespaces[0]}"], 1)
        spec["ports"] = [
            {"name": name, "protocol": protocol, "port": self.random.choice(numbers)}
            for name, protocol, numbers in PORTS
            if self.chance(0.8)
        ]
        labels = {k: self.random.choice(v) for k, v in self.choices.items() if self.chance(0.6)}
        return {
            "apiVersion": "projectcalico.org/v3",
            "kind": "HostEndpoint",
            "metadata": {"name": f"host-{number}", "labels": labels},
            "spec": spec,
        }

    def slice(self, number: int) -> Document:
        """An EndpointSlice of one family, as Kubernetes writes it."""
        version = self.random.choice([4, 4, 6])
        addresses = [
            address
            for pod in self.random.sample(self.pods, self.random.randint(1, 8))
            for address in pod.addresses
            if ip_address(address).version == version
        ]
        chosen = self.random.sample([("TCP", 80), ("TCP", 443), ("TCP", 8080), ("UDP", 53)], 2)
        ports = [{"name": f"p{at}", "protocol": p, "port": n} for at, (p, n) in enumerate(chosen)]
        name = self.random.choice(SERVICES)
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": self.random.choice(self.namespaces),
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": f"IPv{version}",
            "endpoints": [{"addresses": [address]} for address in addresses],
            "ports": ports,
        }
