"""The oracle: what a world of Calico documents says about one packet, by the letter, slowly.

It imports nothing of the product, only a YAML parser, so that an error of the product cannot
hide in it. Written from the data model (docs/reference/data-model.md) and the dataplane
reference (docs/reference/dataplane.md#order-of-policies, #endpoint-chains, #policy-chains): tiers
in order, policies in order, rules in order, then profiles, then deny. A packet of a new connection
passes when the egress verdict of its source and the ingress verdict of its destination both allow
it. Checked against hand-written tables in test_oracle.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any

import yaml

from tests.policy_random.oracle_selectors import NAMESPACE, Labels, holds, parse
from tests.policy_random.oracle_services import Behind, effective, services

Document = dict[str, Any]
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
ORCHESTRATOR = "projectcalico.org/orchestrator"
SERVICE_ACCOUNT = "projectcalico.org/serviceaccount"
PROTOCOLS = {"TCP": 6, "UDP": 17, "ICMP": 1, "ICMPv6": 58, "SCTP": 132, "UDPLite": 136}
WITH_PORTS = (6, 17, 132)
INFINITY = float("inf")


@dataclass(frozen=True)
class Flow:
    """The first packet of a connection between two pods, each named NAMESPACE/NAME."""

    source: str
    destination: str
    version: int
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    icmp_type: int = 0
    icmp_code: int = 0


@dataclass(frozen=True)
class Packet:
    """A flow with its addresses."""

    flow: Flow
    source: Address
    destination: Address


@dataclass(frozen=True)
class Decision:
    """What one direction says, and the word that decided."""

    allowed: bool
    by: str
    rule: int | None = None


@dataclass(eq=False)
class Item:
    """What selectors of rules choose from: an endpoint, or a network set."""

    title: str
    labels: Labels
    nets: list[Network]
    ports: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(eq=False)
class Endpoint(Item):
    """A pod."""

    namespace: str = ""
    profiles: list[str] = field(default_factory=list)


def protocol_number(value: Any) -> int:
    """6 of `TCP`, 6 and `6`."""
    return PROTOCOLS[value] if value in PROTOCOLS else int(value)


def port_holds(entry: Any, port: int) -> bool:
    """Whether a numeric entry of `ports` covers a port; a name never does."""
    text = str(entry)
    low, colon, high = text.partition(":")
    if colon and low.isdigit() and high.isdigit():
        return int(low) <= port <= int(high)
    return text.isdigit() and int(text) == port


def is_name(entry: Any) -> bool:
    """Whether an entry of `ports` is a named port."""
    return not all(part.isdigit() for part in str(entry).split(":"))


class Entity:
    """One side of a rule, compiled once against the items of the world."""

    def __init__(self, raw: Document, namespace: str, protocol: int | None, world: Oracle) -> None:
        self.service: Behind | None = None
        if raw.get("services"):
            wanted = (raw["services"].get("namespace") or namespace, raw["services"]["name"])
            self.service = (world.services or {}).get(wanted, Behind())
        self.nets = [ip_network(net) for net in raw.get("nets") or []]
        self.not_nets = [ip_network(net) for net in raw.get("notNets") or []]
        self.numbers = [p for p in raw.get("ports") or [] if not is_name(p)]
        self.names = [str(p) for p in raw.get("ports") or [] if is_name(p)]
        self.not_numbers = [p for p in raw.get("notPorts") or [] if not is_name(p)]
        self.not_names = [str(p) for p in raw.get("notPorts") or [] if is_name(p)]
        # Without a protocol a named port means one of TCP.
        self.named_protocol = protocol if protocol in WITH_PORTS else 6
        positive = self.positive(raw, namespace)
        negative = raw.get("notSelector") or ""
        items = self.everything = world.items
        self._seen: dict[Address, tuple[bool, bool]] = {}
        self.chosen: list[Item] | None = None
        self.refused: list[Item] = []
        if positive is not None:
            self.chosen = [item for item in items if positive(item.labels)]
        if negative:
            tree = parse(negative)
            refused = [item for item in items if holds(tree, item.labels, all_means=None)]
            if self.chosen is None:
                self.refused = refused
            else:
                # One set of those who match the one and not the other: an address that is
                # in it stays in it, whatever network set contains it as well.
                self.chosen = [item for item in self.chosen if item not in refused]

    def positive(self, raw: Document, namespace: str) -> Callable[[Labels], bool] | None:
        """What an item must satisfy; None when the side says nothing about labels."""
        tests: list[Callable[[Labels], bool]] = []
        accounts = raw.get("serviceAccounts") or {}
        if accounts.get("names"):
            names = set(accounts["names"])
            tests.append(lambda labels: labels.get(SERVICE_ACCOUNT) in names)
        if accounts.get("selector"):
            tree = parse(accounts["selector"])
            tests.append(lambda labels: holds(tree, labels, prefix="pcsa.", all_means=None))
        if raw.get("selector"):
            own = parse(raw["selector"])
            tests.append(lambda labels: holds(own, labels, all_means=None))
        if raw.get("namespaceSelector"):
            spaces = parse(raw["namespaceSelector"])
            tests.append(
                lambda labels: holds(
                    spaces, labels, prefix="pcns.", all_means=lambda have: NAMESPACE in have
                )
            )
        elif namespace and (tests or raw.get("notSelector")):
            tests.append(lambda labels: labels.get(NAMESPACE) == namespace)
        if not tests:
            return None
        return lambda labels: all(test(labels) for test in tests)

    def address_holds(self, address: Address) -> tuple[bool, bool]:
        """(whether the address may match at all, whether the selectors choose it)."""
        found = self._seen.get(address)
        if found is None:
            possible = not any(inside(item, address) for item in self.refused)
            for nets, wanted in ((self.nets, True), (self.not_nets, False)):
                ours = [net for net in nets if net.version == address.version]
                if nets and (not ours or any(address in net for net in ours) is not wanted):
                    possible = False
            selected = self.chosen is None or any(inside(item, address) for item in self.chosen)
            found = self._seen[address] = (possible, selected)
        return found

    def matches(self, address: Address, port: int, protocol: int, *, reached: bool) -> bool:
        """Whether one end of a packet is meant; `reached`: it is the end that is reached."""
        if self.service is not None:
            if reached:
                return (address, protocol, port) in self.service.ends
            return address in self.service.addresses
        possible, selected = self.address_holds(address)
        if not possible:
            return False
        has_port = protocol in WITH_PORTS
        if self.numbers or self.names:
            numeric = has_port and any(port_holds(p, port) for p in self.numbers)
            if not (selected and numeric) and not self.named(self.names, address, port, protocol):
                return False
        elif not selected:
            return False
        if has_port and any(port_holds(p, port) for p in self.not_numbers):
            return False
        return not self.named(self.not_names, address, port, protocol)

    def named(self, names: list[str], address: Address, port: int, protocol: int) -> bool:
        """Whether this end is a named port of an endpoint that the side's selectors choose."""
        if not names or protocol != self.named_protocol:
            return False
        items = self.everything if self.chosen is None else self.chosen
        wanted = {(name, protocol, port) for name in names}
        return any(wanted & set(item.ports) and inside(item, address) for item in items)


