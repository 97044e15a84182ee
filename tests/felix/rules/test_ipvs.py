"""IPV-1 to IPV-4: what IPVS takes is judged as what is forwarded, by sender and receiver."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from felix.calc.policy_model import EndpointPolicy
from felix.config.parameters import Config
from felix.dataplane.rules.static_inputs import unjudged
from felix.rules import names
from felix.rules.dispatch import Bins
from felix.rules.endpoints import endpoint_chains, endpoint_rules
from felix.rules.hosts import DISPATCH
from felix.rules.inputs import Facts, RuleSettings, Senders
from felix.rules.ipvs import SERVICES
from felix.rules.model import Chain, Marks, Return, Rule, set_bits
from felix.rules.static import tables
from tests.felix.walk import Kernel, Packet

OPEN, SHUT, NOBODY = "cali1", "cali2", "cali9"
ADDRESSES = {
    OPEN: ("10.65.0.1", "fd65::1"),
    SHUT: ("10.65.0.2", "fd65::2"),
    NOBODY: ("10.65.0.9", "fd65::9"),
    "eth0": ("203.0.113.9", "2001:db8::9"),
}
SERVICE = ("10.96.0.10", "fd96::10")
NODE = ("10.99.7.1", "fd99::1")


def kernel(version: int, settings: RuleSettings, hosts: bool) -> Kernel:
    """The filter table of a node with two pods, of which one may do everything."""
    at = 0 if version == 4 else 1
    known = tuple((name, (ip_network(ADDRESSES[name][at]),)) for name in (OPEN, SHUT))
    model = tables(version, settings, Facts(hosts=hosts, ipvs=Senders(known)))["filter"]
    chains = {chain.name: chain for chain in model.chains}
    bins = Bins(settings.prefixes, settings.verdicts.deny)
    for interface, profiles in ((OPEN, ("all",)), (SHUT, ())):
        rules = endpoint_rules(interface, EndpointPolicy(profiles=profiles))
        for chain in endpoint_chains(rules, settings.marks, settings.verdicts):
            chains[chain.name] = chain
        bins.add(interface)
    chains |= {chain.name: chain for chain in bins.all()}
    for name in ("cali-pri-all", "cali-pro-all"):
        chains[name] = Chain(name, (Rule(set_bits(settings.marks.accept)),))
    for name in DISPATCH["filter"]:
        chains.setdefault(name, Chain(name))
    return Kernel(chains, {names.ip_set(SERVICES, version): frozenset({SERVICE[at]})})


def through_a_service(
    version: int, settings: RuleSettings, hosts: bool, sender: str, receiver: str
) -> str:
    """What becomes of the first packet of a connection that IPVS gives to a receiver."""
    at = 0 if version == 4 else 1
    node = kernel(version, settings, hosts)
    source, service = ip_address(ADDRESSES[sender][at]), ip_address(SERVICE[at])
    packet = Packet(source, service, came_by=sender, leaves_by="")
    said, mark = node.walk("cali-INPUT", packet)
    if said in ("DROP", "REJECT"):
        return said
    packet = replace(
        packet, destination=ip_address(ADDRESSES[receiver][at]), came_by="", leaves_by=receiver
    )
    return node.walk("cali-OUTPUT", packet, mark)[0]


@pytest.mark.parametrize("allow", ["ACCEPT", "RETURN"])
@pytest.mark.parametrize("hosts", [False, True])
@pytest.mark.parametrize("version", [4, 6])
def test_sender_and_receiver_are_judged(version: int, hosts: bool, allow: str) -> None:
    settings = RuleSettings()
    if allow == "RETURN":
        settings = replace(settings, verdicts=replace(settings.verdicts, allow=Return()))
    for sender, receiver, verdict in (
        (OPEN, OPEN, allow),
        ("eth0", OPEN, allow),
        (OPEN, "eth0", allow),
        ("eth0", "eth0", "RETURN"),
        (OPEN, SHUT, "DROP"),
        ("eth0", SHUT, "DROP"),
        ("eth0", NOBODY, "DROP"),
        (SHUT, OPEN, "DROP"),
        (SHUT, "eth0", "DROP"),
        (NOBODY, OPEN, "DROP"),
        (NOBODY, "eth0", "DROP"),
    ):
        said = through_a_service(version, settings, hosts, sender, receiver)
        assert said == verdict, (sender, receiver)


@pytest.mark.parametrize("hosts", [False, True])
def test_the_node_itself_reaches_its_pods_as_ever(hosts: bool) -> None:
    packet = Packet(ip_address("10.99.7.1"), ip_address(ADDRESSES[SHUT][0]), leaves_by=SHUT)
    assert kernel(4, RuleSettings(), hosts).walk("cali-OUTPUT", packet)[0] == "RETURN"


@pytest.mark.parametrize("hosts", [False, True])
def test_what_a_pod_sends_to_its_node_is_judged_as_ever(hosts: bool) -> None:
    node = kernel(4, RuleSettings(), hosts)
    packet = Packet(ip_address(ADDRESSES[OPEN][0]), ip_address("10.99.7.1"), came_by=OPEN)
    assert node.walk("cali-INPUT", packet)[0] == "DROP", "defaultEndpointToHostAction"


@pytest.mark.parametrize("mask", [0x1F0000, 0x3F0000])
@pytest.mark.parametrize("hosts", [False, True])
@pytest.mark.parametrize("version", [4, 6])
def test_a_mask_without_bits_for_it_closes_the_way(version: int, hosts: bool, mask: int) -> None:
    """IPV-4: also to who comes from outside, by a node port that no rule can know."""
    settings = replace(RuleSettings(), marks=Marks.allocate(mask))
    for sender in (OPEN, SHUT, NOBODY, "eth0"):
        for receiver in (OPEN, SHUT, NOBODY):
            said = through_a_service(version, settings, hosts, sender, receiver)
            assert said == "DROP", (sender, receiver)
    # Who comes to the host itself is not asked: only what is sent on is shut.
    assert through_a_service(version, settings, hosts, "eth0", "eth0") == "RETURN"
    # The node answers its pods, and they find each other.
    at = 0 if version == 4 else 1
    reply = Packet(
        ip_address(NODE[at]), ip_address(ADDRESSES[OPEN][at]), state="ESTABLISHED", leaves_by=OPEN
    )
    asked = [
        replace(reply, protocol=58, icmp=(kind, 0), state="UNTRACKED")
        for kind in (() if version == 4 else (135, 136))
    ]
    for packet in (reply, *asked):
        assert kernel(version, settings, hosts).walk("cali-OUTPUT", packet)[0] == "RETURN"


@pytest.mark.parametrize("mask", [0x1F0000, 0x3F0000])
def test_such_a_mask_is_told_by_field_value_and_what_is_needed(mask: int) -> None:
    config = replace(Config(), iptables_mark_mask=mask)
    ((key, reason),) = unjudged(config, True).items()
    assert str(key) == "FelixConfiguration(default)"
    for word in ("iptablesMarkMask", f"{mask:#x}", f"{mask.bit_count()} bits", "needs 7"):
        assert word in reason
    assert not unjudged(config, False), "without kube-ipvs0 five bits do"
    assert not unjudged(replace(Config(), iptables_mark_mask=0x7F0000), True)


def test_an_accept_mark_does_not_carry_what_ipvs_sends_past_its_receiver() -> None:
    """A host endpoint's policy in the raw table leaves that mark."""
    settings = RuleSettings()
    marks = settings.marks
    packet = Packet(
        ip_address(ADDRESSES["eth0"][0]), ip_address(ADDRESSES[SHUT][0]), leaves_by=SHUT
    )
    node = kernel(4, settings, True)
    assert node.walk("cali-OUTPUT", packet, marks.served | marks.accept)[0] == "DROP"
    assert node.walk("cali-OUTPUT", packet, marks.accept)[0] == "ACCEPT", "the node's own"


