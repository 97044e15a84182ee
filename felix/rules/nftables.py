"""The rule model as native nftables: the second renderer of it.

All layers (raw, mangle, nat, filter) lie in one table a family, so a chain of the model is called
"<layer>-<name>" there (docs/reference/dataplane.md#nftables); what the model puts into the kernel's
chains becomes base chains of our own with iptables' priorities. A rule of the model is one rule
here, with a counter before its action, except where nftables needs two words for one:

    no DNAT      the connection was not translated, or there is no connection to look at

Other than in iptables, a packet that is accepted here is still asked elsewhere: other tables at
the same hook may drop it.

Tested in tests/felix/rules/test_nftables_rules.py and, with packets, wherever tests have a
`backend`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

from felix.rules import names
from felix.rules.model import (
    Accept,
    Action,
    AddressType,
    Condition,
    ConnectionsAbove,
    Conntrack,
    DestinationNat,
    Drop,
    Goto,
    Icmp,
    InInterface,
    InSet,
    Jump,
    Limit,
    Log,
    Mark,
    Masquerade,
    Net,
    Nflog,
    Nothing,
    NoTrack,
    OutInterface,
    Ports,
    Protocol,
    Reject,
    Reset,
    Return,
    ReversePathFails,
    Rule,
    SetDscp,
    SetMark,
    Side,
    SourceNat,
    Syn,
)
from linux.nftables import Code, Hook
from linux.nftables import expressions as x
from linux.nftables import statements as st
from linux.nftables.expressions import Family
from linux.nftables.port_sets import Part

TABLE = "calico"
_PREROUTING, _INPUT, _FORWARD, _OUTPUT, _POSTROUTING = range(5)
_NUMBERS = {
    "PREROUTING": _PREROUTING,
    "INPUT": _INPUT,
    "FORWARD": _FORWARD,
    "OUTPUT": _OUTPUT,
    "POSTROUTING": _POSTROUTING,
}
_PRIORITIES = {"raw": -300, "mangle": -150, "filter": 0}
# Translation of destinations before, of sources after the others' (kube-proxy's at 100).
_DESTINATION_NAT, _SOURCE_NAT = -100, 110
_COUNTER = st.counter()
_NOT_IN_COMMENT = re.compile(r"[^\w @%+=:,./-]", re.ASCII)


def hook(layer: str, chain: str) -> Hook:
    """Where one of the kernel's chains of iptables lies."""
    number = _NUMBERS[chain]
    if layer == "nat":
        late = number in (_POSTROUTING, _INPUT)
        return Hook("nat", number, _SOURCE_NAT if late else _DESTINATION_NAT)
    # Iptables routes a packet of the host anew when mangle changed its mark.
    kind = "route" if layer == "mangle" and number == _OUTPUT else "filter"
    return Hook(kind, number, _PRIORITIES[layer])


def chain_name(layer: str, chain: str) -> str:
    """What a chain of the model is called."""
    return f"{layer}-{chain}"


def set_name(name: str) -> str:
    """What a set is called: the nft program takes no colon."""
    return name.replace(":", "-")


def render_rules(rules: Iterable[Rule], family: Family, layer: str) -> list[Code]:
    """The rules of one chain."""
    return [code for rule in rules for code in render_rule(rule, family, layer)]


def render_rule(rule: Rule, family: Family, layer: str) -> list[Code]:
    """One rule; two where it asks for what no single rule can say."""
    comment = "; ".join([_NOT_IN_COMMENT.sub("_", text) for text in rule.comments])
    action = _action(rule.action, family, layer)
    codes: list[Code] = []
    for variant in _variants(rule.match):
        parts: list[Part] = []
        for condition in variant:
            parts += _condition(condition, family)
        codes.append(Code(_joined([*parts, action]), comment))
    return codes


def _variants(match: tuple[Condition, ...]) -> list[tuple[Condition, ...]]:
    untranslated = Conntrack(("DNAT",), negated=True)
    if untranslated not in match:
        return [match]
    others = tuple(each for each in match if each != untranslated)
    # The status of a connection that does not exist is neither set nor clear: the rule just ends.
    return [match, (*others, Conntrack(("INVALID", "UNTRACKED")))]


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    joined: list[Part] = []
    run: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            run.append(part)
            continue
        joined += [b"".join(run), part]
        run = []
    return (*joined, b"".join(run))