def inside(item: Item, address: Address) -> bool:
    """Whether an address belongs to an item."""
    return any(address in net for net in item.nets if net.version == address.version)


class Rule:
    """One rule, compiled."""

    def __init__(self, raw: Document, namespace: str, number: int, world: Oracle) -> None:
        self.raw = raw
        self.number = number
        self.action: str = raw["action"]
        self.version = raw.get("ipVersion")
        self.protocol = None if raw.get("protocol") is None else protocol_number(raw["protocol"])
        negated = raw.get("notProtocol")
        self.not_protocol = None if negated is None else protocol_number(negated)
        self.icmp, self.not_icmp = raw.get("icmp"), raw.get("notICMP")
        self.sides = [
            Entity(raw.get(side) or {}, namespace, self.protocol, world)
            for side in ("source", "destination")
        ]

    def matches(self, packet: Packet) -> bool:
        """Whether everything that the rule says is true of the packet."""
        flow = packet.flow
        if self.version is not None and self.version != flow.version:
            return False
        if self.protocol is not None and self.protocol != flow.protocol:
            return False
        if self.not_protocol is not None and self.not_protocol == flow.protocol:
            return False
        if self.icmp is not None and not icmp_holds(self.icmp, flow):
            return False
        if self.not_icmp is not None and icmp_holds(self.not_icmp, flow):
            return False
        source, destination = self.sides
        sent, got = flow.source_port, flow.destination_port
        return source.matches(
            packet.source, sent, flow.protocol, reached=False
        ) and destination.matches(packet.destination, got, flow.protocol, reached=True)


