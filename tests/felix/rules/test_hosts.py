"""Chains of host endpoints in the rule model: HST-1 to HST-4, names, walks of packets."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from felix.calc.policy_model import EndpointPolicy, ResolvedPolicy, ResolvedRule, TierView, Verb
from felix.rules import names
from felix.rules.endpoints import Verdicts
from felix.rules.hosts import (
    DISPATCH,
    Failsafe,
    HostRules,
    dispatch_chains,
    failsafe_chains,
    host_chains,
    verdicts_of,
)
from felix.rules.iptables import render_rules
from felix.rules.model import Accept, Chain, Drop, Marks, NoTrack, Reject, Return
from felix.rules.policy import policy_chains
from libcalico.model.keys import ResourceKey
from tests.felix.walk import Kernel, Packet

MARKS = Marks.allocate(0xFFFF0000)
VERDICTS = Verdicts(Accept(), Drop())
KEY = ResourceKey("GlobalNetworkPolicy", "web")
FAILSAFES = HostRules((Failsafe(6, 22), Failsafe(17, 68, ip_network("10.9.0.0/16"))),
                      (Failsafe(17, 53),))  # fmt: skip
TIER = TierView("default", ingress=(KEY,), egress=(KEY,))
OPEN_TIER = replace(TIER, ends_in_deny=False)
RULES = (ResolvedRule(Verb.ALLOW, protocol=6), ResolvedRule(Verb.DENY, protocol=17))


def kernel(table: str, hosts: dict[str, EndpointPolicy]) -> Kernel:
    verdicts = verdicts_of(table, VERDICTS, Accept())
    own = {name: host_chains(name, policy, table, MARKS, verdicts)
           for name, policy in hosts.items()}  # fmt: skip
    chains: list[Chain] = [*dispatch_chains(table, own, ("cali",))]
    chains += failsafe_chains(table, 4, FAILSAFES)
    chains += policy_chains(ResolvedPolicy(KEY, "default", RULES, RULES), 4, MARKS, verdicts)
    chains += [chain for each in own.values() for chain in each]
    return Kernel({chain.name: chain for chain in chains})


def fate(table: str, policy: EndpointPolicy, root: str, packet: Packet) -> str:
    """What becomes of a packet of eth0; "accepted" by the mark, "" where nobody decided."""
    found, mark = kernel(table, {"eth0": policy}).walk(root, packet)
    return found if found != "RETURN" else "accepted" if mark & MARKS.accept else ""


TCP, UDP, ICMP = Packet(), Packet(protocol=17), Packet(protocol=1, ports=(0, 0))
SSH = Packet(ports=(40000, 22))
DHCP = Packet(protocol=17, ports=(67, 68), source=ip_address("10.9.1.1"))


@pytest.mark.parametrize(
    ("policy", "packet", "verdict"),
    [
        (EndpointPolicy(), TCP, "DROP"),
        (EndpointPolicy(), SSH, "ACCEPT"),
        (EndpointPolicy(), DHCP, "ACCEPT"),
        (EndpointPolicy(), replace(DHCP, source=ip_address("10.8.1.1")), "DROP"),
        (EndpointPolicy(), replace(TCP, state="ESTABLISHED"), "ACCEPT"),
        (EndpointPolicy(), replace(SSH, state="INVALID"), "DROP"),
        (EndpointPolicy((TIER,)), TCP, "accepted"),
        (EndpointPolicy((TIER,)), UDP, "DROP"),
        (EndpointPolicy((TIER,)), ICMP, "DROP"),
        (EndpointPolicy((OPEN_TIER,)), ICMP, "DROP"),
        (EndpointPolicy(untracked=(TIER,), forward=(TIER,)), TCP, "DROP"),
    ],
)
def test_to_the_host_all_is_closed_but_what_policy_or_a_failsafe_opens(
    policy: EndpointPolicy, packet: Packet, verdict: str
) -> None:
    """HST-1."""
    assert fate("filter", policy, names.FROM_HOST_DISPATCH, packet) == verdict


FORWARDED = EndpointPolicy(forward=(TIER,))
OUTWARD_ONLY = EndpointPolicy(forward=(replace(TIER, ingress=()),))


@pytest.mark.parametrize("root", [names.FROM_FORWARD_DISPATCH, names.TO_FORWARD_DISPATCH])
@pytest.mark.parametrize(
    ("policy", "packet", "verdict"),
    [
        (EndpointPolicy((TIER,)), UDP, "accepted"),
        (FORWARDED, TCP, "accepted"),
        (FORWARDED, UDP, "DROP"),
        (FORWARDED, DHCP, "DROP"),
        (FORWARDED, ICMP, "DROP"),
        (EndpointPolicy(forward=(OPEN_TIER,)), ICMP, ""),
    ],
)
def test_what_passes_through_is_open_until_a_policy_applies(
    policy: EndpointPolicy, packet: Packet, verdict: str, root: str
) -> None:
    assert fate("filter", policy, root, packet) == verdict


def test_a_policy_of_the_other_direction_leaves_forwarded_traffic_open() -> None:
    assert fate("filter", OUTWARD_ONLY, names.FROM_FORWARD_DISPATCH, UDP) == "accepted"
    assert fate("filter", OUTWARD_ONLY, names.TO_FORWARD_DISPATCH, UDP) == "DROP"


@pytest.mark.parametrize("table", ["raw", "mangle"])
@pytest.mark.parametrize(("packet", "verdict"), [(TCP, "accepted"), (UDP, "DROP"), (ICMP, "")])
def test_untracked_and_pre_dnat_policy_leaves_the_rest_to_others(
    table: str, packet: Packet, verdict: str
) -> None:
    """HST-4."""
    policy = EndpointPolicy(untracked=(OPEN_TIER,), pre_dnat=(replace(OPEN_TIER, egress=()),))
    assert fate(table, policy, names.FROM_HOST_DISPATCH, packet) == verdict


def test_only_untracked_policy_takes_connections_from_tracking() -> None:
    policy = EndpointPolicy((TIER,), (), (OPEN_TIER,), (OPEN_TIER,), (TIER,))
    for table in DISPATCH:
        actions = [
            rule.action
            for chain in host_chains("eth0", policy, table, MARKS, VERDICTS)
            for rule in chain.rules
        ]
        assert (NoTrack() in actions) == (table == "raw")


@pytest.mark.parametrize("table", list(DISPATCH))
def test_an_interface_of_its_own_never_meets_all_interfaces(table: str) -> None:
    """HST-2: also where it has no chain in the table."""
    everything = EndpointPolicy((TIER,), (), (OPEN_TIER,), (OPEN_TIER,), (TIER,))
    host = kernel(table, {"*": everything, "eth0": EndpointPolicy()})
    for root in DISPATCH[table]:
        for packet in (TCP, UDP):
            host.visited.clear()
            host.walk(root, packet)
            assert not any("any-interface" in name for name in host.visited), root
        host.visited.clear()
        host.walk(root, replace(TCP, came_by="eth1", leaves_by="eth1"))
        default = names.endpoint_chain(
            {"cali-from-host-endpoint": "cali-fh-", "cali-to-host-endpoint": "cali-th-",
             "cali-from-hep-forward": "cali-fhfw-", "cali-to-hep-forward": "cali-thfw-"}[root],
            names.ANY_INTERFACE,
        )  # fmt: skip
        assert default in host.visited


@pytest.mark.parametrize("table", ["raw", "mangle"])
def test_all_interfaces_do_not_judge_what_the_host_sends_to_its_workloads(table: str) -> None:
    """HST-3; in filter cali-OUTPUT lets it go before."""
    everything = EndpointPolicy((), (), (OPEN_TIER,), (OPEN_TIER,))
    host = kernel(table, {"*": everything})
    assert host.walk(names.TO_HOST_DISPATCH, replace(UDP, leaves_by="cali123"))[0] == "RETURN"
    assert host.walk(names.TO_HOST_DISPATCH, replace(UDP, leaves_by="eth7"))[0] == "DROP"


def test_names_are_calicos() -> None:
    """Source: docs/reference/dataplane.md#host-endpoints. The first pair is exactly as long as
    names may be, the second is hashed."""
    own = host_chains("*", EndpointPolicy(), "filter", MARKS, VERDICTS)
    assert [chain.name for chain in own][:2] == [
        "cali-th-any-interface-at-all",
        "cali-fh-any-interface-at-all",
    ]
    assert all(len(chain.name) == 28 for chain in own)
    assert {chain.name for chain in host_chains("eth0", EndpointPolicy(), "filter", MARKS, VERDICTS)
            } == {"cali-th-eth0", "cali-fh-eth0", "cali-thfw-eth0", "cali-fhfw-eth0"}  # fmt: skip


def test_raw_knows_answers_by_the_ports_of_the_other_list() -> None:
    """There a connection cannot be looked up."""
    into, out = failsafe_chains("raw", 4, FAILSAFES)
    assert render_rules(into.rules) == (
        "-p tcp -m multiport --destination-ports 22 --jump ACCEPT",
        "-p 17 --source 10.9.0.0/16 -m multiport --destination-ports 68 --jump ACCEPT",
        "-p 17 -m multiport --source-ports 53 --jump ACCEPT",
    )
    assert render_rules(out.rules) == (
        "-p 17 -m multiport --destination-ports 53 --jump ACCEPT",
        "-p tcp -m multiport --source-ports 22 --jump ACCEPT",
        "-p 17 --destination 10.9.0.0/16 -m multiport --source-ports 68 --jump ACCEPT",
    )
    assert len(failsafe_chains("filter", 6, FAILSAFES)[0].rules) == 1, "a net of the other family"


def test_only_filter_rejects() -> None:
    rejecting = Verdicts(Return(), Reject())
    for table in ("raw", "mangle"):
        assert verdicts_of(table, rejecting, Accept()).deny == Drop()
    assert verdicts_of("filter", rejecting, Accept()) == rejecting
    assert verdicts_of("mangle", rejecting, Return()).allow == Return()
