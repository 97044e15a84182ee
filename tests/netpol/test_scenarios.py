"""The 48 scenarios of the Kubernetes NetworkPolicy end-to-end suite: 42 TCP, 3 UDP, 3 SCTP.

Each is Kubernetes YAML of our own that means what the suite's case means, through the conversion,
etcd and two real felix processes into iptables-nft and into nftables (96 items), and a truth table
over all 72 ordered pairs of nine pods, measured with packets. A pod to itself is left out, as in
the suite.
"""

from __future__ import annotations

import time

import pytest

from tests.felix.in_kernel import NFTABLES
from tests.netpol import cases_changes, cases_egress, cases_ingress, cases_ports
from tests.netpol.case import Case, Expect, expect
from tests.netpol.world import World, documents, namespace_yaml, places_of_rules

CASES = [
    *cases_ingress.CASES,
    *cases_egress.CASES,
    *cases_ports.CASES,
    *cases_changes.CASES,
]
PLAYED = [*CASES, *cases_changes.OURS]


def test_the_suite_is_whole() -> None:
    """One item per case, and as many of each protocol as upstream has."""
    assert len({case.name for case in CASES}) == len(CASES) == 48
    of = [case.name.partition("-")[0] for case in CASES if not case.name.endswith("-tcp")]
    assert (of.count("udp"), of.count("sctp")) == (3, 3)
    assert all(any(isinstance(step, Expect) for step in case.steps) for case in CASES)


def test_the_rules_lie_in_one_back_end_alone(clean: World, backend: str) -> None:
    clean.fence()
    for node in clean.lab.nodes:
        assert places_of_rules(node) == {backend}
    listing = {
        "nft": ["iptables-nft-save", "-t", "filter"],
        NFTABLES: ["nft", "list", "table", "ip", "calico"],
    }[backend]
    assert "cali-pri-kns.x" in clean.lab.nodes[0].run(listing).stdout


@pytest.mark.promise("M-117", "F-67", "F-68")
@pytest.mark.parametrize("scenario", PLAYED, ids=[case.name for case in PLAYED])
def test_scenario(clean: World, scenario: Case) -> None:
    begun = time.monotonic()
    clean.run(scenario)
    print(f"{time.monotonic() - begun:.2f} s; {'; '.join(clean.said)}")


@pytest.mark.promise("M-117", "F-12")
def test_a_namespace_that_is_not_known_is_closed(clean: World) -> None:
    """Without the profile that opens a namespace its pods are shut in, whatever policies say."""
    clean.delete(documents(namespace_yaml("z")))
    clean.expect(expect("tcp:80", "no */* -> z/*", "no z/* -> */*"))
    clean.apply(documents(namespace_yaml("z")))
    clean.expect(expect("tcp:80"))
