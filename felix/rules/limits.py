"""Rules that limit a workload's packets and connections, and that mark what leaves the cluster.

Spelled as Calico spells them for iptables, so that a node that changes hands is not rewritten; in
nftables its one rule of a packet rate is four here too. Each rate has a bucket of its own in the
kernel, and each count its own list of connections: a rule that is replaced begins anew.

    cali-tw-IF      clear the scratch bit; set it within the rate; drop without it; clear it
                    (what belongs to a connection passes here)
                    a TCP connection above the limit is reset

Source: docs/reference/dataplane.md#traffic-limits.
Invariants:
  LIM-1  Without limits the rules are those of a workload that asks for none.
  LIM-2  A count of connections never ends one that was let in.
Tested in tests/felix/rules/test_limits.py and, with packets, tests/felix/kernel/test_limits.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from felix.rules import names
from felix.rules.model import (
    Chain,
    ConnectionsAbove,
    Drop,
    InSet,
    Jump,
    Limit,
    Marks,
    Protocol,
    Reset,
    Rule,
    SetDscp,
    Side,
    Syn,
    clear_bits,
    is_clear,
    set_bits,
)
from felix.rules.nat import ALL_POOLS
from libcalico.conversion.traffic_limits import ChainLimits

TCP = 6
DSCP_CHAIN = "cali-egress-dscp"
DSCP_SETS = {number: f"dscp-src-{number}" for number in range(64)}
"""The sets of the addresses of workloads that ask for each number."""


def rate_rules(limits: ChainLimits | None, ingress: bool, marks: Marks) -> tuple[Rule, ...]:
    """What goes before all: packets above the rate are dropped, of known connections too."""
    rate = (limits.ingress if ingress else limits.egress) if limits is not None else None
    if rate is None:
        return ()
    way, bit = "ingress" if ingress else "egress", marks.scratch0
    clear = Rule(clear_bits(bit), comments=(f"Clear {way} packet rate limit mark",))
    within = f"Mark packets within {way} packet rate limit"
    over = f"Drop packets over {way} packet rate limit"
    return (
        clear,
        Rule(set_bits(bit), (Limit(rate.rate, "sec", rate.burst),), (within,)),
        Rule(Drop(), (is_clear(bit),), (over,)),
        clear,
    )


def connection_rules(limits: ChainLimits | None, ingress: bool) -> tuple[Rule, ...]:
    """What goes behind the rules that let known connections pass."""
    if limits is None:
        return ()
    count = limits.ingress_connections if ingress else limits.egress_connections
    if not count:
        return ()
    over = f"Reject connections over {'ingress' if ingress else 'egress'} connection limit"
    return (Rule(Reset(), (Protocol(TCP), Syn(), ConnectionsAbove(count)), (over,)),)


def dscp_rules(version: int, numbers: Iterable[int]) -> tuple[tuple[Rule, ...], tuple[Chain, ...]]:
    """The head of mangle's POSTROUTING, and the chain that it leads to, of what leaves the cluster.

    `numbers`: those that workloads of this family ask for.
    """
    marks = tuple(
        Rule(SetDscp(number), (InSet(Side.SOURCE, names.ip_set(DSCP_SETS[number], version)),))
        for number in sorted(numbers)
    )
    if not marks:
        return (), ()
    outside = InSet(Side.DESTINATION, names.ip_set(ALL_POOLS, version), negated=True)
    leaving = Rule(Jump(DSCP_CHAIN), (outside,), ("set dscp for traffic leaving cluster.",))
    return (leaving,), (Chain(DSCP_CHAIN, marks),)
