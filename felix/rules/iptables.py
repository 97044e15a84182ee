"""The rule model as iptables text: one renderer of it (nftables will be the second).

A fragment is what stands after `-A CHAIN`, without the hash comment that `linux.iptables`
puts in front. The text is spelled as Calico spells it, so that equal rules get equal hashes
and a node that changes hands is not rewritten (docs/reference/dataplane.md#policy-chains,
#chain-names-and-hashes).
Tested in tests/felix/rules/test_rules.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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

_PROTOCOL_NAMES = {6: "tcp"}
_USERS_NAMES = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp", 136: "udplite"}
_NOT_IN_COMMENT = re.compile(r"[^\w @%+=:,./-]", re.ASCII)
_MAX_COMMENT = 256


def render_rule(rule: Rule) -> str:
    """The fragment of a rule: comments, match, action."""
    parts = [f'-m comment --comment "{_comment(text)}"' for text in rule.comments]
    parts += [_condition(condition) for condition in rule.match]
    parts += filter(None, (_action(rule.action),))
    return " ".join(parts)


def render_rules(rules: Iterable[Rule]) -> tuple[str, ...]:
    """The fragments of a chain's rules."""
    return tuple(map(render_rule, rules))


def _comment(text: str) -> str:
    return _NOT_IN_COMMENT.sub("_", text)[:_MAX_COMMENT]


def _hex(value: int) -> str:
    return f"{value:#x}" if value else "0"


def _condition(condition: Condition) -> str:
    match condition:
        case Protocol(number, negated, named):
            known = _USERS_NAMES if named else _PROTOCOL_NAMES
            return f"{'! ' if negated else ''}-p {known.get(number, number)}"
        case InInterface(name):
            return f"--in-interface {name}"
        case OutInterface(name):
            return f"--out-interface {name}"
        case Net(side, net, negated):
            word = "--source" if side is Side.SOURCE else "--destination"
            return f"{'! ' if negated else ''}{word} {net}"
        case InSet(side, name, negated, ports):
            where = f"{side.value},{side.value}" if ports else side.value
            return f"-m set {'! ' if negated else ''}--match-set {name} {where}"
        case Ports(side, ranges, negated):
            word = "--source-ports" if side is Side.SOURCE else "--destination-ports"
            text = ",".join(str(a) if a == b else f"{a}:{b}" for a, b in ranges)
            return f"-m multiport {'! ' if negated else ''}{word} {text}"
        case Icmp(version, kind, code, negated):
            module, word = ("icmp", "--icmp-type") if version == 4 else ("icmp6", "--icmpv6-type")
            text = f"{kind}" if code is None else f"{kind}/{code}"
            return f"-m {module} {'! ' if negated else ''}{word} {text}"
        case Mark(value, mask, negated):
            return f"-m mark {'! ' if negated else ''}--mark {_hex(value)}/{mask:#x}"
        case Conntrack(states, negated):
            return f"-m conntrack {'! ' if negated else ''}--ctstate {','.join(states)}"
        case ReversePathFails():
            return "-m rpfilter --invert --validmark"
        case AddressType(side, kind, negated, limit_out):
            word = f"{'! ' if negated else ''}--{side.value}-type {kind}"
            return f"-m addrtype {word}" + (" --limit-iface-out" if limit_out else "")
        case Limit(rate, per, burst):
            return f"-m limit --limit {rate}/{per} --limit-burst {burst}"
        case Syn():
            return "-m tcp --tcp-flags FIN,SYN,RST,ACK SYN"
        case ConnectionsAbove(count):
            return f"-m connlimit --connlimit-above {count} --connlimit-mask 0"


def _action(action: Action) -> str:
    match action:
        case Accept():
            return "--jump ACCEPT"
        case Drop():
            return "--jump DROP"
        case Reject():
            return "--jump REJECT"
        case Reset():
            return "-j REJECT --reject-with tcp-reset"
        case SetDscp(value):
            return f"--jump DSCP --set-dscp {value}"
        case Return():
            return "--jump RETURN"
        case Jump(chain):
            return f"--jump {chain}"
        case Goto(chain):
            return f"--goto {chain}"
        case SetMark(value, mask):
            return f"--jump MARK --set-mark {_hex(value)}/{mask:#x}"
        case Log(prefix, level):
            return f'--jump LOG --log-prefix "{prefix}" --log-level {level}'
        case Nflog(group, prefix, size):
            return (
                f'--jump NFLOG --nflog-group {group} --nflog-prefix "{prefix}" --nflog-size {size}'
            )
        case Nothing():
            return ""
        case NoTrack():
            return "--jump NOTRACK"
        case Masquerade(ports, random_fully):
            return "--jump MASQUERADE" + _nat_options(ports, random_fully)
        case DestinationNat(address):
            return f"--jump DNAT --to-destination {address}"
        case SourceNat(address, ports, random_fully):
            to = f" --to-source {address}" + (f":{ports[0]}-{ports[1]}" if ports else "")
            return f"--jump SNAT{to}" + _nat_options(None, random_fully)


def _nat_options(ports: tuple[int, int] | None, random_fully: bool) -> str:
    text = f" --to-ports {ports[0]}-{ports[1]}" if ports else ""
    return text + (" --random-fully" if random_fully else "")
