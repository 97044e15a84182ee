"""The rule model in nftables' words: names, hooks, and the rules that need two."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from ipaddress import ip_network
from typing import get_args

import pytest

from felix.dataplane.rules.nftables import open_sets
from felix.rules import model, nftables
from felix.rules.model import (
    Accept,
    AddressType,
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
from linux.nftables import Ruleset, pack
from linux.nftables.expressions import Family
from tests.support.netns import Namespace, network_namespace

NETS: dict[Family, str] = {4: "10.0.0.0/8", 6: "fd00::/16"}
IP: dict[Family, str] = {4: "ip", 6: "ip6"}


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("nft") as space, space.entered():
        yield space


def conditions(family: Family) -> dict[model.Condition, str]:
    ip, net = IP[family], NETS[family]
    return {
        Protocol(6): "meta l4proto tcp",
        Protocol(17, negated=True, named=True): "meta l4proto != udp",
        InInterface("cali+"): 'iifname "cali*"',
        OutInterface("cali123"): 'oifname "cali123"',
        Net(Side.SOURCE, ip_network(net)): f"{ip} saddr {net}",
        Net(Side.DESTINATION, ip_network(net), negated=True): f"{ip} daddr != {net}",
        InSet(Side.SOURCE, f"cali{family}0s:x"): f"{ip} saddr @cali{family}0s-x",
        InSet(Side.DESTINATION, f"cali{family}0n:x", negated=True, ports=True):
            f"{ip} daddr . meta l4proto . th dport != @cali{family}0n-x",
        Ports(Side.DESTINATION, ((80, 80), (90, 95))): "th dport @ports-80_90-95",
        Icmp(family, 8): "th sport 2048-2303",
        Mark(0x10000, 0x10000): "meta mark & 0x00010000 == 0x00010000",
        Conntrack(("RELATED", "ESTABLISHED")): "ct state established,related",
        Conntrack(("DNAT",)): "ct status dnat",
        AddressType(Side.DESTINATION, "LOCAL"): "fib daddr type local",
        Limit(10, "second", 20): "limit rate 10/second burst 20 packets",
        Syn(): "@th,104,8 & 0x17 == 0x2",
        ConnectionsAbove(7): "ct count over 7",
    }  # fmt: skip


ACTIONS: dict[model.Action, str] = {
    Accept(): "accept",
    Drop(): "drop",
    Reject(): "reject",
    Reset(): "reject with tcp reset",
    Return(): "return",
    Jump("there"): "jump filter-there",
    Goto("there"): "goto filter-there",
    SetMark(0, 0x30000): "meta mark set meta mark & 0xfffcffff",
    Log("calico-packet: "): 'log prefix "calico-packet: " level notice',
    Nflog(1, "DPI|x"): 'log prefix "DPI|x" group 1 snaplen 80',
    Nothing(): "",
}
COUNTER = "counter packets 0 bytes 0"
ELSEWHERE = {DestinationNat, NoTrack, Masquerade, SourceNat, ReversePathFails}


@pytest.mark.parametrize("family", [4, 6])
def test_each_word_of_the_model(space: Namespace, family: Family) -> None:
    wanted = {Rule(Nothing(), (c,)): f"{t} {COUNTER}" for c, t in conditions(family).items()}
    wanted |= {Rule(action): f"{COUNTER} {text}" for action, text in ACTIONS.items()}
    wanted[Rule(SetDscp(46))] = f"{COUNTER} {IP[family]} dscp set ef"
    known = {type(c) for c in conditions(family)} | {type(a) for a in ACTIONS} | ELSEWHERE
    known.add(SetDscp)
    assert known == {*get_args(model.Condition), *get_args(model.Action)}, "a word has no case"
    seen = listed(space, family, tuple(wanted), "filter", "FORWARD")
    for rule, text, found in zip(wanted, wanted.values(), seen, strict=True):
        # How nft writes a message's type depends on the protocol beside it.
        if not any(isinstance(each, Icmp) for each in rule.match):
            found = re.sub(r"(tcp|udp) dport", "th dport", found)
            assert found == text.strip()


def test_words_that_belong_elsewhere(space: Namespace) -> None:
    raw = (Rule(Drop(), (ReversePathFails(),)), Rule(NoTrack()))
    assert listed(space, 4, raw, "raw", "PREROUTING") == [
        f"fib saddr . mark . iif oif 0 {COUNTER} drop",
        f"{COUNTER} notrack",
    ]
    nat = (
        Rule(Masquerade((1024, 65535)), (Protocol(6),)),
        Rule(SourceNat("192.0.2.1", (1, 9), random_fully=False), (Protocol(17),)),
        Rule(Masquerade()),
    )
    assert listed(space, 4, nat, "nat", "POSTROUTING") == [
        f"meta l4proto tcp {COUNTER} masquerade to :1024-65535 fully-random",
        f"meta l4proto udp {COUNTER} snat to 192.0.2.1:1-9",
        f"{COUNTER} masquerade fully-random",
    ]
    assert listed(space, 4, (Rule(DestinationNat("192.0.2.9")),), "nat", "PREROUTING") == [
        f"{COUNTER} dnat to 192.0.2.9",
    ]


def test_what_was_not_translated_includes_what_has_no_connection(space: Namespace) -> None:
    """The kernel ends a rule that asks for the status of a connection that does not exist."""
    rule = Rule(Jump("there"), (OutInterface("eth0"), Conntrack(("DNAT",), negated=True)), ("why",))
    assert listed(space, 4, (rule,), "filter", "OUTPUT") == [
        f'oifname "eth0" ct status ! dnat {COUNTER} jump filter-there',
        f'oifname "eth0" ct state invalid,untracked {COUNTER} jump filter-there',
    ]


def test_an_interface_with_too_long_a_name_matches_nothing(space: Namespace) -> None:
    rule = Rule(Drop(), (InInterface("much-longer-than-fifteen"),))
    (code,) = nftables.render_rule(rule, 4, "filter")
    assert b"much-longer-than" in b"".join(p for p in code.parts if isinstance(p, bytes))


@pytest.mark.parametrize(
    ("layer", "chain", "where"),
    [
        ("raw", "PREROUTING", "type filter hook prerouting priority raw;"),
        ("mangle", "POSTROUTING", "type filter hook postrouting priority mangle;"),
        ("mangle", "OUTPUT", "type route hook output priority mangle;"),
        ("nat", "PREROUTING", "type nat hook prerouting priority dstnat;"),
        ("nat", "OUTPUT", "type nat hook output priority -100;"),
        ("nat", "POSTROUTING", "type nat hook postrouting priority srcnat + 10;"),
        ("filter", "INPUT", "type filter hook input priority filter;"),
    ],
)
def test_hooks_have_the_priorities_of_iptables(
    space: Namespace, layer: str, chain: str, where: str
) -> None:
    listed(space, 4, (), layer, chain)
    assert where in space.run("nft", "list", "chain", "ip", "calico", f"{layer}-{chain}")


def listed(
    space: Namespace, family: Family, rules: tuple[Rule, ...], layer: str, chain: str
) -> list[str]:
    """The rules as nft lists them, in one of the kernel's chains."""
    with open_sets((4, 6)) as sets:
        sets.create(f"cali{family}0s:x", "hash:net", family)
        sets.create(f"cali{family}0n:x", "hash:ip,port", family)

    async def write() -> None:
        with Ruleset((family,), nftables.TABLE) as table:
            name = nftables.chain_name(layer, chain)
            codes = nftables.render_rules(rules, family, layer)
            table.want(family, name, pack(codes), nftables.hook(layer, chain))
            table.want(family, nftables.chain_name(layer, "there"), pack([]))
            await table.commit()

    asyncio.run(write())
    text = space.run("nft", "list", "chain", IP[family], nftables.TABLE, f"{layer}-{chain}")
    return re.findall(r'^\t\t(.*?) ?comment "cali:[^"]*"$', text, re.M)
