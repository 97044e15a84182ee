"""INT-1, INT-2: what the kernel is told of nested networks, against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linux.nftables.expressions import Family
from linux.nftables.intervals import Intervals, Range, parse, render


@st.composite
def networks(draw: st.DrawFn) -> Range:
    """Networks that often lie in each other."""
    length = draw(st.integers(24, 32))
    first = draw(st.integers(0, 255)) >> (32 - length) << (32 - length)
    return first, first + (1 << 32 - length) - 1


def outermost(members: set[Range]) -> set[Range]:
    return {
        each
        for each in members
        if not any(
            other != each and other[0] <= each[0] and each[1] <= other[1] for other in members
        )
    }


@given(st.lists(st.tuples(st.booleans(), st.lists(networks(), max_size=6)), max_size=12))
def test_the_kernel_has_exactly_the_outermost(steps: list[tuple[bool, list[Range]]]) -> None:
    intervals = Intervals(4)
    members: set[Range] = set()
    kernel: set[Range] = set()
    for adding, changed in steps:
        if adding:
            members |= set(changed)
            going, coming = intervals.add(changed)
        else:
            members -= set(changed)
            going, coming = intervals.remove(changed)
        assert going <= kernel, "only what is there goes"
        assert not coming & (kernel - going), "nothing comes twice"
        kernel = kernel - going | coming
        assert kernel == outermost(members)
        assert intervals.covered() == members - kernel
        assert len(intervals) == len(members)


def test_a_wide_network_over_many_hosts_and_away_again() -> None:
    intervals = Intervals(4)
    hosts = [(n, n) for n in range(0, 200_000, 2)]
    intervals.add(hosts)
    whole = (0, (1 << 32) - 1)
    going, coming = intervals.add([whole])
    assert (going, coming) == (set(hosts), {whole})
    assert intervals.add([(7, 7)]) == (set(), set())
    going, coming = intervals.remove([whole])
    assert (going, coming) == ({whole}, {*hosts, (7, 7)})


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("10.0.0.0/26", 4), ("10.0.0.1", 4), ("0.0.0.0/0", 4), ("10.0.0.1-10.0.0.5", 4),
        ("fd00::/64", 6), ("::/0", 6), ("fd00::1", 6),
    ],
)  # fmt: skip
def test_spelling_there_and_back(text: str, family: Family) -> None:
    assert render(parse(text, family), family) == text


@pytest.mark.parametrize("text", ["10.0.0.0/40", "10.0.0", "fd00::1", "10.0.0.1-x", ""])
def test_nonsense_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is no network of IPv4"):
        parse(text, 4)
