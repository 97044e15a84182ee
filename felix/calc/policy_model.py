"""What the policy calculation hands to the rules: resolved policies, sets, endpoint views.

The seam between two halves. `felix.calc.policy` (label index, active policies, members)
produces these values; `felix.rules.policy` renders them into the rule model. Selectors,
service accounts and named ports are already sets here; addresses are `ipaddress` objects,
ports numbers. Nothing in here depends on a back end.

Invariants:
  POL-1  A rule that cannot be enforced in full never widens access: an allow or pass rule with
         anything in `unenforced` is left out by the renderer, a deny rule applies without it.
         (The calculation hands such a pass rule on as a deny rule already: without it, a
         later allow rule could take what was meant for the next tier.)
  POL-2  Every set that a resolved rule names exists in the same flush, with its members.
Tested in tests/felix/calc/policy/test_sets.py and tests/felix/rules/test_policy_rules.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from libcalico.model.keys import ResourceKey

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
ANY_INTERFACE = "*"
"""What a host endpoint names that stands for every interface of the host."""


class Verb(Enum):
    """What a rule does. `LOG` goes on with the next rule, `PASS` with the next tier."""

    ALLOW = "allow"
    DENY = "deny"
    PASS = "pass"
    LOG = "log"


class SetKind(Enum):
    """What the members of a set are."""

    NETS = "hash:net"
    ADDRESS_PORTS = "hash:ip,port"


@dataclass(frozen=True, slots=True)
class EntityMatch:
    """One side of a rule; everything given must hold.

    `sets` are all required. `ports` (first, last) and `named_ports` (ids of address-and-port
    sets) are alternatives of each other; so are the negative ones, none of which may hold.
    `services` are address-and-port sets, all required, of a destination only; the endpoints of
    a service that is a source are among `sets`.
    """

    nets: tuple[IPNetwork, ...] = ()
    not_nets: tuple[IPNetwork, ...] = ()
    sets: tuple[str, ...] = ()
    not_sets: tuple[str, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    named_ports: tuple[str, ...] = ()
    not_ports: tuple[tuple[int, int], ...] = ()
    not_named_ports: tuple[str, ...] = ()
    services: tuple[str, ...] = ()


ANYONE = EntityMatch()


@dataclass(frozen=True, slots=True)
class ResolvedRule:
    """One rule of a policy or profile, independent of the endpoint it serves.

    `version` is 4, 6 or None for both. `icmp` is (type or None, code or None).
    `unenforced` names fields that the data plane lacks (POL-1).
    """

    verb: Verb
    version: int | None = None
    protocol: int | None = None
    not_protocol: int | None = None
    icmp: tuple[int | None, int | None] | None = None
    not_icmp: tuple[int | None, int | None] | None = None
    source: EntityMatch = ANYONE
    destination: EntityMatch = ANYONE
    annotations: tuple[tuple[str, str], ...] = ()
    unenforced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolvedPolicy:
    """A policy or, with an empty tier, a profile: what its chains hold.

    `missing` is a profile that endpoints name and that is not stored: it denies everything.
    """

    key: ResourceKey
    tier: str
    ingress: tuple[ResolvedRule, ...]
    egress: tuple[ResolvedRule, ...]
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Policies of a tier that follow each other and have one selector: places `first` to `end`.

    An endpoint that one of them selects is selected by all.
    """

    first: int
    end: int
    selector: str


@dataclass(frozen=True, slots=True)
class TierView:
    """One tier as one endpoint sees it: policies that select it, in order, by direction.

    `ingress_runs`, `egress_runs`: where two or more of them go together.
    """

    name: str
    ingress: tuple[ResourceKey, ...] = ()
    egress: tuple[ResourceKey, ...] = ()
    ends_in_deny: bool = True
    ingress_runs: tuple[Run, ...] = ()
    egress_runs: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointPolicy:
    """All that decides about the traffic of one local endpoint.

    A workload endpoint has `tiers` and `profiles` only. A host endpoint's `tiers` decide about
    what the host itself sends and receives, `forward` about what it forwards, `untracked`
    before connections are tracked, `pre_dnat` (ingress only) before addresses are translated.
    The last two never end in a deny (docs/reference/dataplane.md#host-endpoints).
    """

    tiers: tuple[TierView, ...] = ()
    profiles: tuple[str, ...] = ()
    untracked: tuple[TierView, ...] = ()
    pre_dnat: tuple[TierView, ...] = ()
    forward: tuple[TierView, ...] = ()

    def policies(self) -> set[ResourceKey]:
        """The policies that it names."""
        views = (*self.tiers, *self.untracked, *self.pre_dnat, *self.forward)
        return {key for view in views for key in (*view.ingress, *view.egress)}


@dataclass(frozen=True, slots=True)
class HostEndpoint:
    """An interface of this node, or (`ANY_INTERFACE`) all that belong to no workload.

    Where `interface` is empty it is the one that has one of `addresses`
    (`felix.calc.hosts.interfaces_of` says which that is).
    """

    key: ResourceKey
    interface: str = ""
    addresses: frozenset[IPAddress] = frozenset()
    policy: EndpointPolicy = EndpointPolicy()


@dataclass(frozen=True, slots=True)
class SetChange:
    """A set that is new (`full`), changed (`added`, `removed`) or gone (`removed_whole`).

    Members are texts as ipset spells them: `10.0.0.1`, `10.0.0.0/24`, `10.0.0.1,tcp:80`;
    both families mixed, the data plane splits them.
    """

    set_id: str
    kind: SetKind
    full: frozenset[str] | None = None
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    removed_whole: bool = False


@dataclass(slots=True)
class PolicyChanges:
    """One flush. Apply sets, then policies and profiles, then endpoints; removals in reverse."""

    sets: list[SetChange] = field(default_factory=list)
    policies: dict[ResourceKey, ResolvedPolicy | None] = field(default_factory=dict)
    profiles: dict[str, ResolvedPolicy | None] = field(default_factory=dict)
    endpoints: dict[ResourceKey, EndpointPolicy | None] = field(default_factory=dict)
    host_endpoints: dict[ResourceKey, HostEndpoint | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        parts = (self.sets, self.policies, self.profiles, self.endpoints, self.host_endpoints)
        return any(parts)

    def sizes(self) -> dict[str, int]:
        """How much of each kind there is."""
        return {
            "set": len(self.sets),
            "policy": len(self.policies),
            "profile": len(self.profiles),
            "endpoint": len(self.endpoints),
            "host_endpoint": len(self.host_endpoints),
        }
