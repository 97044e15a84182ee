"""Which cause is named, by what the nodes told. The real ones are planted in tests/trace."""

from __future__ import annotations

import ast
import re

import msgspec
import pytest

from calicoctl.tracing.drop_causes import forwarding_off
from calicoctl.tracing.judging import cause_of
from calicoctl.tracing.reasons import FUNCTIONS, REASONS
from calicoctl.tracing.story import Story
from libcalico.local.packet_trace import DESTINATION, DROPPED, NODE, SOURCE, Link, Route
from tests import listed
from tests.calicoctl.tracing_world import (
    ARRIVES,
    HOP,
    LEAVES,
    RESET,
    SERVER,
    SYN,
    SYN_ACK,
    WAY_THERE,
    at,
    facts,
    icmp,
    node,
    rule,
    two,
)


def name(story: Story, owned: str = SERVER) -> str:
    """The cause's name, where one address has an owner."""
    found = cause_of(story, lambda address: "" if address == SERVER != owned else f"pod {address}")
    assert found.text
    return found.name


def dropped(reason: str, function: str = "f", interface: str = "calic") -> Story:
    """The client's node drops the packet."""
    drop = at(9, NODE, DROPPED, interface, reason=reason, function=function)
    return two([*LEAVES[:2], drop])


def test_a_connection_that_was_made_has_none() -> None:
    assert name(two([*LEAVES], [*ARRIVES], probe="connected")) == "ok"


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_each_reason_of_the_kernel_has_a_name(reason: str) -> None:
    if reason.startswith("NEIGH"):
        assert name(dropped(reason)) == "next-hop"
    else:
        assert name(dropped(reason)) == REASONS[reason][0]


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_a_function_of_the_kernel_has_a_name(function: str) -> None:
    assert name(dropped("NOT_SPECIFIED", function)) == FUNCTIONS[function][0]


def test_a_reason_without_a_name_is_told_as_it_is() -> None:
    found = cause_of(dropped("SOMETHING_NEW", "new_function"))
    assert found.name == "kernel-drop"
    assert "SOMETHING_NEW in new_function" in found.text


def test_a_rule_of_others_is_named_with_its_text() -> None:
    met = rule("guard", 3, "drop", text="tcp dport 80 drop")
    found = cause_of(
        two([*LEAVES[:2], met, at(9, NODE, DROPPED, "calic", reason="NETFILTER_DROP")])
    )
    assert (found.name, found.node) == ("foreign-rule", "node1")
    assert "ip filter guard:3 on node1: tcp dport 80 drop" in found.text


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("cali:x; End of tier base. Drop if no policies passed packet", "end-of-tier"),
        ("cali:x; Drop if no profiles matched", "no-profile"),
        ("cali:x", "conntrack-invalid"),
    ],
)
def test_the_ends_of_a_pods_chain(comment: str, expected: str) -> None:
    met = rule("cali-tw-cali12", 2, "drop", comment=comment)
    assert name(two([*LEAVES[:2], met])) == expected


def test_without_traced_rules_the_counts_that_moved_are_told() -> None:
    counted = msgspec.structs.replace(rule("cali-pi-x", 4, "drop"), kind="counted", same="")
    drop = at(9, NODE, DROPPED, "calic", reason="NETFILTER_DROP")
    found = cause_of(two([*LEAVES[:2], drop, counted]))
    assert found.name == "rule"
    assert "filter cali-pi-x:4" in found.text
    (note,) = two([*LEAVES[:2], drop, counted]).notes
    assert note == "node1: rules whose counts moved meanwhile: filter cali-pi-x:4 (drop)"


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [(3, 4, "mtu"), (11, 0, "ttl"), (3, 13, "prohibited"), (3, 3, "rejected"), (3, 1, "next-hop")],
)
def test_errors_that_come_back(kind: int, code: int, expected: str) -> None:
    error = icmp(kind, code, "198.51.100.1", mtu=1280)
    back = [at(40, NODE, "received", "eth0", error), at(42, SOURCE, "received", "eth0", error)]
    unreachable = Route(SERVER, "10.0.2.0/26", "unicast", HOP, "eth0", 109, neighbour="failed")
    story = two([*LEAVES, *back], facts=facts(unreachable))
    if (kind, code) == (3, 1):
        assert name(story) == "unreachable"
    else:
        assert name(story) == expected


def test_a_reset_of_the_pod_is_a_closed_port() -> None:
    drop = at(27, DESTINATION, DROPPED, "eth0", reason="NO_SOCKET")
    back = at(28, DESTINATION, "sent", "eth0", RESET)
    assert name(two([*LEAVES], [*ARRIVES, drop, back], probe="refused")) == "closed-port"


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        (Route(SERVER, error="EINVAL"), "blackhole"),
        (Route(SERVER, error="ENETUNREACH"), "no-route"),
        (Route(SERVER, error="EACCES"), "prohibit-route"),
        (Route(SERVER, error="EXDEV"), "reverse-path"),
        (msgspec.structs.replace(WAY_THERE, neighbour="failed"), "next-hop"),
        (WAY_THERE, "lost-inside"),
    ],
)
def test_a_packet_that_a_node_keeps(route: Route, expected: str) -> None:
    assert name(two([*LEAVES[:2]], facts=facts(route))) == expected


