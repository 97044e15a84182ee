"""BAR-1: without host endpoints the short tables say of every packet what Calico's form says."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.policy_model import EndpointPolicy
from felix.rules.dispatch import Bins
from felix.rules.endpoints import endpoint_chains, endpoint_rules
from felix.rules.hosts import DISPATCH
from felix.rules.inputs import Facts, RuleSettings
from felix.rules.model import (
    Accept,
    Chain,
    Condition,
    Drop,
    Marks,
    Return,
    ReversePathFails,
    Rule,
    TableModel,
    set_bits,
)
from felix.rules.static import tables
from felix.rules.tunnels import TunnelRules
from tests.felix.walk import Kernel, Packet

MARKS = Marks.allocate(0xFFFF0000)
OPEN, SHUT = "cali1", "cali2"
SERVICES = ip_network("10.96.0.0/12")
ALLOWED = (ip_network("192.0.2.0/24"),)
INTERFACES = st.sampled_from([OPEN, SHUT, "cali9", "eth0", "lo"])
ADDRESSES = {
    4: st.sampled_from(["10.0.0.1", "10.96.0.1", "127.0.0.1", "192.0.2.1", "203.0.113.1"]),
    6: st.sampled_from(["fd00::1", "::", "fe80::1", "2001:db8::1"]),
}
ICMP = {4: 1, 6: 58}


@dataclass(frozen=True)
class Arrival(Packet):
    """`astray`: no route to its source leaves by the interface it came by."""

    astray: bool = False


class Node(Kernel):
    """The walk, with the reverse path."""

    def holds(self, condition: Condition, packet: Packet, mark: int) -> bool:
        if isinstance(condition, ReversePathFails):
            assert isinstance(packet, Arrival)
            return packet.astray
        return super().holds(condition, packet, mark)


def node(table: TableModel, settings: RuleSettings) -> Node:
    """One table with two pods, one of which is let do everything, and no host endpoint."""
    chains = {chain.name: chain for chain in table.chains}
    for name in table.inserts.keys() | table.appends.keys():
        rules = (*table.inserts.get(name, ()), *table.appends.get(name, ()))
        chains[name] = Chain(name, rules)
    for name in ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"):
        chains.setdefault(name, Chain(name))
    if table.name == "filter":
        bins = Bins(settings.prefixes, settings.verdicts.deny)
        for interface, profiles in ((OPEN, ("all",)), (SHUT, ())):
            endpoint = endpoint_rules(interface, EndpointPolicy(profiles=profiles))
            for chain in endpoint_chains(endpoint, settings.marks, settings.verdicts):
                chains[chain.name] = chain
            bins.add(interface)
        chains |= {chain.name: chain for chain in bins.all()}
        for name in ("cali-pri-all", "cali-pro-all"):
            chains[name] = Chain(name, (Rule(set_bits(settings.marks.accept)),))
    for name in DISPATCH.get(table.name, ()):
        chains.setdefault(name, Chain(name))
    return Node(chains)


def fate(models: dict[str, TableModel], settings: RuleSettings, packet: Arrival, mark: int,
         way: str) -> str:  # fmt: skip
    """What our tables say at last; RETURN leaves it to whoever comes behind."""
    said = "RETURN"
    ways = {
        "INPUT": [("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("filter", "INPUT")],
        "FORWARD": [("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("filter", "FORWARD"),
                    ("mangle", "POSTROUTING")],
        "OUTPUT": [("raw", "OUTPUT"), ("filter", "OUTPUT"), ("mangle", "POSTROUTING")],
    }  # fmt: skip
    for table, chain in ways[way]:
        verdict, mark = node(models[table], settings).walk(chain, packet, mark)
        if verdict in ("DROP", "REJECT"):
            return verdict
        if table == "filter":
            said = verdict
    return said


@st.composite
def packets(draw: st.DrawFn) -> Arrival:
    version = draw(st.sampled_from([4, 6]))
    protocol = draw(st.sampled_from([4, 6, 17, ICMP[version]]))
    return Arrival(
        source=ip_address(draw(ADDRESSES[version])),
        destination=ip_address(draw(ADDRESSES[version])),
        protocol=protocol,
        ports=(40000, draw(st.sampled_from([80, 4789]))),
        icmp=(draw(st.sampled_from([8, 128, 133, 134, 135, 137])), 0),
        state=draw(st.sampled_from(["NEW", "ESTABLISHED", "INVALID"])),
        came_by=draw(INTERFACES),
        leaves_by=draw(INTERFACES),
        astray=draw(st.booleans()),
    )


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("allow", [Accept(), Return()])
@given(
    packets(),
    st.sampled_from(["INPUT", "FORWARD", "OUTPUT"]),
    st.sampled_from([0, MARKS.accept, MARKS.all, MARKS.passed | MARKS.scratch0]),
    st.booleans(),
)
def test_every_packet_fares_as_with_the_whole_tables(
    append: bool, allow: Accept | Return, packet: Arrival, way: str, mark: int, spoofing: bool
) -> None:
    plain = RuleSettings()
    verdicts = type(plain.verdicts)(allow, Drop())
    settings = RuleSettings(verdicts=verdicts, append=append)
    may = ((OPEN, ALLOWED),) if spoofing else ()
    facts = {hosts: Facts(True, (SERVICES,), may, hosts=hosts) for hosts in (True, False)}
    said = [
        fate(tables(packet.version, settings, each), settings, packet, mark, way)
        for each in facts.values()
    ]
    assert said[0] == said[1]


@pytest.mark.parametrize("hosts", [False, True])
def test_who_may_use_other_sources_reaches_no_loopback(hosts: bool) -> None:
    facts = Facts(spoofing=((OPEN, ALLOWED),), hosts=hosts)
    models, settings = tables(4, RuleSettings(), facts), RuleSettings()
    for destination, verdict in (("127.0.0.1", "DROP"), ("203.0.113.1", "ACCEPT")):
        packet = Arrival(
            ip_address("192.0.2.1"), ip_address(destination), came_by=OPEN, astray=True
        )
        assert node(models["raw"], settings).walk("PREROUTING", packet)[0] == verdict


def test_what_holds_nothing_is_not_hooked() -> None:
    def hooks(facts: Facts) -> dict[str, set[str]]:
        found = tables(4, RuleSettings(), facts)
        return {name: model.inserts.keys() | model.appends.keys() for name, model in found.items()}

    least = {"raw": {"PREROUTING"}, "mangle": set(), "nat": set(), "filter": {"INPUT", "FORWARD"}}
    assert hooks(Facts(hosts=False)) == least
    outgoing = hooks(Facts(nat_outgoing=True, hosts=False))
    assert outgoing == least | {"nat": {"POSTROUTING"}}
    tunnels = hooks(Facts(tunnels=TunnelRules(True, (4789,), ("vxlan.calico",)), hosts=False))
    assert tunnels == {
        "raw": {"PREROUTING", "OUTPUT"},
        "mangle": set(),
        "nat": {"POSTROUTING"},
        "filter": {"INPUT", "FORWARD", "OUTPUT"},
    }
    for services in ((), (SERVICES,)):
        chains = tables(4, RuleSettings(), Facts(False, services, hosts=False))["filter"].chains
        assert ("cali-cidr-block" in {chain.name for chain in chains}) is bool(services)
    whole = hooks(Facts())
    assert whole["mangle"] == {"PREROUTING", "POSTROUTING"}


@pytest.mark.parametrize("version", [4, 6])
def test_every_chain_that_is_named_is_there(version: int) -> None:
    may = ((OPEN, (ip_network("192.0.2.0/24"), ip_network("2001:db8::/32"))),)
    for facts in (
        Facts(hosts=False),
        Facts(True, (SERVICES,), may, TunnelRules(True, (4789,), ("tunl0",)), hosts=False),
    ):
        for table in tables(version, RuleSettings(), facts).values():
            there = node(table, RuleSettings()).chains
            for chain in there.values():
                for rule in chain.rules:
                    named = getattr(rule.action, "chain", None)
                    assert named is None or named in there, (table.name, chain.name)
