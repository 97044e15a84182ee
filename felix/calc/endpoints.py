"""The workload endpoints of this node: stored ones, offered ones, retracted ones.

The problem: `cni` offers an endpoint in parallel with storing it, so that routes and rules
are under way while the store still writes; and it retracts one that it deletes, possibly
before the watch says so. The datastore stays the authority: an offer stands only until the
watch names the same object, a retraction only until the watch agrees.

Invariants:
  EPT-1  The watch event of an endpoint that was offered with equal bytes changes nothing.
  EPT-2  A retraction names a container and never hides the endpoint of another container; it
         holds while the store says that there is none.
  EPT-3  An interface belongs to one endpoint; of several claimants the smallest name has it,
         and the others are named, not served.
  EPT-5  What is told late of an earlier attempt, a predecessor under the same name, touches no
         offer: an offer ends by the store's word on the same object (its uid) that is not of the
         container that was stored before, nor has only its addresses; by its retraction, or when
         whoever offered it is gone.
  EPT-4  An endpoint that names an interface without our prefix (the node's own `eth0`, say) is
         named, not served: felix never changes a link that is no workload's.
Tested in tests/felix/test_calc_endpoints.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from felix.calc.labels import Labels, NamedPort, named_ports, workload_labels
from libcalico.errors import InvalidValue
from libcalico.model import IPNAT, ResourceKey, WorkloadEndpoint

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One interface of a local workload, as far as felix cares. `networks` are /32 and /128.

    `spoofable`: networks whose addresses it asks to use as its source besides.
    `floating`: pairs of a floating address, which is to lead to it, and its own.
    `uid`: of the stored object; two that are equal else may be two attempts at one pod.
    """

    key: ResourceKey
    container_id: str
    interface: str
    networks: tuple[IPNetwork, ...]
    mac: str
    profiles: tuple[str, ...]
    orchestrator: str
    workload: str
    endpoint: str
    labels: Labels = ()
    ports: tuple[NamedPort, ...] = ()
    spoofable: tuple[IPNetwork, ...] = ()
    floating: tuple[tuple[IPAddress, IPAddress], ...] = ()
    uid: str = field(default="", compare=False)

    @property
    def identity(self) -> tuple[str, str, str]:
        """What the reference orders claimants of one interface by."""
        return (self.orchestrator, self.workload, self.endpoint)

    @property
    def families(self) -> frozenset[int]:
        """Those of its addresses; both if it has none."""
        found = frozenset(network.version for network in (*self.networks, *self.spoofable))
        return found or frozenset({4, 6})


def from_resource(key: ResourceKey, value: WorkloadEndpoint) -> Endpoint:
    """The endpoint of a stored resource. Raises `InvalidValue` for what cannot be routed."""
    spec = value.spec
    if not _INTERFACE.fullmatch(spec.interfaceName):
        # Whatever else a name may hold, it must not break the text of the rules.
        allowed = "must be 1 to 15 letters, digits, dots, dashes or underscores"
        raise InvalidValue("spec.interfaceName", spec.interfaceName, allowed, str(key))
    workload = f"{key.namespace}/{spec.pod}" if spec.pod else spec.workload
    return Endpoint(
        key=key,
        container_id=spec.containerID,
        interface=spec.interfaceName,
        networks=tuple(_host_network(text, key) for text in spec.ipNetworks),
        mac=spec.mac,
        profiles=tuple(spec.profiles),
        orchestrator=spec.orchestrator,
        workload=workload,
        endpoint=spec.endpoint,
        labels=workload_labels(key, value),
        ports=named_ports(value),
        spoofable=tuple(_network(text, key) for text in spec.allowSpoofedSourcePrefixes),
        floating=tuple(_floating(nat, spec.ipNetworks, key) for nat in spec.ipNATs),
        uid=value.metadata.uid,
    )


def addresses(active: Mapping[str, Endpoint], interfaces: Iterable[str]) -> frozenset[IPAddress]:
    """All addresses of the endpoints of these interfaces."""
    return frozenset(
        network.network_address for name in interfaces for network in active[name].networks
    )


