"""The other ends of talks as sides of rules: by selector and namespace, or by networks.

A network set is named by its labels where they tell it apart, else its networks are repeated: a
rule cannot name a set. A flow says of an address that nothing names only whether it is public;
which networks to allow is the operator's choice.

Tested in tests/policy_recommend/test_proposal.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from felix.calc.sets.items import read_networks
from felix.explain.flow import IPAddress
from felix.explain.misses.hints import NAMES_OF_NAMESPACES
from felix.explain.misses.labelled import Directory
from felix.explain.recommend.choose import Term, choose
from felix.explain.recommend.crowd import Crowd, lasting
from felix.explain.world import World
from flows.record import PRIVATE_NETWORKS, PUBLIC, End, EndKind
from libcalico.model import ResourceKey
from libcalico.names import namespace_profile
from libcalico.policy_selectors import NAMESPACE_LABEL, NAMESPACE_PREFIX
from libcalico.selectors.selectors import Compare

OWN, GLOBAL = "", "global()"
EVERYWHERE = ("0.0.0.0/0", "::/0")


@dataclass(frozen=True, slots=True)
class Peer:
    """One side of a rule. `namespace`: OWN, GLOBAL, or a namespace's name. `bare`: pods that do
    not inherit the labels of their namespace are meant, too."""

    namespace: str = OWN
    terms: tuple[Term, ...] = ()
    nets: tuple[str, ...] = ()
    not_nets: tuple[str, ...] = ()
    bare: bool = False

    @property
    def rank(self) -> tuple[object, ...]:
        """An order for documents: endpoints first."""
        terms = [term.text for term in self.terms]
        return (self.namespace, self.bare, bool(self.nets), terms, self.nets)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chose for addresses that nothing names."""

    public: bool = False
    private: bool = False
    networks: tuple[str, ...] = ()


NO_CHOICES = Choices()


