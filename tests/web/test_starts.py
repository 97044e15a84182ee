"""Pods' starts."""

from __future__ import annotations

import pytest

from tests.web import world
from web.views.starts import NO_WORD, quantile, starts


def test_stages_and_the_slowest_first() -> None:
    shown = starts(world.facts())
    assert [(one.node, one.total) for one in shown.calls] == [("n2", 240.0), ("n2", 21.5)]
    stages = {one.name: one for one in shown.stages}
    assert list(stages) == ["whole call", "choose", "store", "wire", "felix"]
    assert (stages["store"].p50, stages["store"].p99, stages["store"].count) == (12.0, 230.0, 2)
    assert shown.missing == ""


def test_without_words_it_says_how_to_get_them() -> None:
    assert starts(world.facts(words={})).missing == NO_WORD
    assert "No DEL" in starts(world.facts(), "DEL").missing
    assert starts(world.facts(), node="n1").missing == NO_WORD


@pytest.mark.parametrize(("share", "value"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)])
def test_quantiles_are_values_that_were_measured(share: float, value: float) -> None:
    assert quantile([float(one) for one in range(1, 101)], share) == value
    assert quantile([], share) == 0.0
