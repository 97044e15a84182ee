"""What the rules are made of: the settings of a node, and the facts of one of its families.

Values alone, filled by `felix.dataplane.rules.settings` and `.desired`.
Tested in tests/felix/rules/test_rules.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from felix.rules.endpoints import Verdicts
from felix.rules.hosts import HostRules, verdicts_of
from felix.rules.model import Accept, Action, Drop, IPNetwork, Marks
from felix.rules.nat import Floating, NatRules
from felix.rules.tunnels import NO_TUNNELS, TunnelRules


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """The rules' inputs from felix's configuration."""

    prefixes: tuple[str, ...] = ("cali",)
    marks: Marks = field(default_factory=lambda: Marks.allocate(0xFFFF0000))
    verdicts: Verdicts = field(default_factory=lambda: Verdicts(Accept(), Drop()))
    mangle_allow: Action = field(default_factory=Accept)
    endpoint_to_host: Action = field(default_factory=Drop)
    append: bool = False
    nat: NatRules = field(default_factory=NatRules)
    hosts: HostRules = field(default_factory=HostRules)
    loop_prevention: Action | None = field(default_factory=Drop)

    def verdicts_of(self, table: str) -> Verdicts:
        """How policy lets pass and denies in a table."""
        return verdicts_of(table, self.verdicts, self.mangle_allow)


@dataclass(frozen=True, slots=True)
class Senders:
    """The workloads that have chains, by interface, each with its addresses of one family."""

    networks: tuple[tuple[str, tuple[IPNetwork, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """The inputs of one family's rules from the datastore.

    `nat_outgoing`: whether a pool asks for NAT. `service_nets`: where services have addresses.
    `spoofing`: by interface, the networks whose addresses a workload may use as its source.
    `tunnels`: which are in use. `hosts`: whether host endpoints may have policy.
    `floating`: addresses that lead to pods. `ipvs`: who may send to services, where kube-proxy has
    them in IPVS. `dscp`: the marks that workloads ask for, for what leaves the cluster.
    """

    nat_outgoing: bool = False
    service_nets: tuple[IPNetwork, ...] = ()
    spoofing: tuple[tuple[str, tuple[IPNetwork, ...]], ...] = ()
    tunnels: TunnelRules = NO_TUNNELS
    hosts: bool = True
    floating: Floating = ()
    ipvs: Senders | None = None
    dscp: tuple[int, ...] = ()


NOTHING_SPECIAL = Facts()
"""No pool with NAT, no service, no tunnel."""