def test_a_node_that_does_not_forward() -> None:
    link = Link(NODE, "calic", True, True, 1500, forwarding=0)
    story = two([*LEAVES[:2]], facts=facts(links=[link]))
    found = cause_of(story, lambda _: "x")
    assert found.name == "forwarding-off"
    assert "net.ipv4.conf.calic.forwarding is 0" in found.text


def test_forwarding_of_ipv6_is_one_setting() -> None:
    link = Link(NODE, "calic", True, True, 1500, forwarding=0)
    evidence = node("node1", [], facts(links=[link]))
    asked = msgspec.structs.replace(
        evidence.ready.question, source="fd00::1", destination="fd00::2"
    )
    evidence.ready = msgspec.structs.replace(evidence.ready, question=asked)
    (found,) = forwarding_off(evidence, "calic")
    assert "net.ipv6.conf.all.forwarding is 0" in found.text
    assert found.fix == "sysctl -w net.ipv6.conf.all.forwarding=1"
    assert not list(forwarding_off(evidence, "eth0"))


def test_a_packet_that_is_lost_between_the_nodes() -> None:
    assert name(two([*LEAVES])) == "lost-on-the-way"
    wrong = msgspec.structs.replace(
        WAY_THERE, neighbour="permanent", neighbour_mac="02:00:00:00:00:99"
    )
    there = facts(links=[Link(NODE, "eth0", True, True, 1500, "02:00:00:00:00:01")])
    assert name(two([*LEAVES], facts=facts(wrong), facts2=there)) == "wrong-neighbour"


def test_an_address_without_an_owner() -> None:
    assert name(two([*LEAVES]), owned="") == "no-owner"


def test_a_pod_that_does_not_take_it() -> None:
    down = facts(links=[Link(DESTINATION, "eth0", False, False, 1500)])
    assert name(two([*LEAVES], [*ARRIVES[:2]], facts2=down)) == "pod-down"
    assert name(two([*LEAVES], [*ARRIVES[:2]])) == "pod-silent"


def test_a_pod_that_does_not_answer() -> None:
    full = facts(counters={"TcpExt.ListenOverflows": 2}, listening=True)
    assert name(two([*LEAVES], [*ARRIVES], facts2=full)) == "backlog"
    assert name(two([*LEAVES], [*ARRIVES], facts2=facts(listening=False))) == "closed-port"
    assert name(two([*LEAVES], [*ARRIVES], facts2=facts(listening=True))) == "no-answer"


def test_an_answer_that_is_lost() -> None:
    back = [
        at(30, DESTINATION, "sent", "eth0", SYN_ACK),
        at(31, NODE, "received", "calis", SYN_ACK),
    ]
    lost = facts(back=Route("10.0.1.1", error="ENETUNREACH"))
    found = cause_of(two([*LEAVES], [*ARRIVES, *back], facts2=lost), lambda _: "x")
    assert (found.name, found.node) == ("no-route", "node2")


def test_nothing_leaves_the_pod() -> None:
    down = facts(links=[Link(SOURCE, "eth0", False, False, 1500)])
    assert name(two([], facts=down, probe="unreachable")) == "interface-down"
    assert name(two([], probe="unreachable")) == "source-refuses"
    assert name(two([], probe="timeout")) == "not-seen"
    assert name(two([], probe="")) == "no-attempt"


def test_rules_alone_name_a_cause_where_the_kernel_shows_no_packets() -> None:
    """Without BTF, or without the right to load programs."""
    met = msgspec.structs.replace(rule("guard", 3, "drop", text="tcp dport 80 drop"), head=SYN)
    assert name(two([met])) == "foreign-rule"


def test_a_full_table_of_connections() -> None:
    drop = at(9, NODE, DROPPED, "calic", reason="NETFILTER_DROP")
    full = msgspec.structs.replace(facts(), conntrack=(65536, 65536))
    assert name(two([*LEAVES[:2], drop], facts=full)) == "conntrack-full"
    roomy = msgspec.structs.replace(facts(), conntrack=(100, 65536))
    assert name(two([*LEAVES[:2], drop], facts=roomy)) == "rule"


def test_the_page_names_every_cause_and_no_other() -> None:
    page = (listed.ROOT / "docs/trace.md").read_text().partition("\n## Causes\n")[2]
    told = set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`[^|]*) \|", page, re.M))))
    trees = [ast.parse(path.read_text()) for path in listed.files("calicoctl/tracing/*.py")]
    nodes = [one for tree in trees for one in ast.walk(tree)]
    made = {
        call.args[0].value
        for call in nodes
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if call.func.id == "Cause" and isinstance(call.args[0], ast.Constant)
    }
    made |= {name for name, _, _ in (*REASONS.values(), *FUNCTIONS.values())}
    assert made <= told
    assert told <= {one.value for one in nodes if isinstance(one, ast.Constant)}
