"""Flows: filters of a deep link, deciding rules, bands of the Sankey."""

from __future__ import annotations

import pytest

from flows.query import Listing, Seen
from flows.record import (
    Action,
    Counts,
    End,
    EndKind,
    Flow,
    Hit,
    Key,
    PolicyKind,
    Reporter,
    Trace,
)
from libcalico.errors import InvalidValue
from web.views.flows import OTHERS, bands, decided, flow_view, place, query_of

WEB = End(EndKind.WORKLOAD, "web-*", "shop")
DB = End(EndKind.WORKLOAD, "db-*", "data")
ALLOW = Hit(PolicyKind.CALICO_NETWORK_POLICY, "default", "data", "db", Action.ALLOW, 0, 2)
END = Hit(PolicyKind.END_OF_TIER, "default", "", "", Action.DENY, 0, 0, ALLOW)


def flow(
    source: End = WEB,
    destination: End = DB,
    action: Action = Action.ALLOW,
    reporter: Reporter = Reporter.SOURCE,
    started: int = 5,
    hit: Hit = ALLOW,
) -> Flow:
    """A flow to port 5432."""
    key = Key(source, destination, 5432, "tcp", reporter, action, trace=Trace((hit,), (hit,)))
    return Flow(key, 0, 15, Counts(started=started))


def test_a_row_names_the_deciding_rule() -> None:
    denied = flow(action=Action.DENY, reporter=Reporter.DESTINATION, hit=END)
    shown = flow_view(Listing((Seen(1, flow()), Seen(2, denied)), 2, 1))
    assert [(one.verdict, one.decided) for one in shown.rows] == [
        ("✓ allowed", "allow: tier default, NetworkPolicy data/db, rule 2"),
        ("✕ DENIED", "deny: end of tier default, where NetworkPolicy data/db selects it"),
    ]
    assert shown.rows[0].packets == "tcp port 5432"


def test_a_connection_that_both_ends_report_counts_once() -> None:
    both = [flow(), flow(reporter=Reporter.DESTINATION)]
    assert [(one.total, one.denied) for one in bands(both)] == [(5, 0)]
    refused = [flow(), flow(action=Action.DENY, reporter=Reporter.DESTINATION, hit=END)]
    assert [(one.source, one.destination, one.total, one.denied) for one in bands(refused)] == [
        ("shop", "data", 5, 5)
    ]


def test_many_namespaces_are_folded() -> None:
    many = [flow(End(EndKind.WORKLOAD, "x", f"ns{number}")) for number in range(60)]
    found = bands(many)
    assert sum(one.total for one in found) == 300
    assert OTHERS in {one.source for one in found}


def test_filters_are_the_apis() -> None:
    query = query_of(
        {"source_namespace": "shop, lab", "port": "80,443", "action": "deny", "tier": "default",
         "policy": "db", "reporter": "source", "minutes": "5", "pending": "allow"}
    )  # fmt: skip
    chosen = query.filter
    assert [one.value for one in chosen.source_namespaces] == ["shop", "lab"]
    assert (chosen.ports, chosen.actions) == ((80, 443), (Action.DENY,))
    assert (chosen.policies[0].tier.value, chosen.policies[0].name.value) == ("default", "db")
    assert (chosen.reporter, query.start) == (Reporter.SOURCE, -300)
    assert chosen.pending_actions == (Action.ALLOW,)
    assert query_of({}).filter.policies == ()


@pytest.mark.parametrize(
    "given", [{"port": "x"}, {"port": "70000"}, {"action": "maybe"}, {"minutes": "7"}]
)
def test_a_bad_filter_names_its_field(given: dict[str, str]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(given))):
        query_of(given)


def test_ends_without_namespace() -> None:
    assert place(End(EndKind.NETWORK, "pub")) == "public"
    assert place(End(EndKind.HOST, "n1")) == "nodes"
    assert decided(()) == "no rule is told"