class Peers:
    """Finds the sides of rules; `notes` says what is less exact than one would like."""

    def __init__(
        self, world: World, crowd: Crowd, namespace: str, choices: Choices, *,
        sets_by_labels: bool = True,
    ) -> None:  # fmt: skip
        self._sets_by_labels = sets_by_labels
        self._world, self._crowd = world, crowd
        self._namespace, self._choices = namespace, choices
        self._directory = Directory(world)
        self._known: dict[End, tuple[Peer, ...]] = {}
        self.notes: dict[str, None] = {}

    def of(self, end: End) -> tuple[Peer, ...]:
        """The sides that mean an end; none where it is the operator's choice, or cannot be said."""
        known = self._known.get(end)
        if known is None:
            known = self._known[end] = self._look(end)
        return known

    def _look(self, end: End) -> tuple[Peer, ...]:
        match end.kind:
            case EndKind.WORKLOAD:
                return self._workload(end)
            case EndKind.HOST:
                return self._host(end)
            case EndKind.NETWORK_SET:
                return self._network_set(end)
            case EndKind.NETWORK:
                return self._network(end)
        return ()

    def lacking(self, end: End) -> str:
        """Why an end has no side: what the operator can do."""
        if end.kind is EndKind.NETWORK:
            word = "public" if end.name == PUBLIC else "private"
            return (
                f"flows call a {word} address that nothing names only {end.name!r}: choose by"
                f" --allow-{word}, or by --network CIDR"
            )
        if end.kind is EndKind.HOST:
            return f"no node and no host endpoint {end.name} with an address is stored"
        if end.kind is EndKind.NETWORK_SET:
            return f"no network set {end.name} with networks is stored"
        return f"an end of kind {end.kind.name} is not known"

    def examples(self, end: End) -> tuple[IPAddress, ...]:
        """Addresses that such an end has, some of each network; none for workloads."""
        public: tuple[str, ...] = ("8.8.8.8", "2001:4860:4860::8888")
        return tuple(
            net.network_address
            for peer in self.of(end)
            for net in map(ip_network, peer.nets if peer.nets != EVERYWHERE else public)
            if end.kind is not EndKind.WORKLOAD
        ) or self._of_a_set(end)

    def _of_a_set(self, end: End) -> tuple[IPAddress, ...]:
        kind = "NetworkSet" if end.namespace else "GlobalNetworkSet"
        stored = self._world.objects.get(ResourceKey(kind, end.name, end.namespace))
        if end.kind is not EndKind.NETWORK_SET or stored is None:
            return ()
        return tuple(net.network_address for net in read_networks(stored.spec.nets)[0])

    def _workload(self, end: End) -> tuple[Peer, ...]:
        mine = self._crowd.of(end)
        own = [dict(labels) for labels in sorted({entry.labels for entry in mine})]
        choice = choose(own, self._crowd.beside(mine, end.namespace))
        if not choice.terms:
            self.notes[
                f"no label names {end.namespace}/{end.name}: rules that mean it mean every pod of"
                f" {end.namespace}"
            ] = None
        elif choice.over:
            others = self._crowd.others(mine, end.namespace)
            alike = sum(choice.matches(entry.values()) for entry in others)
            pods = "1 other pod" if alike == 1 else f"{alike} other pods"
            self.notes[
                f"no label tells {end.namespace}/{end.name} from {pods} of {end.namespace}:"
                " rules that mean it mean them, too"
            ] = None
        if end.namespace == self._namespace:
            return (Peer(OWN, choice.terms),)
        keys = [entry.key for entry in mine if entry.key is not None]
        named = name_of(self._world, end.namespace)
        bare = any(
            self._directory.of(key).labels.get(NAMESPACE_PREFIX + named) != end.namespace
            for key in keys
        )
        return (Peer(end.namespace, choice.terms, bare=bare),)

    def _host(self, end: End) -> tuple[Peer, ...]:
        addresses = set(self._world.nodes.get(end.name, ()))
        for key, value in self._world.of("HostEndpoint"):
            if end.name in (key.name, value.spec.node):
                addresses |= set(self._world.addresses(key))
        nets = sorted(map(ip_network, addresses), key=lambda net: (net.version, net))
        return (Peer(nets=tuple(map(str, nets))),) if nets else ()

    def _network_set(self, end: End) -> tuple[Peer, ...]:
        kind = "NetworkSet" if end.namespace else "GlobalNetworkSet"
        key = ResourceKey(kind, end.name, end.namespace)
        stored = self._world.objects.get(key)
        if stored is None:
            return ()
        mine = dict(lasting(self._directory.of(key).labels))
        choice = choose([mine], self._beside(key))
        if self._sets_by_labels and mine and choice.terms and not choice.over:
            where = GLOBAL if not end.namespace else end.namespace
            return (Peer(OWN if where == self._namespace else where, choice.terms),)
        nets, _ = read_networks(stored.spec.nets)
        why = "has no label that tells it apart" if self._sets_by_labels else "cannot be named"
        self.notes[f"{kind} {end.name} {why}: its networks are repeated, and do not follow it"] = (
            None
        )
        return (Peer(nets=tuple(dict.fromkeys(map(str, nets)))),) if nets else ()

    def _beside(self, key: ResourceKey) -> list[dict[str, str]]:
        kinds = ("NetworkSet", "WorkloadEndpoint") if key.namespace else (
            "GlobalNetworkSet", "HostEndpoint")  # fmt: skip
        return [
            dict(lasting(self._directory.of(other).labels))
            for kind in kinds
            for other, _ in self._world.of(kind)
            if other != key and other.namespace == key.namespace
        ]

    def _network(self, end: End) -> tuple[Peer, ...]:
        public = end.name == PUBLIC
        chosen = tuple(net for net in self._choices.networks if _is_public(net) is public)
        if chosen:
            return (Peer(nets=chosen),)
        if public and self._choices.public:
            return _split(EVERYWHERE, PRIVATE_NETWORKS)
        if not public and self._choices.private:
            pools = [str(pool.network) for pool in self._world.pools]
            return _split(PRIVATE_NETWORKS, pools)
        return ()


def _is_public(net: str) -> bool:
    network: Any = ip_network(net)
    return not any(
        network.version == private.version and network.subnet_of(private)
        for private in map(ip_network, PRIVATE_NETWORKS)
    )


def _split(nets: Sequence[str], without: Iterable[str]) -> tuple[Peer, ...]:
    """One side a family: a rule with `notNets` of one family means that family alone."""
    peers = []
    for version in (4, 6):
        inside: list[Any] = [n for n in map(ip_network, nets) if n.version == version]
        out = [n for n in map(ip_network, without) if n.version == version]
        kept = [n for n in out if any(n.overlaps(net) for net in inside)]
        peers.append(Peer(nets=tuple(map(str, inside)), not_nets=tuple(map(str, sorted(kept)))))
    return tuple(peers)


def name_of(world: World, namespace: str) -> str:
    """The label by which the namespace's profile hands down its name; empty where it does not."""
    profile = world.objects.get(ResourceKey("Profile", namespace_profile(namespace)))
    labels = {} if profile is None else profile.spec.labelsToApply
    return next(
        (n for n in NAMES_OF_NAMESPACES if labels.get(NAMESPACE_PREFIX + n) == namespace), ""
    )


def scope_of(world: World, peer: Peer) -> tuple[str, tuple[Term, ...]]:
    """The namespaceSelector of a peer, and terms that its selector needs besides."""
    if peer.namespace == GLOBAL:
        return GLOBAL, ()
    name = "" if peer.bare else name_of(world, peer.namespace)
    if name:
        return Compare(name, "==", peer.namespace).text, ()
    return "all()", (Compare(NAMESPACE_LABEL, "==", peer.namespace),)
