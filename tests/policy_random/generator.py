"""Random worlds of Calico documents over a fixed set of pods.

A world is reproducible from (seed, number, pods). Weights are chosen so that verdicts mix: a world
in which everything is denied tests nothing. What is reached is measured in coverage.py, by reading
the documents, not believed here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from random import Random
from typing import Any

import yaml

from tests.policy_random.generator_extras import Extras
from tests.policy_random.generator_selectors import SelectorMaker

Document = dict[str, Any]
API = "projectcalico.org/v3"
NAMESPACES = ("alpha", "beta", "gamma-x")
ACCOUNTS = ("default", "builder", "robot-2")
POLICIES = 20
TCP_PORTS, UDP_PORTS, SOURCE_PORTS = (80, 81, 443, 8080), (53, 80, 5353), (1500, 33000)
RAW_PROTOCOL = 253
TIERS = ("default", "first", "second", "third")

POD_LABELS: dict[str, tuple[str, ...]] = {
    "app": ("web-1", "web-2", "db-1", "cache", ""),
    "role": ("front", "back", "middle"),
    "env": ("prod", "test"),
    "example.org/team_A.x-y": ("red", "blue", "redblue"),
    # Words of the language are names like any other where an expression begins.
    "in": ("in", "not"),
    "has": ("all", "has"),
}
GROUP_LABELS: dict[str, tuple[str, ...]] = {
    "env": ("prod", "test"),
    "zone": ("north", "south", "north-east"),
    "not": ("x", "y"),
}


@dataclass(frozen=True)
class Pod:
    """A pod that exists before the world does: where it runs and its addresses."""

    namespace: str
    name: str
    node: str
    addresses: tuple[str, ...]

    @property
    def title(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class World:
    """Everything that a random number says about policy; `slices`: EndpointSlices."""

    seed: int
    number: int
    documents: list[Document]
    slices: list[Document] = field(default_factory=list)

    @property
    def yaml(self) -> str:
        """The world as one YAML stream."""
        return yaml.safe_dump_all(self.documents, sort_keys=False)

    def of(self, *kinds: str) -> list[Document]:
        """The documents of some kinds."""
        return [d for d in self.documents if d["kind"] in kinds]


def pod_places(nodes: int = 2, count: int = 12) -> list[tuple[str, str, str]]:
    """(namespace, name, node) of the pods: namespaces and nodes in all combinations."""
    spaces = len(NAMESPACES)
    return [
        (NAMESPACES[i % spaces], f"p{i:02}", f"node{i // spaces % nodes + 1}") for i in range(count)
    ]


def imaginary_pods(nodes: int = 2, count: int = 12) -> list[Pod]:
    """Pods for tests without packets: one /26 and one /122 per node."""
    return [
        Pod(namespace, name, node, (f"10.65.{node[4:]}.{i + 6}", f"fd65::{node[4:]}:{i + 6:x}"))
        for i, (namespace, name, node) in enumerate(pod_places(nodes, count))
    ]


def make_world(seed: int, number: int, pods: list[Pod], policies: int = POLICIES) -> World:
    """World `number` of a seed."""
    world = Generator(Random(f"{seed}/{number}"), pods).world(seed, number, policies)
    extras = Extras(Random(f"extras/{seed}/{number}"), pods, POD_LABELS)
    world.slices.extend(extras.extend(world.documents))
    return world


class Generator:
    """One world in the making."""

    def __init__(self, random: Random, pods: list[Pod]) -> None:
        self.random = random
        self.pods = pods
        self.pod_selectors = SelectorMaker(random, {**POD_LABELS, "absent": ("x",)})
        self.group_selectors = SelectorMaker(random, GROUP_LABELS)
        self.named = {6: ("http", "admin", "client"), 17: ("dns", "metrics")}

    def chance(self, share: float) -> bool:
        """True in a share of cases."""
        return self.random.random() < share

    def world(self, seed: int, number: int, policies: int) -> World:
        """All documents, in an order in which they can be created."""
        tiers = self.tiers()
        names = [tier["metadata"]["name"] for tier in tiers]
        documents = [*tiers, *self.profiles(), *self.sets()]
        documents += [self.policy(i, names) for i in range(policies)]
        documents += [self.endpoint(pod) for pod in self.pods]
        return World(seed, number, documents)

    def document(self, kind: str, name: str, spec: Document, **metadata: Any) -> Document:
        """A resource."""
        return {
            "apiVersion": API,
            "kind": kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }

    def labels(self, choices: dict[str, tuple[str, ...]], share: float) -> dict[str, str]:
        """A random label set."""
        return {k: self.random.choice(v) for k, v in choices.items() if self.chance(share)}

    def tiers(self) -> list[Document]:
        """`default` as Calico fixes it, and up to three more."""
        found = [
            self.document("Tier", "default", {"order": 1000000, "defaultAction": "Deny"}),
        ]
        for name in TIERS[1:]:
            if self.chance(0.6):
                spec: Document = {}
                # An order behind `default`, equal orders and none at all are all legal.
                order = self.random.choice([None, 10, 10, 20.5, 2000000])
                if order is not None:
                    spec["order"] = order
                if self.chance(0.7):
                    spec["defaultAction"] = self.random.choice(["Deny", "Pass", "Pass"])
                found.append(self.document("Tier", name, spec))
        return found

    def profiles(self) -> list[Document]:
        """Namespaces and service accounts as Calico turns them into profiles, and others."""
        found = []
        for space in NAMESPACES:
            labels = {f"pcns.{k}": v for k, v in self.labels(GROUP_LABELS, 0.7).items()}
            labels["pcns.projectcalico.org/name"] = space
            found.append(self.profile(f"kns.{space}", labels, open_share=0.8))
            for account in ACCOUNTS:
                labels = {f"pcsa.{k}": v for k, v in self.labels(GROUP_LABELS, 0.6).items()}
                labels["pcsa.projectcalico.org/name"] = account
                found.append(self.profile(f"ksa.{space}.{account}", labels, open_share=0))
        found.append(self.profile("extra", self.labels(POD_LABELS, 0.5), open_share=0.4))
        return found

    def profile(self, name: str, labels: dict[str, str], open_share: float) -> Document:
        """A profile: open to all, with random rules, or labels only."""
        spec: Document = {"labelsToApply": labels}
        if self.chance(open_share):
            spec |= {"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]}
        elif open_share and self.chance(0.8):
            spec |= {"ingress": self.rules(), "egress": self.rules()}
        return self.document("Profile", name, {k: v for k, v in spec.items() if v})

    def sets(self) -> list[Document]:
        """Network sets over pods' addresses: the only ones whose packets we see."""
        found = []
        for i in range(self.random.randint(1, 4)):
            nets = [
                self.net(self.random.choice((4, 4, 6))) for _ in range(self.random.randint(0, 4))
            ]
            if self.chance(0.1):
                nets.append(self.random.choice(["0.0.0.0/0", "::/0"]))
            if self.chance(0.3):
                nets.append(self.random.choice(self.random.choice(self.pods).addresses))
            spec: Document = {"nets": nets} if nets else {}
            labels = self.labels(POD_LABELS, 0.5)
            if self.chance(0.5):
                space = self.random.choice(NAMESPACES)
                found.append(
                    self.document("NetworkSet", f"set-{i}", spec, namespace=space, labels=labels)
                )
            else:
                found.append(self.document("GlobalNetworkSet", f"set-{i}", spec, labels=labels))
        return found

    def endpoint(self, pod: Pod) -> Document:
        """The pod's endpoint: its facts are fixed, its labels, ports and profiles are not."""
        account = self.random.choice([*ACCOUNTS, *ACCOUNTS, ""])
        labels = self.labels(POD_LABELS, 0.65)
        labels["projectcalico.org/namespace"] = pod.namespace
        labels["projectcalico.org/orchestrator"] = "k8s"
        profiles = [f"kns.{pod.namespace}"]
        if account:
            labels["projectcalico.org/serviceaccount"] = account
            profiles.append(f"ksa.{pod.namespace}.{account}")
        if self.chance(0.2):
            profiles.insert(self.random.randrange(len(profiles) + 1), "extra")
        if self.chance(0.04):
            profiles.insert(self.random.randrange(len(profiles) + 1), "nobody-defined-it")
        if self.chance(0.03):
            profiles = []
        ports = []
        for number, choices in ((6, TCP_PORTS), (17, UDP_PORTS)):
            for name in self.named[number]:
                if self.chance(0.6):
                    port = self.random.choice(SOURCE_PORTS if name == "client" else choices)
                    ports.append(
                        {
                            "name": name,
                            "protocol": "TCP" if number == 6 else "UDP",
                            "port": port,
                        }
                    )
        spec: Document = {
            "orchestrator": "k8s",
            "node": pod.node,
            "pod": pod.name,
            "endpoint": "eth0",
            "ipNetworks": [f"{a}/{ip_address(a).max_prefixlen}" for a in pod.addresses],
            "profiles": profiles,
            "interfaceName": f"cali{hashlib.sha1(pod.title.encode()).hexdigest()[:11]}",
            "ports": ports,
        }
        if account:
            spec["serviceAccountName"] = account
        return self.document(
            "WorkloadEndpoint",
            f"{pod.node}-k8s-{pod.name}-eth0",
            spec,
            namespace=pod.namespace,
            labels=labels,
        )

    def policy(self, number: int, tiers: list[str]) -> Document:
        """One policy."""
        # Names around '-' and '/' make ties of equal orders depend on the exact text compared.
        name = self.random.choice(["a", "a-b", "b", "ab", "a-1"]) + (
            "" if number < 3 else f"-{number}"
        )
        if number < 3:
            name = ("a", "a-b", "ab")[number]
        spec: Document = {"tier": self.random.choice([*tiers, "default"])}
        order = self.random.choice([None, 1, 5, 5, 5, 10.5, 100, 1000, 0, -3])
        if order is not None:
            spec["order"] = order
        everywhere = self.chance(0.5)
        if self.chance(0.75):
            spec["selector"] = self.pod_selectors.text(most=3)
        if self.chance(0.2):
            spec["serviceAccountSelector"] = self.group_selectors.text(most=2)
        if everywhere and self.chance(0.35):
            spec["namespaceSelector"] = self.group_selectors.text(most=2)
        types = self.random.choice([None, ["Ingress"], ["Egress"], ["Ingress", "Egress"]])
        if types:
            spec["types"] = types
        space = "" if everywhere else self.random.choice(NAMESPACES)
        for direction in ("ingress", "egress"):
            if self.chance(0.75):
                spec[direction] = self.rules()
        if everywhere and self.chance(0.1):
            spec["applyOnForward"] = True
        if everywhere:
            return self.document("GlobalNetworkPolicy", name, spec)
        return self.document("NetworkPolicy", name, spec, namespace=space)

    def rules(self) -> list[Document]:
        """Up to four rules, more often one or two."""
        return [self.rule() for _ in range(self.random.choice([0, 1, 1, 2, 2, 3, 4]))]

    def rule(self) -> Document:
        """One rule that Calico accepts."""
        actions = ["Allow"] * 12 + ["Deny"] * 3 + ["Pass"] * 4 + ["Log"] * 2
        rule: Document = {"action": self.random.choice(actions)}
        version = self.random.choice([4, 4, 6])
        protocol = self.protocol(rule, version)
        if self.chance(0.3 if protocol in (1, 58) else 0.08):
            rule["ipVersion"] = version
        choices = protocol in (6, 17) and self.chance(0.1)
        for side in ("source", "destination"):
            entity = self.entity(side, protocol, version) if self.chance(0.5) else {}
            if choices:
                entity = self.choices(side, protocol, version)
            if entity:
                rule[side] = entity
        if self.chance(0.05):
            rule["metadata"] = {"annotations": {"why": "a random number said so"}}
        return rule

    def protocol(self, rule: Document, version: int) -> int | None:
        """Put protocol, notProtocol, icmp and notICMP into a rule; the protocol's number."""
        icmp = ("ICMP", 1) if version == 4 else ("ICMPv6", 58)
        kind = self.random.choices(
            ("none", "tcp", "udp", "icmp", "other", "negated"), (33, 23, 14, 16, 4, 10)
        )[0]
        if kind == "tcp":
            rule["protocol"] = self.random.choice(["TCP", "TCP", 6])
            return 6
        if kind == "udp":
            rule["protocol"] = self.random.choice(["UDP", "UDP", 17])
            return 17
        if kind == "icmp":
            rule["protocol"] = self.random.choice(icmp)
            echo = 8 if version == 4 else 128
            for name, share in (("icmp", 0.6), ("notICMP", 0.35)):
                if self.chance(share):
                    rule[name] = {"type": self.random.choice([echo, echo, 13])}
                    if self.chance(0.6):
                        rule[name]["code"] = self.random.choice([0, 3])
            return icmp[1]
        if kind == "other":
            rule["protocol"] = self.random.choice([RAW_PROTOCOL, RAW_PROTOCOL, "SCTP", 132, 47])
        if kind == "negated":
            rule["notProtocol"] = self.random.choice(["TCP", 6, "UDP", 17, *icmp, RAW_PROTOCOL])
        if kind == "none" and self.chance(0.06):
            # Of every protocol, and both families: all but these types.
            rule["notICMP"] = {"type": self.random.choice([8, 128])}
        named = rule.get("protocol")
        return 132 if named == "SCTP" else named

    def entity(self, side: str, protocol: int | None, version: int) -> Document:
        """One side of a rule."""
        entity: Document = {}
        if self.chance(0.22):
            entity["nets"] = [self.net(version, whole=True) for _ in range(self.few())]
        if self.chance(0.22):
            entity["notNets"] = [self.net(version) for _ in range(self.few())]
        if self.chance(0.35):
            entity["selector"] = self.pod_selectors.text(most=3)
        if self.chance(0.2):
            entity["notSelector"] = self.pod_selectors.text(most=2)
        if self.chance(0.2):
            everyone = self.random.choice(["all()", "all()", "global()"])
            entity["namespaceSelector"] = (
                everyone if self.chance(0.4) else self.group_selectors.text(most=2)
            )
        if self.chance(0.14):
            entity["serviceAccounts"] = self.accounts()
        ported = protocol in (6, 17, 132)
        for name, share in (("ports", 0.35), ("notPorts", 0.28)):
            if self.chance(share if ported else 0.06 if protocol is None else 0):
                entity[name] = self.ports(side, protocol, numbers=ported)
        return entity

    def choices(self, side: str, protocol: int | None, version: int) -> Document:
        """Several nets, ports and exceptions at once: what one rule of the kernel cannot say."""
        entity: Document = {"nets": [self.net(version, short=True) for _ in range(3)]}
        if self.chance(0.4):
            entity["notNets"] = [self.net(version) for _ in range(2)]
        if self.chance(0.7):
            entity["ports"] = [*self.ports(side, protocol, numbers=True), "http", "1:40000"]
        return entity

    def few(self) -> int:
        """Mostly one."""
        return self.random.choice([1, 1, 1, 2, 3])

    def accounts(self) -> Document:
        """Service accounts by name, by label, or both."""
        found: Document = {}
        if self.chance(0.6):
            found["names"] = self.random.sample([*ACCOUNTS, "nobody"], self.random.randint(1, 2))
        if not found or self.chance(0.3):
            found["selector"] = self.group_selectors.text(most=2)
        return found

    def net(self, version: int, whole: bool = False, short: bool = False) -> str:
        """A network around some pod; `whole` may be everything; `short` holds several pods."""
        pod = self.random.choice(self.pods)
        choices = [a for a in pod.addresses if ip_address(a).version == version]
        address = choices[0] if choices else ("10.65.0.1" if version == 4 else "fd65::1")
        lengths: tuple[int, ...] = (
            (32, 32, 31, 30, 29, 28, 26, 24, 16) if version == 4 else (128, 128, 126, 124, 48)
        )
        length = self.random.choice(lengths[3:] if short else lengths)
        if whole and self.chance(0.08):
            length = 0
        return str(ip_network(f"{address}/{length}", strict=False))

    def ports(self, side: str, protocol: int | None, numbers: bool) -> list[int | str]:
        """Numbers, ranges and names; now and then more than one rule of the kernel can hold."""
        names = [*self.named[17 if protocol == 17 else 6], "dns", "nowhere"]
        used: tuple[int, ...] = UDP_PORTS if protocol == 17 else TCP_PORTS
        if side == "source":
            names, used = ["client", "client", *names], SOURCE_PORTS
        if not numbers:
            return [self.random.choice(names) for _ in range(self.few())]
        count = self.random.randint(14, 20) if self.chance(0.08) else self.few()
        found: list[int | str] = []
        for _ in range(count):
            near = self.random.choice((*used, *used, *used, *TCP_PORTS, *SOURCE_PORTS))
            kind = self.random.choices(("one", "range", "name"), (35, 35, 30))[0]
            if count > 3 and kind == "one":
                near = self.random.randint(1, 65535) if self.chance(0.9) else near
            if kind == "one":
                found.append(near)
            elif kind == "name":
                found.append(self.random.choice(names))
            else:
                low = max(1, near - self.random.choice([0, 0, 1, 20, 100]))
                high = near + self.random.choice([0, 0, 1, 400])
                # Also ranges that end right before or begin right after a port in use.
                low, high = self.random.choice([(low, high), (near + 1, near + 9), (1, near - 1)])
                found.append(f"{low}:{min(high, 65535)}")
        return found
