"""Where felix's rules lie, and what iptables-legacy can still tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.trace import backend
from node.trace.kernel_rules import handles
from tests.support.netns import Namespace, network_namespace
from tests.trace.scene import Scene, scene

LEGACY = Path("/proc/net/ip_tables_names").exists()
BEFORE = """\
*filter
:cali-FORWARD - [0:0]
[5:300] -A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
[1:60] -A cali-pi-x -p tcp -m comment --comment "cali:WGMJNOAMw74gNS6y" -j MARK --set-xmark 0x1/0x1
[0:0] -A cali-pi-x -m comment --comment "cali:9OQEMYrRthY1dH_O" -j DROP
COMMIT
"""


@pytest.fixture
def space() -> Iterator[Namespace]:
    """A namespace without rules; the test runs inside."""
    with network_namespace("backend") as made, made.entered():
        yield made


def test_the_tables_say_which_back_end_it_is(space: Namespace) -> None:
    assert backend.backend(4) == ""
    space.run("iptables-nft", "-N", "cali-FORWARD")
    assert backend.backend(4) == "iptables-nft"
    assert backend.backend(6) == ""
    space.run("nft", "add", "table", "ip", "calico")
    assert backend.backend(4) == "nftables"


def test_counts_that_moved_name_rules_of_felix_alone() -> None:
    after = BEFORE.replace("[5:300]", "[6:360]").replace("[0:0] -A", "[1:60] -A")
    (drop,) = backend.moved(BEFORE, after, 4)
    assert (drop.kind, drop.table, drop.chain, drop.number) == ("counted", "filter", "cali-pi-x", 2)
    assert (drop.verdict, drop.comment) == ("drop", "cali:9OQEMYrRthY1dH_O")
    assert backend.moved(BEFORE, BEFORE, 4) == []


def test_the_handles_of_a_listing() -> None:
    text = (
        "table inet site { # handle 3\n\tchain guard { # handle 1\n"
        "\t\ttype filter hook forward priority filter + 5; policy accept;\n"
        "\t\ttcp dport 8080 drop # handle 4\n\t}\n}\n"
    )
    assert handles(text) == {4: "tcp dport 8080 drop"}


@pytest.fixture(scope="module")
def old() -> Iterator[Scene]:
    """A lab whose felix writes by iptables-legacy."""
    if not LEGACY:
        pytest.skip("this kernel has no iptables-legacy")
    with scene("iptables-legacy") as made:
        yield made


def test_legacy_says_that_it_cannot_and_gives_what_it_can(old: Scene) -> None:
    spec = (
        "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\n"
        "metadata: {name: shut, namespace: default}\n"
        "spec: {selector: role == 'server', types: [Ingress],"
        " ingress: [{action: Deny, protocol: TCP}]}\n"
    )
    with old.policy(spec):
        old.in_force("shut", old.node2)
        tree = old.trace()
        assert tree["cause"]["name"] == "rule"
        assert tree["cause"]["node"] == "node2"
        assert "cali-pi-np/default/shut" in tree["cause"]["text"]
        assert tree["forward"][-1]["reason"] == "NETFILTER_DROP"
        said = "iptables-legacy does not tell which rules a packet meets"
        assert any(said in lack for lack in tree["missing"])
