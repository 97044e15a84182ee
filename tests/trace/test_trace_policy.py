"""Causes that are rules: of policies, of their absence, of others. On both back ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trace.scene import Scene, Tree, scene


@pytest.fixture(scope="module", params=["iptables-nft", "nftables"], ids=["nft", "nftables"])
def two(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A lab of a back end."""
    with scene(request.param) as made:
        yield made


def policy(name: str, spec: str, kind: str = "NetworkPolicy") -> str:
    """A policy of namespace default."""
    return (
        f"apiVersion: projectcalico.org/v3\nkind: {kind}\n"
        f"metadata: {{name: {name}, namespace: default}}\nspec: {spec}\n"
    )


@pytest.mark.promise("F-99")
def test_a_connection_is_followed_through_both_nodes(two: Scene) -> None:
    tree = two.reaching()
    assert tree["reached"] is True
    assert tree["probe"]["result"] == "connected"
    steps = [(each["node"], each["place"], each["what"]) for each in tree["forward"]]
    packets = [step for step in steps if step[2] not in ("rules", "route")]
    assert packets == [
        ("node1", "source", "sent"),
        ("node1", "node", "received"),
        ("node1", "node", "sent"),
        ("node2", "node", "received"),
        ("node2", "node", "sent"),
        ("node2", "destination", "received"),
    ]
    assert steps.count(("node1", "node", "rules")) == 1
    times = [each["microseconds"] for each in tree["forward"] if each["microseconds"] is not None]
    assert times
    assert min(times) >= 0
    (route,) = [e["route"] for e in tree["forward"] if e["route"] and e["node"] == "node1"]
    node2 = str(two.lab.host("node2").address.ip)
    assert (route["gateway"], route["protocol"], route["peer"]) == (node2, 109, node2)
    assert route["since"]
    assert tree["back"][-1]["place"] == "source"
    assert not tree["missing"]
    assert ours(tree) or rules(tree, "Profile kns.default")


def rules(tree: Tree, policy: str) -> list[Tree]:
    """The rules of a policy that were met."""
    met = [rule for stage in (*tree["forward"], *tree["back"]) for rule in stage["rules"]]
    return [rule for rule in met if rule["policy"] == policy]


def ours(tree: Tree) -> bool:
    """Whether any rule of felix was met."""
    return any(rule["ours"] for stage in tree["forward"] for rule in stage["rules"])


def test_a_policy_denies_what_comes_in(two: Scene) -> None:
    spec = (
        "{selector: role == 'server', types: [Ingress], ingress: [{action: Allow, protocol: UDP},"
    )
    spec += " {action: Deny, protocol: TCP, destination: {ports: [8080]}}]}"
    with two.policy(policy("shut", spec)):
        two.in_force("shut", two.node2)
        tree = two.trace()
        assert tree["cause"]["name"] == "policy"
        assert tree["cause"]["node"] == "node2"
        said = "denied by tier default, NetworkPolicy default/shut, ingress[1]"
        assert said in tree["cause"]["text"]
        assert tree["forward"][-1]["reason"] == "NETFILTER_DROP"
        assert {"rule": "ingress[1]", "verdict": "drop"}.items() <= (
            rules(tree, "NetworkPolicy default/shut")[-1].items()
        )


def test_a_policy_denies_what_goes_out(two: Scene) -> None:
    spec = "{selector: role == 'client', types: [Egress], egress: [{action: Deny, protocol: TCP},"
    spec += " {action: Allow}]}"
    with two.policy(policy("kept", spec)):
        two.in_force("kept", two.node1)
        name, text = two.cause()
        assert (name, text[-6:]) == ("policy", "@node1")
        assert "NetworkPolicy default/kept, egress[0]" in text


def test_no_policy_of_the_tier_allows_it(two: Scene) -> None:
    spec = (
        "{selector: role == 'server', types: [Ingress], ingress: [{action: Allow, protocol: UDP}]}"
    )
    with two.policy(policy("udp-only", spec)):
        two.in_force("udp-only", two.node2)
        name, text = two.cause()
        assert (name, text[-6:]) == ("end-of-tier", "@node2")
        assert "no policy of tier default allows it" in text
        assert "pod default/server" in text


def test_a_staged_policy_would_deny_it(two: Scene) -> None:
    spec = (
        "{selector: role == 'server', types: [Ingress], ingress: [{action: Deny, protocol: TCP}]}"
    )
    with two.policy(policy("soon", spec, "StagedNetworkPolicy")):
        tree = two.reaching()
        assert tree["reached"] is True
        (note,) = tree["notes"]
        assert "if the staged policies were in force it would be denied" in note
        assert "default/soon, ingress" in note


def test_a_rule_of_an_administrator_drops_it(two: Scene) -> None:
    plant = (
        "nft add table inet site;"
        " nft 'add chain inet site guard { type filter hook forward priority 5; }';"
        " nft add rule inet site guard tcp dport 8080 counter drop"
    )
    with two.planted(two.node2, plant, "nft delete table inet site"):
        name, text = two.cause()
        assert (name, text[-6:]) == ("foreign-rule", "@node2")
        assert "inet site guard:1" in text
        assert "tcp dport 8080" in text


def test_conntrack_takes_an_answer_for_invalid(two: Scene) -> None:
    """The first packet passed untracked: of the answer's connection nothing is known."""
    plant = (
        "nft add table ip site;"
        " nft 'add chain ip site early { type filter hook prerouting priority -301; }';"
        f" nft add rule ip site early ip saddr {two.client.address} tcp dport 8080 notrack"
    )
    with two.planted(two.node1, plant, "nft delete table ip site"):
        name, text = two.cause()
        assert (name, text[-6:]) == ("conntrack-invalid", "@node1")
        assert "takes the packet for invalid" in text


def test_an_untracked_policy_of_the_host_denies_it(two: Scene) -> None:
    address = two.lab.host("node2").address.ip
    objects = (
        "apiVersion: projectcalico.org/v3\nkind: HostEndpoint\n"
        "metadata: {name: wire, labels: {host: node2}}\n"
        f"spec: {{node: node2, interfaceName: eth0, expectedIPs: [{address}],"
        " profiles: [projectcalico-default-allow]}\n---\n"
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: raw}\n"
        "spec: {selector: host == 'node2', doNotTrack: true, applyOnForward: true,"
        " types: [Ingress], ingress: [{action: Deny, protocol: TCP, destination: {ports: [8080]}},"
        " {action: Allow}]}\n"
    )
    with two.policy(objects):
        two.in_force("raw", two.node2)
        name, text = two.cause()
        assert (name, text[-6:]) == ("policy", "@node2")
        assert "GlobalNetworkPolicy raw, ingress[0]" in text
        assert "(raw " in text
