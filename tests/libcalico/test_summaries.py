"""Quantiles of the last minutes, beside those of all values sorted."""

from __future__ import annotations

import math
import random
from functools import reduce
from operator import add

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from libcalico.process.prometheus_text import text
from libcalico.process.summaries import (
    LARGEST,
    QUANTILES,
    SLICE_SECONDS,
    SLICES,
    SMALLEST,
    Summary,
)
from tests.size import examples


class Clock:
    """Seconds as the test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def exact(values: list[float], quantile: float) -> float:
    return sorted(values)[math.ceil(quantile * len(values)) - 1]


@settings(max_examples=examples(100))
@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=300))
def test_a_quantile_is_right_within_a_twentieth(values: list[float]) -> None:
    summary = Summary()
    for value in values:
        summary.observe(value)
    found = summary.quantiles()
    assert list(found) == list(QUANTILES)
    for quantile in QUANTILES:
        assert found[quantile] == pytest.approx(exact(values, quantile), rel=0.05)
    # One after the other: `sum` of Python 3.12 and later makes up for what is rounded off.
    assert (summary.count, summary.total) == (len(values), reduce(add, values))


def test_what_is_older_than_ten_minutes_counts_in_the_sum_alone() -> None:
    clock = Clock()
    summary = Summary(clock)
    summary.observe(7.0)
    clock.now += SLICE_SECONDS * (SLICES - 1)
    summary.observe(1.0)
    assert summary.quantiles()[0.99] == pytest.approx(7.0, rel=0.05)
    clock.now += SLICE_SECONDS
    assert summary.quantiles()[0.99] == pytest.approx(1.0, rel=0.05)
    assert (summary.count, summary.total) == (2, 8.0)
    clock.now += 1e6
    assert all(map(math.isnan, summary.quantiles().values()))
    summary.observe(3.0)
    assert summary.quantiles()[0.5] == pytest.approx(3.0, rel=0.05)


def test_its_memory_is_bounded_for_all_values() -> None:
    summary = Summary(Clock())
    drawn = random.Random(1)
    for _ in range(20_000):
        summary.observe(10 ** drawn.uniform(-300, 300))
    for value in (0.0, -5.0, 1e-320, 1e308):
        summary.observe(value)
    (buckets,) = summary._slices
    assert len(buckets) <= LARGEST - SMALLEST + 2
    assert summary.count == 20_004


def test_zero_and_less_are_zero() -> None:
    summary = Summary()
    for value in (0.0, -1.0, 0.0, 4.0):
        summary.observe(value)
    assert summary.quantiles()[0.5] == 0.0
    assert summary.total == 3.0


def test_prometheus_reads_it() -> None:
    summary, empty = Summary(), Summary()
    summary.observe(2.0)
    page = text([summary.figure("wait", "Waits.", {"of": "a"}), empty.figure("none", "None.")])
    families = {one.name: one for one in text_string_to_metric_families(page)}
    wait = families["wait"]
    assert wait.type == "summary"
    labels = [sample.labels for sample in wait.samples if sample.name == "wait"]
    assert labels == [{"of": "a", "quantile": q} for q in ("0.5", "0.9", "0.99")]
    assert 'none{quantile="0.5"} NaN' in page
    assert {s.name: s.value for s in wait.samples}["wait_count"] == 1