@pytest.mark.parametrize("version", [4, 6])
def test_such_a_mask_takes_from_no_pod_what_ipvs_does_not_take(version: int) -> None:
    at = 0 if version == 4 else 1
    pod, node = ip_address(ADDRESSES[OPEN][at]), ip_address(NODE[at])
    small = replace(RuleSettings(), marks=Marks.allocate(0x1F0000))
    reply = Packet(pod, node, state="ESTABLISHED", came_by=OPEN)
    kinds = () if version == 4 else (133, 135, 136)
    asked = [replace(reply, protocol=58, icmp=(kind, 0), state="UNTRACKED") for kind in kinds]
    for packet in (reply, *asked):
        usual = kernel(version, RuleSettings(), False).walk("cali-INPUT", packet)[0]
        assert usual != "DROP"
        assert kernel(version, small, False).walk("cali-INPUT", packet)[0] == usual
    # Whether that is a node port nobody knows; what is addressed to a service is one's for sure.
    for shut in (
        replace(reply, state="NEW"),
        replace(reply, destination=ip_address(SERVICE[at])),
        replace(reply, destination=ip_address(SERVICE[at]), state="NEW"),
    ):
        assert kernel(version, small, False).walk("cali-ipvs-in", shut)[0] == "DROP"


@pytest.mark.parametrize("hosts", [False, True])
def test_without_the_link_there_is_no_rule_of_it(hosts: bool) -> None:
    model = tables(4, RuleSettings(), Facts(hosts=hosts))["filter"]
    assert "ipvs" not in repr(model)
