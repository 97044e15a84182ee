"""What of a turn goes before which: every case of the table in `felix.dataplane.turn.order`."""

from __future__ import annotations

from itertools import product

from felix.dataplane.turn.order import Order, order


def test_rules_that_are_written_hold_up_nothing() -> None:
    for applied, exposed, unguarded in product((False, True), repeat=3):
        given = order(written=True, applied=applied, exposed=exposed, unguarded=unguarded)
        assert given is Order.WRITTEN


def test_rules_go_beside_links_and_routes_only_where_no_packet_could_meet_others() -> None:
    cases = list(product((False, True), repeat=3))
    beside = [
        (applied, exposed, unguarded)
        for applied, exposed, unguarded in cases
        if order(written=False, applied=applied, exposed=exposed, unguarded=unguarded)
        is Order.BESIDE
    ]
    assert beside == [(True, False, False)]
    first = [
        order(written=False, applied=applied, exposed=exposed, unguarded=unguarded)
        for applied, exposed, unguarded in cases
        if (applied, exposed, unguarded) not in beside
    ]
    assert set(first) == {Order.RULES_FIRST}