def icmp_holds(wanted: Document, flow: Flow) -> bool:
    """Whether this is ICMP of its family, of the type and code as far as given."""
    if flow.protocol != (1 if flow.version == 4 else 58):
        return False
    return wanted.get("type") in (None, flow.icmp_type) and wanted.get("code") in (
        None,
        flow.icmp_code,
    )


class Policy:
    """A policy: whom it selects, in which directions, with which rules."""

    def __init__(self, document: Document, world: Oracle) -> None:
        spec, metadata = document.get("spec") or {}, document["metadata"]
        self.spec = spec
        self.kind: str = document["kind"]
        self.namespace: str = metadata.get("namespace", "") if self.kind == "NetworkPolicy" else ""
        self.title = f"{metadata['name']}/{self.namespace}/{self.kind}"
        self.tier: str = spec.get("tier") or "default"
        order = spec.get("order")
        self.place = (INFINITY if order is None else float(order), self.title.encode())
        rules = {d: spec.get(d) or [] for d in ("ingress", "egress")}
        self.rules = {
            direction: world.compile(listed, self.namespace) for direction, listed in rules.items()
        }
        types = [str(one).lower() for one in spec.get("types") or []]
        if not types:
            types = ["ingress"] * bool(rules["ingress"] or not rules["egress"])
            types += ["egress"] * bool(rules["egress"])
        self.types = types
        # Workloads know neither untracked nor pre-DNAT policy: those are for hosts.
        self.for_workloads = not (spec.get("doNotTrack") or spec.get("preDNAT"))

    @property
    def stage(self) -> str:
        """Where on a packet's way it acts."""
        if self.spec.get("doNotTrack"):
            return "untracked"
        return "pre_dnat" if self.spec.get("preDNAT") else "tiers"

    def selects(self, endpoint: Endpoint) -> bool:
        """Whether the policy applies to an endpoint."""
        labels, spec = endpoint.labels, self.spec
        accounts, spaces = spec.get("serviceAccountSelector"), spec.get("namespaceSelector")
        if self.kind == "NetworkPolicy":
            if endpoint.namespace != self.namespace:
                return False
            wanted: list[tuple[str | None, str, Callable[[Labels], bool] | None]] = [
                (spec.get("selector"), "", None),
                (accounts, "pcsa.", None),
            ]
        else:
            # all() in a text that was joined with another selector means what that one is about.
            own = has_namespace if spaces else has_account if accounts else None
            wanted = [
                (spec.get("selector"), "", own),
                (spaces, "pcns.", has_namespace),
                (accounts, "pcsa.", has_account),
            ]
        return all(
            holds(parse(text), labels, prefix=prefix, all_means=means)
            for text, prefix, means in wanted
            if text
        )


def has_namespace(labels: Labels) -> bool:
    """What all() means about namespaces."""
    return NAMESPACE in labels


def has_account(labels: Labels) -> bool:
    """What all() means about service accounts."""
    return SERVICE_ACCOUNT in labels


Tiers = list[tuple[str, bool, list[Policy]]]
"""In order: its name, whether its end denies, and its policies in order."""


