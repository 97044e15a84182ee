"""The text of dispatch is kept rule by rule: a bin comes again with each endpoint in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from felix.dataplane.rules.iptables import MOST_TEXTS, Texts
from felix.rules.dispatch import Bins
from felix.rules.iptables import render_rules
from felix.rules.model import Drop, Goto, Rule


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=30))
def test_a_bin_that_is_rendered_again_and_again_has_the_text_of_a_new_one(
    story: list[tuple[bool, int]],
) -> None:
    texts, bins, there = Texts(), Bins(("cali",), Drop()), set[str]()
    for comes, number in story:
        name = f"cali{number:011d}"
        if comes is (name in there):
            continue
        (there.add if comes else there.discard)(name)
        for chain in bins.add(name) if comes else bins.remove(name)[0]:
            assert texts.of_bin(chain.rules) == render_rules(chain.rules)


def test_text_of_rules_that_nobody_asks_for_any_more_does_not_pile_up() -> None:
    texts = Texts()
    for number in range(2 * MOST_TEXTS):
        texts.of_bin((Rule(Goto(f"cali-fw-{number}")),))
    assert len(texts._lines) <= MOST_TEXTS
