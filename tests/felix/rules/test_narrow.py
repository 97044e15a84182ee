"""Rules whose loss or widening would open access: each wrong change of them has its packet here."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import permutations, product

import pytest

from felix.rules.dispatch import Bins
from felix.rules.inputs import Facts, RuleSettings
from felix.rules.model import Chain, DestinationNat, Drop, SourceNat
from felix.rules.nat import NatRules, bare_nat_table, nat_table
from felix.rules.static import tables
from tests.felix.rules.test_static_chains import ALLOWED, OPEN, SHUT, Arrival, node
from tests.felix.walk import Kernel, Packet

POOL = ("10.0.0.1", "10.0.0.2", "192.0.2.60", "192.0.2.61", "203.0.113.9")


@pytest.mark.parametrize("prefixes", [("cali",), ("ca", "cali")])
def test_a_bin_stays_while_an_endpoint_uses_it(prefixes: tuple[str, ...]) -> None:
    """DSP-1: what is told step by step is what a restart makes, in every order of leaving."""
    names = ("cali1a", "cali1b", "cali1c", "cali2a")
    for order in permutations(names):
        bins = Bins(prefixes, Drop())
        told = {chain.name: chain for chain in bins.all()}
        for name in names:
            told |= {chain.name: chain for chain in bins.add(name)}
            assert told == {chain.name: chain for chain in bins.all()}
        for name in order:
            changed, gone = bins.remove(name)
            told |= {chain.name: chain for chain in changed}
            for each in gone:
                del told[each]
            assert told == {chain.name: chain for chain in bins.all()}


def chains_of(form: str, version: int) -> dict[str, Chain]:
    """The nat table with two floating addresses of one pod and one of another."""
    pairs = {
        4: (("192.0.2.60", "10.0.0.1"), ("192.0.2.61", "10.0.0.2")),
        6: (("2001:db8::60", "fd00::1"), ("2001:db8::61", "fd00::2")),
    }
    floating = tuple((ip_address(outer), ip_address(own)) for outer, own in pairs[version])
    if form == "bare":
        model = bare_nat_table(version, NatRules(), False, (), floating)
    else:
        model = nat_table(version, NatRules(), False, False, (), floating)
    return {chain.name: chain for chain in model.chains}


@pytest.mark.parametrize("form", ["bare", "whole"])
def test_a_floating_address_is_the_source_of_what_a_pod_sends_itself_and_of_nothing_else(
    form: str,
) -> None:
    chains, kernel = chains_of(form, 4), Kernel({})
    own_of = {"192.0.2.60": "10.0.0.1", "192.0.2.61": "10.0.0.2"}
    for source, destination in product(POOL, POOL):
        packet = Packet(ip_address(source), ip_address(destination))
        met = {
            name: [
                rule.action
                for rule in chains[name].rules
                if all(kernel.holds(condition, packet, 0) for condition in rule.match)
            ]
            for name in ("cali-fip-snat", "cali-fip-dnat")
        }
        outer = {own: outer for outer, own in own_of.items()}.get(source)
        itself = outer if source == destination else None
        assert [
            action.address for action in met["cali-fip-snat"] if isinstance(action, SourceNat)
        ] == ([itself] if itself else [])
        led = own_of.get(destination)
        assert met["cali-fip-dnat"] == ([DestinationNat(led)] if led else [])


@pytest.mark.parametrize("hosts", [False, True])
@pytest.mark.parametrize(
    ("source", "protocol", "icmp", "verdict"),
    [
        ("::", 6, 0, "DROP"),
        ("::", 17, 0, "DROP"),
        ("::", 132, 0, "DROP"),
        ("::", 58, 135, "on"),  # duplicate address detection
        ("fd00::1", 58, 134, "DROP"),
        ("fd00::1", 58, 137, "DROP"),
        ("fd00::1", 58, 128, "on"),
        ("fd00::1", 6, 0, "on"),
    ],
)
def test_what_no_workload_may_say_of_itself(
    hosts: bool, source: str, protocol: int, icmp: int, verdict: str
) -> None:
    """STC-4: the reverse path match lets the unspecified address pass."""
    settings = RuleSettings()
    raw = node(tables(6, settings, Facts(hosts=hosts))["raw"], settings)
    packet = Arrival(
        ip_address(source), ip_address("fd00::2"), protocol, icmp=(icmp, 0), came_by=OPEN
    )
    said, _ = raw.walk("PREROUTING", packet)
    assert (said == "DROP") == (verdict == "DROP")
    theirs = Arrival(
        ip_address(source), ip_address("fd00::2"), protocol, icmp=(icmp, 0), came_by="eth0"
    )
    assert raw.walk("PREROUTING", theirs)[0] != "DROP", "that is the network's affair"


@pytest.mark.parametrize("hosts", [False, True])
@pytest.mark.parametrize(
    ("interface", "source", "dropped"),
    [
        (OPEN, "192.0.2.1", False),
        (OPEN, "203.0.113.1", True),
        (SHUT, "192.0.2.1", True),
        ("cali9", "192.0.2.1", True),
    ],
)
def test_other_sources_are_one_endpoints_and_of_its_own_networks(
    hosts: bool, interface: str, source: str, dropped: bool
) -> None:
    settings, facts = RuleSettings(), Facts(spoofing=((OPEN, ALLOWED),), hosts=hosts)
    assert ip_network("192.0.2.0/24") in ALLOWED
    packet = Arrival(ip_address(source), ip_address("10.0.0.9"), came_by=interface, astray=True)
    said, _ = node(tables(4, settings, facts)["raw"], settings).walk("PREROUTING", packet)
    assert (said == "DROP") == dropped
