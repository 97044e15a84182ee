"""Flows as text."""

from __future__ import annotations

from calicoctl.seen import text
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
    Service,
    Trace,
)

LOCKED = Hit(PolicyKind.KUBERNETES_NETWORK_POLICY, "default", "shop", "db", Action.DENY, 0, 2)
SOON = Hit(PolicyKind.STAGED_NETWORK_POLICY, "default", "shop", "soon", Action.ALLOW, 1, 0)
ENDED = Hit(PolicyKind.END_OF_TIER, "default", "", "", Action.DENY, 0, -1, LOCKED)
PROFILE = Hit(PolicyKind.PROFILE, "", "", "kns.shop", Action.ALLOW, 0, 0)


def flow(*hits: Hit, action: Action = Action.DENY, name: str = "web-*") -> Flow:
    ends = End(EndKind.WORKLOAD, name, "shop"), End(EndKind.HOST, "node-1")
    service = Service("db", "shop", "", 5432)
    trace = Trace(hits, (*hits, SOON))
    key = Key(*ends, 5432, "tcp", Reporter.DESTINATION, action, service, trace)
    return Flow(key, 1_800_000_000, 1_800_000_015, Counts(2, 1, 120, 40, 3), ("app=web",), ())


def test_a_table() -> None:
    assert text.table([flow(LOCKED)], wide=False) == (
        "TIME                  VERDICT  FROM        TO           PORT      CONNS  PACKETS  BYTES"
        "  DECIDED BY\n"
        "2027-01-15T08:00:00Z  Deny     shop/web-*  host:node-1  5432/tcp  3      3        160"
        "    tier default, NetworkPolicy shop/db, ingress[2]\n"
    )


def test_a_wide_table_says_where_which_service_and_what_is_pending() -> None:
    row = text.row(flow(LOCKED), wide=True)
    assert row[9:] == (
        "destination", "shop/db:5432",
        "Allow tier default, StagedNetworkPolicy shop/soon, rule[0]", "app=web", "-",
    )  # fmt: skip


def test_who_decided() -> None:
    assert text.decided_by(flow(ENDED)) == (
        "end of tier default, where NetworkPolicy shop/db selects the pod"
    )
    assert text.decided_by(flow(PROFILE, action=Action.ALLOW)) == "Profile kns.shop, ingress[0]"
    assert text.decided_by(flow(PROFILE)) == "-"


def test_names_of_others_stay_in_their_line() -> None:
    assert "\n" not in text.followed(flow(LOCKED, name="a\nDeny\x1b[31m"))
    assert text.table([flow(LOCKED, name="a\nb")], wide=True).count("\n") == 2


def test_what_was_left_out_is_said() -> None:
    assert text.summary(1, 1, [flow(LOCKED)]) == ""
    assert text.summary(1, 9, [flow(LOCKED)]).startswith("1 of 9 flows are shown (1 denied)")