@lru_cache(20_000)
def _condition(condition: Condition, family: Family) -> tuple[Part, ...]:
    """Rules are made of few different conditions: each is packed once."""
    return tuple(_pack_condition(condition, family))


def _pack_condition(condition: Condition, family: Family) -> list[Part]:
    match condition:
        case Protocol(number, negated):
            return [x.protocol(number, negated)]
        case InInterface(name):
            return [x.interface(name, incoming=True)]
        case OutInterface(name):
            return [x.interface(name, incoming=False)]
        case Net(side, net, negated):
            source = side is Side.SOURCE
            packed = net.network_address.packed
            return [x.network(family, source, packed, net.prefixlen, negated)]
        case InSet(side, name, negated, ports):
            source = side is Side.SOURCE
            return [x.in_set(family, source, set_name(name), ports=ports, negated=negated)]
        case Ports(side, ranges, negated):
            return x.ports(side is Side.SOURCE, ranges, negated)
        case Icmp(_, kind, code, negated):
            return [x.icmp(kind, code, negated)]
        case Mark(value, mask, negated):
            return [x.mark(value, mask, negated)]
        case Conntrack(states, negated):
            return [_conntrack(states, negated)]
        case ReversePathFails():
            return [x.reverse_path_fails()]
        case AddressType(side, kind, negated, limit_out):
            source = side is Side.SOURCE
            return [x.address_type(source, kind, negated=negated, limit_out=limit_out)]
        case Limit(rate, per, burst):
            return [x.limit(rate, per, burst)]
        case Syn():
            return [x.syn()]
        case ConnectionsAbove(count):
            return [x.connections_above(count)]


def _conntrack(states: tuple[str, ...], negated: bool) -> bytes:
    if states == ("DNAT",):
        return x.conntrack_status(x.CT_DNAT, negated)
    if states == ("SNAT",):
        return x.conntrack_status(x.CT_SNAT, negated)
    return x.conntrack_state(states, negated)


@lru_cache(5_000)
def _action(action: Action, family: Family, layer: str) -> bytes:
    return b"".join((_COUNTER, *_pack_action(action, family, layer)))


def _pack_action(action: Action, family: Family, layer: str) -> list[bytes]:
    match action:
        case Accept():
            return [st.verdict(st.ACCEPT)]
        case Drop():
            return [st.verdict(st.DROP)]
        case Reject():
            return [st.reject(family)]
        case Reset():
            return [st.reset()]
        case SetDscp(value):
            return [st.set_dscp(family, value)]
        case Return():
            return [st.verdict(st.RETURN)]
        case Jump(chain):
            return [st.verdict(st.JUMP, chain_name(layer, chain))]
        case Goto(chain):
            return [st.verdict(st.GOTO, chain_name(layer, chain))]
        case SetMark(value, mask):
            return [st.set_mark(value, mask)]
        case Log(prefix, level):
            return [st.log(prefix, level)]
        case Nflog(group, prefix, size):
            return [st.log_to_group(prefix, group, size)]
        case Nothing():
            return []
        case NoTrack():
            return [st.notrack()]
        case Masquerade(ports, random_fully):
            return [st.masquerade(ports, random_fully)]
        case DestinationNat(address):
            return [st.translate(family, False, ip_address(address).packed)]
        case SourceNat(address, ports, random_fully):
            packed = ip_address(address).packed
            return [st.translate(family, True, packed, ports, random_fully)]


def dispatch_rule(map_name: str, *, incoming: bool) -> Code:
    """The one rule of a chain that finds an endpoint by its interface."""
    return Code((x.interface_map(map_name, incoming=incoming),))


MAPS = {
    names.FROM_WORKLOAD_DISPATCH: True,
    names.TO_WORKLOAD_DISPATCH: False,
}
"""The verdict maps, and whether each looks at the incoming interface."""
