"""The steps from flows to rules, each by itself."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.explain.recommend.choose import choose
from felix.explain.recommend.crowd import Crowd, lasting, named
from felix.explain.recommend.groups import groups_of
from felix.explain.recommend.peers import Peer
from felix.explain.recommend.ports import entries_of, ranges_of
from felix.explain.recommend.rules import Permit, joined, permits
from felix.explain.recommend.seen import Talk, number_of, seen_in
from flows.record import Action, End, EndKind, Flow, Key, Reporter
from libcalico.selectors.selectors import Compare, InSet
from tests.size import examples
from tests.support.explain_world import Document, pod
from tests.support.explaining import world_of

WEB, DB = End(EndKind.WORKLOAD, "web-*", "shop"), End(EndKind.WORKLOAD, "db", "shop")
GUEST = End(EndKind.WORKLOAD, "guest", "lab")


def flow(
    source: End, destination: End, reporter: Reporter, action: Action = Action.ALLOW,
    port: int = 80, protocol: str = "tcp",
) -> Flow:  # fmt: skip
    key = Key(source, destination, port, protocol, reporter, action)
    return Flow(key, 0, 15, source_labels=("a=1", "b=2"), destination_labels=())


def test_each_end_speaks_for_its_own_direction() -> None:
    seen = seen_in(
        [
            flow(WEB, DB, Reporter.SOURCE),
            flow(WEB, DB, Reporter.DESTINATION, Action.DENY),
            flow(GUEST, DB, Reporter.SOURCE, port=443),
            flow(GUEST, WEB, Reporter.DESTINATION, Action.DENY, port=22),
            flow(GUEST, WEB, Reporter.DESTINATION, Action.ALLOW, port=22),
            flow(GUEST, GUEST, Reporter.SOURCE),
        ],
        "shop",
    )
    assert [(t.ingress, t.own.name, t.peer.name, t.port) for t in seen.talks] == [
        (False, "web-*", "db", 80),
        (True, "db", "guest", 443),
        (True, "web-*", "guest", 22),
    ]
    assert [(t.ingress, t.own.name, t.peer.name) for t in seen.denied] == [(True, "db", "web-*")]


def test_labels_are_those_that_all_flows_tell_and_protocols_are_read() -> None:
    both = [flow(WEB, DB, Reporter.SOURCE), flow(WEB, DB, Reporter.SOURCE, protocol="fancy")]
    other = Flow(both[0].key, 15, 30, source_labels=("a=1", "c=3"))
    seen = seen_in([*both, other], "shop")
    assert seen.labels[WEB] == ("a=1",)
    assert seen.unreadable == ("protocol 'fancy' of a flow is not known",)
    assert [number_of(text) for text in ("TCP", "icmp6", "icmpv6", "253", "0")] == [
        6, 58, 58, 253, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "pod_name", "is_it"),
    [
        ("web-7d4b9c-*", "web-7d4b9c-x2x7k", True),
        ("web-*", "web-0", True),
        ("web-*", "web-7d4b9c-x2x7k", False),
        ("web-*", "web-", False),
        ("web", "web", True),
        ("web", "web-0", False),
    ],
)
def test_whose_an_aggregated_name_is(name: str, pod_name: str, is_it: bool) -> None:
    assert named(name, pod_name) is is_it


def test_labels_that_do_not_last_name_nothing() -> None:
    labels = {
        "app": "web", "pod-template-hash": "7d4b9c", "pcns.env": "x",
        "projectcalico.org/namespace": "shop", "projectcalico.org/serviceaccount": "bot",
    }  # fmt: skip
    assert dict(lasting(labels)) == {"app": "web", "projectcalico.org/serviceaccount": "bot"}


@pytest.mark.parametrize(
    ("mine", "others", "selector", "over"),
    [
        ([{"app": "web"}], [], 'app == "web"', 0),
        ([{"app": "web", "x": "1"}], [{"app": "db", "x": "1"}], 'app == "web"', 0),
        ([{"app": "web", "t": "a"}], [{"app": "web"}, {"t": "a"}], 'app == "web" && t == "a"', 0),
        ([{}], [{"app": "web"}], "!has(app)", 0),
        ([{"app": "a"}, {"app": "b"}], [{"app": "c"}], 'app in {"a", "b"}', 0),
        ([{"app": "web"}], [{"app": "web", "v": "2"}], "!has(v)", 0),
        ([{"app": "web"}], [{"app": "web"}], 'app == "web"', 1),
        ([{}], [{}], "all()", 1),
    ],
)
def test_the_fewest_terms(
    mine: list[dict[str, str]], others: list[dict[str, str]], selector: str, over: int
) -> None:
    choice = choose(mine, others)
    assert (choice.selector, len(choice.over)) == (selector, over)


label_sets = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(label_sets, min_size=1, max_size=4), st.lists(label_sets, max_size=6))
def test_a_choice_holds_for_all_of_mine_and_tells_what_it_cannot_leave_out(
    mine: list[dict[str, str]], others: list[dict[str, str]]
) -> None:
    choice = choose(mine, others)
    assert all(term.matches(labels) for labels in mine for term in choice.terms)
    matched = [o for o in others if all(term.matches(o) for term in choice.terms)]
    assert list(choice.over) == matched


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(label_sets, min_size=1, max_size=6), st.integers(1, 4))
def test_a_group_is_exactly_whom_its_selector_matches(
    labels: list[dict[str, str]], seen: int
) -> None:
    """REC-1"""
    pods: list[Document] = [
        pod(f"shop/p{number}", number + 5, **each) for number, each in enumerate(labels)
    ]
    ends = [End(EndKind.WORKLOAD, f"p{n}", "shop") for n in range(min(seen, len(labels)))]
    crowd = Crowd(world_of(pods), dict.fromkeys(ends, ()))
    groups = groups_of(ends, crowd, "shop")
    there = crowd.by_namespace["shop"]
    for group in groups:
        matched = [e for e in there if all(t.matches(e.values()) for t in group.choice.terms)]
        assert set(matched) == set(group.members)
    assert sorted(end.name for group in groups for end in group.ends) == [e.name for e in ends]
    members = [entry for group in groups for entry in group.members]
    assert len(members) == len(set(members))


def test_pods_of_two_generations_are_one_group() -> None:
    pods = [
        pod(f"shop/web-{generation}-{end}", number, app="web", **{"pod-template-hash": generation})
        for number, (generation, end) in enumerate(
            [("5d5d5", "aaaaa"), ("7c7c7", "bbbbb"), ("7c7c7", "ccccc")], 5
        )
    ]
    ends = [End(EndKind.WORKLOAD, f"web-{g}-*", "shop") for g in ("5d5d5", "7c7c7", "9f9f9")]
    told = dict.fromkeys(ends, ("app=web", "pod-template-hash=9f9f9"))
    (group,) = groups_of(ends, Crowd(world_of(pods), told), "shop")
    assert group.name == "web"
    assert group.choice.selector == 'app == "web"'
    assert {entry.title for entry in group.members if entry.key is None} == {"shop/web-9f9f9-*"}


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(1, 40)))
def test_merged_ports_are_the_same_ports(ports: list[int]) -> None:
    ranges = ranges_of(ports)
    assert [p for low, high in ranges for p in range(low, high + 1)] == sorted(set(ports))
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(ranges))


def test_ports_in_a_row_are_a_range() -> None:
    assert entries_of([443, 80, 81, 8080, 8081, 8082, 80]) == [80, 81, 443, "8080:8082"]


def test_peers_that_do_the_same_are_one_rule() -> None:
    a, b = (Peer(terms=(Compare("app", "==", name),)) for name in "ab")
    other = Peer("lab", (Compare("app", "==", "c"),))
    sides = {"a": a, "b": b, "c": other}
    talks = [
        Talk(True, DB, End(EndKind.WORKLOAD, name, "shop"), protocol, port)
        for name in "abc"
        for protocol, port in ((6, 80), (6, 81), (6, 82), (1, 0))
    ]
    found = permits(talks, lambda end: (sides[end.name],))
    both = Peer(terms=(InSet("app", frozenset("ab")),))
    assert found == [
        Permit(both, 1, ()), Permit(both, 6, (80, 81, 82)),
        Permit(other, 1, ()), Permit(other, 6, (80, 81, 82)),
    ]  # fmt: skip
    assert joined([a, a]) == [a]
