"""NFE-1: nft(8) reads each packed expression as what was asked for, in both families."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from linux.nftables import Code, Hook, NamedSets, Ruleset, pack
from linux.nftables import expressions as x
from linux.nftables import statements as st
from linux.nftables.expressions import Family
from linux.nftables.port_sets import Part
from tests.support.netns import Namespace, network_namespace

FORWARD, POSTROUTING, PREROUTING = (
    Hook("filter", 2, 0),
    Hook("nat", 4, 110),
    Hook("filter", 0, -300),
)
TCP, UDP, ICMP = x.protocol(6), x.protocol(17), x.protocol(1)


def packed(address: str) -> bytes:
    return ip_address(address).packed


Cases = list[tuple[list[Part], str]]
ANY: Cases = [
    ([TCP], "meta l4proto tcp"),
    ([x.protocol(132, True)], "meta l4proto != sctp"),
    ([x.interface("cali+", incoming=True)], 'iifname "cali*"'),
    ([x.interface("eth0", incoming=False)], 'oifname "eth0"'),
    ([x.interface("+", incoming=False)], ""),
    ([TCP, *x.ports(False, [(80, 80)])], "tcp dport 80"),
    ([TCP, *x.ports(True, [(80, 80)], True)], "tcp sport != 80"),
    ([UDP, *x.ports(False, [(90, 95)])], "udp dport 90-95"),
    ([UDP, *x.ports(False, [(90, 95)], True)], "udp dport != 90-95"),
    ([TCP, *x.ports(True, [(80, 80), (90, 95), (92, 99)])], "tcp sport @ports-80_90-99"),
    ([TCP, *x.ports(False, [(0, 79), (81, 65535)])], "tcp dport @ports-0-79_81-65535"),
    ([TCP, *x.ports(False, [(1, 1), (3, 3)], True)], "tcp dport != @ports-1_3"),
    ([x.mark(0x10000, 0x10000)], "meta mark & 0x00010000 == 0x00010000"),
    ([x.mark(0, 0x30000, True)], "meta mark & 0x00030000 != 0x00000000"),
    ([x.conntrack_state(["RELATED", "ESTABLISHED"])], "ct state established,related"),
    ([x.conntrack_state(["INVALID", "UNTRACKED"])], "ct state invalid,untracked"),
    ([x.conntrack_state(["NEW"], True)], "ct state ! new"),
    ([x.conntrack_status(x.CT_DNAT)], "ct status dnat"),
    ([x.conntrack_status(x.CT_DNAT, True)], "ct status ! dnat"),
    ([x.address_type(False, "LOCAL")], "fib daddr type local"),
    ([x.address_type(True, "LOCAL", negated=True)], "fib saddr type != local"),
    ([x.limit(10, "second", 20)], "limit rate 10/second burst 20 packets"),
    ([x.limit(3, "hour", 1)], "limit rate 3/hour burst 1 packets"),
    ([TCP, x.syn()], "tcp flags syn / fin,syn,rst,ack"),
    ([x.connections_above(7)], "ct count over 7"),
    ([TCP, st.reset()], "reject with tcp reset"),
    ([st.verdict(st.ACCEPT)], "accept"),
    ([st.verdict(st.DROP)], "drop"),
    ([st.verdict(st.RETURN)], "return"),
    ([st.verdict(st.JUMP, "there")], "jump there"),
    ([st.verdict(st.GOTO, "there")], "goto there"),
    ([st.set_mark(0x20000, 0x20000)], "meta mark set meta mark | 0x00020000"),
    ([st.set_mark(0x20000, 0x30000)], "meta mark set meta mark & 0xfffeffff | 0x00020000"),
    ([st.set_mark(0, 0x10000)], "meta mark set meta mark & 0xfffeffff"),
    ([st.log("calico-packet: ", 5)], 'log prefix "calico-packet: " level notice'),
    ([st.log_to_group("DPI|x", 1, 80)], 'log prefix "DPI|x" group 1 snaplen 80'),
    ([x.interface_map("where", incoming=True)], "iifname vmap @where"),
    ([x.interface_map("where", incoming=False)], "oifname vmap @where"),
    ([st.counter()], "counter packets 0 bytes 0"),
]
OF: dict[Family, Cases] = {
    4: [
        ([x.network(4, True, packed("10.0.0.0"), 8)], "ip saddr 10.0.0.0/8"),
        ([x.network(4, False, packed("10.128.0.0"), 9, True)], "ip daddr != 10.128.0.0/9"),
        ([x.network(4, True, packed("10.0.0.1"), 32)], "ip saddr 10.0.0.1"),
        ([x.in_set(4, True, "nets", ports=False, negated=False)], "ip saddr @nets"),
        ([x.in_set(4, False, "ports", ports=True, negated=True)],
         "ip daddr . meta l4proto . th dport != @ports"),
        ([ICMP, x.icmp(8, None)], "icmp type echo-request"),
        ([ICMP, x.icmp(8, None, True)], "icmp type != echo-request"),
        ([ICMP, x.icmp(3, 4)], "icmp type destination-unreachable icmp code 4"),
        ([st.reject(4)], "reject"),
        ([st.set_dscp(4, 46)], "ip dscp set ef"),
    ],
    6: [
        ([x.network(6, True, packed("fd00::"), 16)], "ip6 saddr fd00::/16"),
        ([x.network(6, False, packed("fd00::"), 121, True)], "ip6 daddr != fd00::/121"),
        ([x.in_set(6, True, "nets", ports=False, negated=True)], "ip6 saddr != @nets"),
        ([x.in_set(6, True, "ports", ports=True, negated=False)],
         "ip6 saddr . meta l4proto . th sport @ports"),
        ([x.protocol(58), x.icmp(128, None)], "icmpv6 type echo-request"),
        ([st.reject(6)], "reject"),
        ([st.set_dscp(6, 10)], "ip6 dscp set af11"),
    ],
}  # fmt: skip
RAW: Cases = [
    ([x.reverse_path_fails()], "fib saddr . mark . iif oif 0"),
    ([st.notrack()], "notrack"),
]
NAT: dict[Family, Cases] = {
    4: [
        ([st.masquerade(None, True)], "masquerade fully-random"),
        ([TCP, st.masquerade((1024, 65535), False)], "meta l4proto tcp masquerade to :1024-65535"),
        ([st.translate(4, True, packed("192.0.2.1"))], "snat to 192.0.2.1"),
        ([TCP, st.translate(4, True, packed("192.0.2.1"), (1, 9), True)],
         "meta l4proto tcp snat to 192.0.2.1:1-9 fully-random"),
    ],
    6: [([st.translate(6, True, packed("fd00::1"))], "snat to fd00::1")],
}  # fmt: skip


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("nft") as space, space.entered():
        yield space


@pytest.mark.parametrize("family", [4, 6])
def test_nft_reads_what_was_packed(space: Namespace, family: Family) -> None:
    places: list[tuple[str, Hook, Cases]] = [
        ("forward", FORWARD, [*ANY, *OF[family]]),
        ("raw", PREROUTING, RAW),
        ("nat", POSTROUTING, NAT[family]),
    ]
    with NamedSets({4: "", 6: ""}, "mine") as sets:
        sets.create("nets", "hash:net", family)
        sets.create("ports", "hash:ip,port", family)

    async def write() -> None:
        with Ruleset([family], "mine") as rules:
            rules.want_map(family, "where")
            rules.want(family, "there", pack([]))
            for name, hook, cases in places:
                rules.want(family, name, pack([Code(tuple(parts)) for parts, _ in cases]), hook)
            await rules.commit()

    asyncio.run(write())
    for name, _, cases in places:
        listed = space.run("nft", "list", "chain", "ip" if family == 4 else "ip6", "mine", name)
        found = re.findall(r'^\t\t(.*?) ?comment "cali:.{16}"$', listed, re.M)
        for (_, wanted), seen in zip(cases, found, strict=True):
            assert _same(seen) == _same(wanted)


def _same(text: str) -> str:
    """Newer and older nft programs differ in how they write these."""
    text = text.replace("!= new", "! new").replace("port-unreachable", "").strip()
    return re.sub(r"icmp code (4|frag-needed)", "icmp code 4", text)