def _floating(nat: IPNAT, own: list[str], key: ResourceKey) -> tuple[IPAddress, IPAddress]:
    """A pair of floating and own address; it leads to nobody else's address."""
    try:
        outer, inner = ip_address(nat.externalIP), ip_address(nat.internalIP)
    except ValueError:
        raise InvalidValue("spec.ipNATs", nat.externalIP, "must be addresses", str(key)) from None
    if outer.version != inner.version or str(ip_network(inner)) not in own:
        rule = "must lead to an address of the endpoint, of the same family"
        raise InvalidValue("spec.ipNATs", nat.externalIP, rule, str(key))
    return outer, inner


def _network(text: str, key: ResourceKey) -> IPNetwork:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        field = "spec.allowSpoofedSourcePrefixes"
        raise InvalidValue(field, text, "must be a network", str(key)) from None


def _host_network(text: str, key: ResourceKey) -> IPNetwork:
    try:
        network = ip_network(text)
    except ValueError:
        network = None
    if network is None or network.prefixlen != network.max_prefixlen:
        raise InvalidValue("spec.ipNetworks", text, "must be a /32 or /128", str(key))
    return network


def _of_former_sandbox(told: Endpoint, former: Endpoint | None, offered: Endpoint) -> bool:
    """Whether the store already names the offered container, with the addresses of the one before.

    So it is with the Kubernetes datastore: `cni` writes the container, the kubelet the addresses,
    later. Addresses that neither had before nor were offered are another's decision, and count.
    """
    has = frozenset(told.networks)
    return (
        told.container_id == offered.container_id
        and has != frozenset(offered.networks)
        and (former is None or has == frozenset(former.networks))
    )


