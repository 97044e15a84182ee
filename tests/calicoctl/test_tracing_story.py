"""From recorded lines of two nodes to the stages of the way, as text and as JSON."""

from __future__ import annotations

import json

import pytest

from calicoctl.tracing import text
from calicoctl.tracing.evidence import evidence_of
from calicoctl.tracing.judging import cause_of
from calicoctl.tracing.naming import Names, layer, plain, without_hash
from calicoctl.tracing.story import route_text, tell
from libcalico.errors import MuslinError
from libcalico.local.packet_trace import (
    DROPPED,
    Connection,
    End,
    Facts,
    Head,
    Packet,
    Ready,
    Route,
)
from tests.calicoctl.tracing_world import (
    ARRIVES,
    ASKED,
    LEAVES,
    SYN,
    SYN_ACK,
    at,
    node,
    recorded,
    two,
)

TITLES = ("default/web-1", "default/db-1")


def test_a_recorded_connection_is_told_from_end_to_end() -> None:
    story = tell(recorded("reached"), Names(None, 4))
    steps = [f"{each.node} {each.place} {each.what}" for each in story.forward]
    assert steps == [
        "node1 source sent", "node1 node received", "node1 node rules", "node1 node route",
        "node1 node sent", "node2 node received", "node2 node rules", "node2 node route",
        "node2 node sent", "node2 destination received",
    ]  # fmt: skip
    assert story.back[0].place == "destination"
    assert story.answer is not None
    assert story.answer.flags == "SYN+ACK"
    cause = cause_of(story)
    assert cause.name == "ok"
    shown = text.as_text(story, cause, TITLES)
    assert shown.startswith(
        "default/web-1 (10.65.67.128) -> default/db-1 (10.65.11.0), tcp port 8080\nREACHED: "
    )
    assert "announced by BGP peer 10.99.1.2 since 20:51:58" in shown
    assert not story.missing


def test_a_recorded_denial_ends_at_its_rule() -> None:
    story = tell(recorded("denied"), Names(None, 4))
    assert story.forward[-1].what == DROPPED
    assert story.forward[-1].node == "node2"
    denying = [hit for hit in story.hits() if hit.denies]
    assert [hit.place for hit in denying] == ["filter cali-pi-np/default/db-ports:4"]
    tree = text.as_tree(story, cause_of(story), TITLES)
    assert json.loads(json.dumps(tree))["forward"][-1]["reason"] == "NETFILTER_DROP"
    assert tree["reached"] is False


def test_microseconds_are_of_one_clock_only() -> None:
    story = two([*LEAVES], [*ARRIVES])
    assert [each.micros for each in story.forward if each.packet] == [None, 2, 7, 10, 5, 1]
    first, second = node("node1", LEAVES, boot="one"), node("node2", ARRIVES, boot="two")
    from calicoctl.tracing.evidence import Traced

    apart = tell(Traced(ASKED, (first, second), "node1", "node2"), Names(None, 4))
    assert [each.micros for each in apart.forward if each.packet] == [None, 2, 7, None, 5, 1]


def test_a_repeated_packet_is_told_once() -> None:
    again = [at(each.time // 1000 + 1000, each.place, each.kind, each.interface) for each in LEAVES]
    assert len(two([*LEAVES, *again]).forward) == len(two([*LEAVES]).forward)


def test_a_translation_is_a_stage() -> None:
    translated = Head("10.0.1.1", "10.0.9.9", 6, 1234, 8080, "SYN", same="syn")
    first = [*LEAVES[:2], at(10, "node", "sent", "eth0", translated)]
    (stage,) = [each for each in two(first).forward if each.what == "translated"]
    assert stage.text == "destination 10.0.2.1 becomes 10.0.9.9"


def test_a_drop_without_a_device_belongs_to_the_node_that_saw_the_packet() -> None:
    drop = Packet(30_000, "", DROPPED, "", SYN, "skb30", "NO_SOCKET", "tcp_v4_rcv")
    story = two([*LEAVES, drop], [*ARRIVES, drop])
    assert [each.node for each in story.forward if each.what == DROPPED] == ["node2"]


def test_what_a_node_could_not_do_is_missing() -> None:
    ready = Ready("node1", "b", ASKED, "iptables-legacy", "legacy tells nothing", "no BTF")
    from calicoctl.tracing.evidence import Traced

    broken_off = evidence_of([ready, *LEAVES], "here")
    story = tell(Traced(ASKED, (broken_off,), "node1", "node2"), Names(None, 4), ("node2: away",))
    assert story.missing == (
        "node2: away",
        "node1: rules: legacy tells nothing",
        "node1: packets and the kernel's reasons: no BTF",
        "node1: its trace broke off",
    )
    lost = evidence_of([Ready("node1", "b", ASKED), *LEAVES, End(lost=3)], "here")
    told = tell(Traced(ASKED, (lost,), "node1", "node2"), Names(None, 4))
    assert told.missing == ("node1: 3 events were lost",)


def test_the_answer_is_followed_where_the_packet_arrived() -> None:
    back = [
        at(30, "destination", "sent", "eth0", SYN_ACK),
        at(31, "node", "received", "calis", SYN_ACK),
    ]
    story = two([*LEAVES], [*ARRIVES, *back])
    assert story.answer == SYN_ACK
    assert story.back[-1].node == "node2"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "it holds no trace"),
        ([End()], "begins with its line `ready`"),
        ([Ready("a", "b", ASKED), Ready("a", "b", ASKED)], "two traces in one"),
    ],
)
def test_lines_that_are_no_trace_are_refused(lines: list[Ready | End], said: str) -> None:
    with pytest.raises(MuslinError, match=said):
        evidence_of(lines, "file")


def test_chains_of_nftables_are_called_as_those_of_iptables() -> None:
    assert (layer("filter-cali-pi-np/a/b"), plain("filter-cali-pi-np/a/b")) == (
        "filter", "cali-pi-np/a/b",
    )  # fmt: skip
    assert (layer("filter-mine"), plain("filter-mine")) == ("", "filter-mine")
    assert without_hash("cali:abc_1; End of tier x") == "End of tier x"
    assert without_hash("cali:abc_1") == ""


def test_a_route_is_one_line() -> None:
    assert route_text(Route("10.0.0.1", error="EINVAL")) == (
        "no route to 10.0.0.1: a blackhole takes it"
    )
    assert route_text(Route("10.0.0.1", "0.0.0.0/0", "unicast", "10.9.9.9", "eth0", 16)) == (
        "route 0.0.0.0/0 via 10.9.9.9 by eth0, of protocol dhcp"
    )


def test_a_translated_connection_is_a_note() -> None:
    plain_one = Connection("10.0.1.1:9 > 10.0.2.1:80", "10.0.2.1:80 > 10.0.1.1:9")
    there = Connection("10.0.1.1:9 > 10.96.0.1:80", "10.0.2.1:8080 > 10.0.1.1:9", "syn_sent")
    story = two([*LEAVES], facts=Facts(connections=[plain_one, there]))
    assert story.notes == (
        "node1 translates 10.0.1.1:9 > 10.96.0.1:80: answers are expected as"
        " 10.0.2.1:8080 > 10.0.1.1:9 (syn_sent)",
    )


def test_a_connection_that_was_there_before_the_watch_is_not_the_one_that_is_told() -> None:
    later = Head("10.0.1.1", "10.0.2.1", 6, 999, 80, "ACK", same="old")
    old = at(0, "node", "received", "calic", later)
    story = two([old, *LEAVES], [*ARRIVES], probe="connected")
    assert story.packet == SYN