class Oracle:
    """The verdicts of one world: a list of Calico documents, endpoints included.

    `slices`: the EndpointSlices of services; None: nobody tells of any.
    """

    def __init__(
        self, documents: Iterable[Document], slices: Iterable[Document] | None = None
    ) -> None:
        self.documents = list(documents)
        self.services = None if slices is None else services(slices)
        self.profiles = {d["metadata"]["name"]: d.get("spec") or {} for d in self.of("Profile")}
        self.endpoints = {e.title: e for e in map(self.endpoint, self.of("WorkloadEndpoint"))}
        self.items: list[Item] = list(self.endpoints.values())
        for kind in ("NetworkSet", "GlobalNetworkSet"):
            self.items += [self.network_set(d) for d in self.of(kind)]
        self.hosts = {e.title: e for e in map(self.host, self.of("HostEndpoint"))}
        self.items += self.hosts.values()
        self.profile_rules = {
            name: {d: self.compile(spec.get(d) or [], "") for d in ("ingress", "egress")}
            for name, spec in self.profiles.items()
        }
        self._applied: dict[str, Tiers] = {}

    @classmethod
    def from_yaml(cls, text: str) -> Oracle:
        """The world of a YAML stream."""
        return cls(d for d in yaml.safe_load_all(text) if d)

    def of(self, kind: str) -> Iterator[Document]:
        """The documents of a kind."""
        return (d for d in self.documents if d["kind"] == kind)

    def endpoint(self, document: Document) -> Endpoint:
        """A pod with the labels that it has and those that its profiles hand down."""
        metadata, spec = document["metadata"], document["spec"]
        namespace = metadata["namespace"]
        labels = {NAMESPACE: namespace, ORCHESTRATOR: spec["orchestrator"]}
        labels = {**(metadata.get("labels") or {}), **labels}
        profiles = spec.get("profiles") or []
        return Endpoint(
            title=f"{namespace}/{spec['pod']}",
            labels=self.inherit(labels, profiles),
            nets=[ip_network(net) for net in spec.get("ipNetworks") or []],
            ports=[
                (p["name"], protocol_number(p.get("protocol", "TCP")), int(p["port"]))
                for p in spec.get("ports") or []
            ],
            namespace=namespace,
            profiles=profiles,
        )

    def compile(self, rules: list[Document], namespace: str) -> list[Rule]:
        """Rules as they are to be judged."""
        found = []
        for number, raw in enumerate(rules):
            judged = effective(raw, self.services is not None)
            if judged is not None:
                found.append(Rule(judged, namespace, number, self))
        return found

    def host(self, document: Document) -> Endpoint:
        """A host endpoint; the addresses that it expects are what others mean by it."""
        metadata, spec = document["metadata"], document["spec"]
        profiles = spec.get("profiles") or []
        return Endpoint(
            title=metadata["name"],
            labels=self.inherit(metadata.get("labels") or {}, profiles),
            nets=[ip_network(address) for address in spec.get("expectedIPs") or []],
            ports=[
                (p["name"], protocol_number(p["protocol"]), int(p["port"]))
                for p in spec.get("ports") or []
            ],
            profiles=profiles,
        )

    def network_set(self, document: Document) -> Item:
        """A network set; one in a namespace has that namespace's labels, as endpoints do."""
        metadata = document["metadata"]
        labels = dict(metadata.get("labels") or {})
        if document["kind"] == "NetworkSet":
            labels[NAMESPACE] = metadata["namespace"]
            labels = self.inherit(labels, [f"kns.{metadata['namespace']}"])
        nets = (document.get("spec") or {}).get("nets") or []
        return Item(metadata["name"], labels, [ip_network(net, strict=False) for net in nets])

    def inherit(self, labels: Labels, profiles: list[str]) -> Labels:
        """Own labels win over those of profiles, earlier profiles over later ones."""
        found = dict(labels)
        for name in profiles:
            for key, value in (self.profiles.get(name, {}).get("labelsToApply") or {}).items():
                found.setdefault(key, value)
        return found

    @cached_property
    def policies(self) -> list[Policy]:
        """All that are in force."""
        found = [Policy(d, self) for d in self.of("NetworkPolicy")]
        return found + [Policy(d, self) for d in self.of("GlobalNetworkPolicy")]

    @cached_property
    def tiers(self) -> Tiers:
        """The tiers of workloads."""
        return self.ordered([policy for policy in self.policies if policy.for_workloads])

    def ordered(self, policies: list[Policy]) -> Tiers:
        """(name, ends in deny, policies in order) in order; a tier nobody defined comes last."""
        known: dict[str, tuple[Any, ...]] = {}
        denies: dict[str, bool] = {}
        for document in self.of("Tier"):
            name, spec = document["metadata"]["name"], document.get("spec") or {}
            order = spec.get("order")
            known[name] = (0, INFINITY if order is None else float(order), name.encode())
            denies[name] = (spec.get("defaultAction") or "Deny") == "Deny"
        for policy in policies:
            known.setdefault(policy.tier, (1, INFINITY, policy.tier.encode()))
        return [
            (
                name,
                denies.get(name, True),
                sorted((p for p in policies if p.tier == name), key=lambda p: p.place),
            )
            for name in sorted(known, key=known.__getitem__)
        ]

    def stages(self, title: str) -> dict[str, list[Policy]]:
        """The policies that select a host endpoint, by where on a packet's way they act."""
        selecting = [policy for policy in self.policies if policy.selects(self.hosts[title])]
        found = {
            name: [policy for policy in selecting if policy.stage == name]
            for name in ("tiers", "untracked", "pre_dnat")
        }
        found["forward"] = [p for p in found["tiers"] if p.spec.get("applyOnForward")]
        return found

    def lists(self, title: str) -> dict[str, list[tuple[str, list[str], list[str]]]]:
        """A host endpoint's lists by stage: (tier, titles of ingress, titles of egress)."""
        return {
            name: [
                (
                    tier,
                    [p.title for p in policies if "ingress" in p.types],
                    [p.title for p in policies if "egress" in p.types and name != "pre_dnat"],
                )
                for tier, _, policies in self.ordered(chosen)
                if policies
            ]
            for name, chosen in self.stages(title).items()
        }

    def applied(self, endpoint: Endpoint) -> Tiers:
        """The tiers with those policies that select an endpoint."""
        if endpoint.title not in self._applied:
            self._applied[endpoint.title] = [
                (name, denies, [p for p in policies if p.selects(endpoint)])
                for name, denies, policies in self.tiers
            ]
        return self._applied[endpoint.title]

    def packet(self, flow: Flow) -> Packet:
        """The flow's first packet."""
        ends = []
        for title in (flow.source, flow.destination):
            nets = self.endpoints[title].nets
            ends.append(next(n.network_address for n in nets if n.version == flow.version))
        return Packet(flow, ends[0], ends[1])

    def direction(self, title: str, packet: Packet, direction: str) -> Decision:
        """What an endpoint's policy says about a packet in one direction."""
        endpoint = self.endpoints[title]
        found = self.through(self.applied(endpoint), packet, direction)
        return found or self.behind(endpoint.profiles, packet, direction)

    def through(self, tiers: Tiers, packet: Packet, direction: str) -> Decision | None:
        """What the tiers of an endpoint say; None when they leave it to what comes behind."""
        for name, denies, selecting in tiers:
            policies = [policy for policy in selecting if direction in policy.types]
            if not policies:
                continue
            decided = self.tier(policies, packet, direction)
            if decided is None:
                if denies:
                    return Decision(False, f"end of tier {name}")
            elif decided[0] != "Pass":
                return Decision(decided[0] == "Allow", decided[1], decided[2])
        return None

    def behind(self, profiles: list[str], packet: Packet, direction: str) -> Decision:
        """What an endpoint's profiles say."""
        for name in profiles:
            rules = self.profile_rules.get(name)
            if rules is None:
                return Decision(False, f"profile {name} is missing")
            for rule in rules[direction]:
                if rule.action != "Log" and rule.matches(packet):
                    if rule.action == "Pass":
                        break
                    return Decision(rule.action == "Allow", f"profile {name}", rule.number)
        return Decision(False, "end of profiles")

    @staticmethod
    def tier(policies: list[Policy], packet: Packet, direction: str) -> tuple[str, str, int] | None:
        """(action, policy, rule) of the first rule that decides; None when none does."""
        for policy in policies:
            for rule in policy.rules[direction]:
                if rule.action != "Log" and rule.matches(packet):
                    return rule.action, policy.title, rule.number
        return None

    def egress(self, flow: Flow) -> Decision:
        """What the source may send."""
        return self.direction(flow.source, self.packet(flow), "egress")

    def ingress(self, flow: Flow) -> Decision:
        """What the destination may receive."""
        return self.direction(flow.destination, self.packet(flow), "ingress")

    def allows(self, flow: Flow) -> bool:
        """Whether the flow's first packet arrives."""
        return self.egress(flow).allowed and self.ingress(flow).allowed
