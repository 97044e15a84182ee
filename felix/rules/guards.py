"""What no workload may send under any policy, and the hooks into the kernel's chains.

Parts of the static chains: of those with host endpoints (`felix.rules.static`) and of those without
(`felix.rules.static_chains`). `workload` is the condition by which either of them knows a
workload's packet.

Tested in tests/felix/rules/test_rules.py and, with packets, tests/felix/kernel/test_forwarding.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network

from felix.rules import names
from felix.rules.model import (
    Accept,
    Action,
    Chain,
    Condition,
    Drop,
    Icmp,
    InInterface,
    IPNetwork,
    Jump,
    Net,
    Protocol,
    Rule,
    Side,
)

Hooks = dict[str, tuple[Rule, ...]]
ICMPV6 = 58
NEIGHBOUR_DISCOVERY = (130, 131, 132, 133, 135, 136)
_ROUTER_ADVERTISEMENT, _REDIRECT = 134, 137
_UNSPECIFIED, _LOOPBACK = ip_network("::/128"), ip_network("127.0.0.0/8")


def hooks(
    kernel_chains: Iterable[str], append: bool, **fixed: tuple[Rule, ...]
) -> tuple[Hooks, Hooks]:
    """Inserts and appends of these kernel chains: the jumps to ours, and `fixed` at their ends."""
    jumps: Hooks = {chain: (Rule(Jump(f"cali-{chain}")),) for chain in kernel_chains}
    if not append:
        return jumps, dict(fixed)
    return {}, {chain: rules + fixed.get(chain, ()) for chain, rules in jumps.items()}


def forged_advice(version: int, workload: Condition) -> list[Rule]:
    """Drop what a workload must not advertise or request, under any sysctls (STC-4)."""
    if version == 4:
        # IPv4 routers advertise in ICMP types that no host of ours reads; redirects are read.
        return []
    kinds = ((_ROUTER_ADVERTISEMENT, "advertisements"), (_REDIRECT, "redirects"))
    # The reverse path match lets the unspecified address pass; only ICMPv6 may have it (RFC 4862).
    unspecified = (workload, Protocol(ICMPV6, negated=True), Net(Side.SOURCE, _UNSPECIFIED))
    return [
        Rule(Drop(), unspecified, ("Drop what workloads send in nobody's name",)),
        *(
            Rule(
                Drop(),
                (workload, Protocol(ICMPV6), Icmp(6, kind)),
                (f"Drop router {what} that workloads send",),
            )
            for kind, what in kinds
        ),
    ]


def loopback(version: int, *workload: Condition) -> list[Rule]:
    """Workloads' links have route_localnet, for who translates to the loopback. Untranslated it
    would come to what the node serves itself alone (CVE-2020-8558); the kernel of IPv6 drops it."""
    if version == 6:
        return []
    said = ("Drop what workloads send to the node's loopback",)
    return [Rule(Drop(), (*workload, Net(Side.DESTINATION, _LOOPBACK)), said)]


def spoofing(version: int, allowed: Iterable[tuple[str, Iterable[IPNetwork]]]) -> list[Rule]:
    """Accept allowed source addresses of workloads that are not their own."""
    exceptions = [
        Rule(Accept(), (InInterface(interface), Net(Side.SOURCE, net)))
        for interface, nets in allowed
        for net in nets
        if net.version == version
    ]
    # An accepted packet skips the rest of this table.
    return [*loopback(version), *exceptions] if exceptions else []


def to_host(version: int, allow: Action, then: Action) -> Chain:
    """What a workload sends to its own node: its policy, `then` DefaultEndpointToHostAction."""
    rules: list[Rule] = []
    if version == 6:
        rules += [Rule(allow, (Protocol(ICMPV6), Icmp(6, kind))) for kind in NEIGHBOUR_DISCOVERY]
    rules += [
        Rule(Jump(names.FROM_WORKLOAD_DISPATCH)),
        Rule(then, comments=("Configured DefaultEndpointToHostAction",)),
    ]
    return Chain(names.WORKLOAD_TO_HOST, tuple(rules))


def loop_prevention(version: int, action: Action | None, nets: Iterable[IPNetwork]) -> Chain:
    """A packet that was not translated would go to the router, which would send it back (STC-5)."""
    rules: list[Rule] = []
    if action is not None:
        mine = sorted({net for net in nets if net.version == version}, key=str)
        rules = [Rule(action, (Net(Side.DESTINATION, net),)) for net in mine]
    return Chain("cali-cidr-block", tuple(rules))