class LocalEndpoints:
    """Stored, offered and retracted endpoints of one node, merged.

    `changed` hears of every endpoint whose result differs, whoever caused it.
    """

    def __init__(
        self, changed: Callable[[ResourceKey, Endpoint | None], object] = lambda key, endpoint: None
    ) -> None:
        self._changed = changed
        self._stored: dict[ResourceKey, Endpoint] = {}
        self._offered: dict[ResourceKey, Endpoint] = {}
        self._retracted: dict[ResourceKey, str] = {}
        self._read: dict[ResourceKey, tuple[bytes, WorkloadEndpoint, Endpoint]] = {}
        self._claims: dict[str, dict[ResourceKey, Endpoint]] = {}
        self._active: tuple[dict[str, Endpoint], dict[ResourceKey, str]] = ({}, {})
        self._prefixes: tuple[str, ...] = ("",)
        self._unjudged: set[str] = set()
        self._moved: set[str] = set()

    def store(self, key: ResourceKey, endpoint: Endpoint | None) -> bool:
        """The datastore says so; None: it is gone. Returns whether the result changed."""
        before = self.get(key)
        offered = self._offered.get(key)
        if endpoint is None:
            old = self._stored.pop(key, None)
            self._retracted.pop(key, None)
            if offered and old and old.uid == offered.uid:
                del self._offered[key]
        else:
            # A pod is stored before it has a container: that says nothing of the offered one.
            told = endpoint.container_id or not (offered and offered.container_id)
            # Nor does what the store had when it was offered, of the container before.
            former = self._stored.get(key)
            if offered and former and former.container_id != offered.container_id:
                told = told and endpoint.container_id != former.container_id
            if offered and _of_former_sandbox(endpoint, former, offered):
                told = False
            if offered and endpoint.uid == offered.uid and told:
                del self._offered[key]
            self._stored[key] = endpoint
            # A pod whose container was taken away is stored without one, still with its address.
            if endpoint.container_id not in ("", self._retracted.get(key)):
                self._retracted.pop(key, None)
        return self._settle(key, before)

    def remember(self, raw: bytes, value: WorkloadEndpoint, endpoint: Endpoint) -> None:
        """What was offered, as it was read: the store will tell the same bytes (EPT-1)."""
        self._read[endpoint.key] = raw, value, endpoint

    @property
    def remembers(self) -> bool:
        """Whether anything offered waits for the store's word."""
        return bool(self._read)

    def remembered(self, key: ResourceKey, raw: bytes) -> WorkloadEndpoint | None:
        """The object of these bytes, if they were read when they were offered."""
        known = self._read.get(key)
        return known[1] if known is not None and known[0] == raw else None

    def read(self, key: ResourceKey, value: WorkloadEndpoint) -> Endpoint:
        """As `from_resource`; what was read when it was offered is not read again."""
        known = self._read.pop(key, None)
        return known[2] if known is not None and known[1] is value else from_resource(key, value)

    def offer(self, endpoint: Endpoint) -> bool:
        """`cni` is about to store it. Returns whether the result changed."""
        before = self.get(endpoint.key)
        if self._retracted.get(endpoint.key) == endpoint.container_id:
            del self._retracted[endpoint.key]
        stored = self._stored.get(endpoint.key)
        if stored == endpoint and stored.uid == endpoint.uid:
            self._offered.pop(endpoint.key, None)
        else:
            self._offered[endpoint.key] = endpoint
        return self._settle(endpoint.key, before)

    def retract(self, key: ResourceKey, container_id: str) -> bool:
        """`cni` says that this container's endpoint is gone. Returns whether the result changed."""
        before = self.get(key)
        self._read.pop(key, None)
        offered, stored = self._offered.get(key), self._stored.get(key)
        if offered is not None and offered.container_id == container_id:
            del self._offered[key]
        if stored is not None and stored.container_id in ("", container_id):
            self._retracted[key] = container_id
        return self._settle(key, before)

    def forget_offer(self, endpoint: Endpoint) -> bool:
        """Whoever offered it is gone and it was never stored. Returns whether that changed it."""
        offered = self._offered.get(endpoint.key)
        if offered != endpoint or offered.uid != endpoint.uid:
            return False  # another attempt's
        self._read.pop(endpoint.key, None)
        del self._offered[endpoint.key]
        self._settle(endpoint.key, endpoint)
        return True

    def _settle(self, key: ResourceKey, before: Endpoint | None) -> bool:
        now = self.get(key)
        if now == before:
            return False
        if before is not None:
            claimants = self._claims[before.interface]
            del claimants[key]
            if not claimants:
                del self._claims[before.interface]
            self._unjudged.add(before.interface)
        if now is not None:
            self._claims.setdefault(now.interface, {})[key] = now
            self._unjudged.add(now.interface)
        self._changed(key, now)
        return True

    def get(self, key: ResourceKey) -> Endpoint | None:
        """The endpoint as it should be now."""
        offered = self._offered.get(key)
        if offered is not None:
            return offered
        stored = self._stored.get(key)
        retracted = self._retracted.get(key)
        if stored and retracted is not None and stored.container_id in ("", retracted):
            return None
        return stored

    def active(
        self, prefixes: tuple[str, ...] = ("",)
    ) -> tuple[dict[str, Endpoint], dict[ResourceKey, str]]:
        """Endpoints by interface, and why each of the others is not served (EPT-3, EPT-4).

        Only interfaces that begin with one of `prefixes` are workloads'. The same objects as
        last time where nothing changed since; what changed is told by `take_moved`.
        """
        if self._prefixes != prefixes:
            self._prefixes = prefixes
            self._unjudged |= self._claims.keys() | self._active[0].keys()
        if self._unjudged:
            winners, shadowed = dict(self._active[0]), dict(self._active[1])
            for interface in self._unjudged:
                self._judge(interface, winners, shadowed)
            gone = [key for key in shadowed if self.get(key) is None]
            for key in gone:
                del shadowed[key]
            self._moved |= self._unjudged
            self._unjudged = set()
            self._active = winners, shadowed
        return self._active

    def take_moved(self) -> set[str]:
        """The interfaces whose endpoints may be others since the last time this was asked."""
        moved, self._moved = self._moved, set()
        return moved

    def _judge(
        self, interface: str, winners: dict[str, Endpoint], shadowed: dict[ResourceKey, str]
    ) -> None:
        claims = self._claims.get(interface, {})
        winners.pop(interface, None)
        for key in claims:
            shadowed.pop(key, None)
        if claims and not interface.startswith(self._prefixes):
            reason = f"interface {interface} does not begin with {' or '.join(self._prefixes)}"
            shadowed.update(dict.fromkeys(claims, reason))
        elif claims:
            first, *others = sorted(claims.values(), key=lambda e: (e.identity, e.key))
            winners[interface] = first
            for other in others:
                shadowed[other.key] = f"interface {interface} belongs to {first.key}"
