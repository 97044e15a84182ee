"""The families of Cyclonus: 230 cases, each judged twice without packets and then with them.

What Kubernetes' words say of the objects (letter.py) is what the independent oracle says of the
converted ones (calico.py), and both are what TCP, UDP and SCTP do between all pods in a lab of two
nodes, on iptables and on nftables.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cyclonus import calico, letter
from tests.cyclonus.cluster import DOORS, START, Case, histories
from tests.cyclonus.families import COUNTS, families
from tests.cyclonus.world import Runner

CASES = families()
TITLES = [case.title for case in CASES]
PLACES = {"x/a": "0.1", "x/b": "1.1", "x/c": "0.2", "y/a": "1.2", "y/b": "0.3", "y/c": "1.3"}
PLACES |= {"z/a": "0.4", "z/b": "1.4", "z/c": "1.13", "x/d": "0.5", "w/a": "0.6"}
PLACES |= {"y-2/a": "1.6", "y-2/b": "0.7"}
ADDRESSES = {title: f"10.65.{rest}" for title, rest in PLACES.items()}


def test_the_families_are_whole() -> None:
    assert Counter(case.family for case in CASES) == COUNTS
    assert len(set(TITLES)) == len(CASES) == sum(COUNTS.values()) == 230


def test_the_cases_differ() -> None:
    """Two oracles that always agree on the same matrix would say little."""
    seen = {
        tuple(open_ for matrix in letter.matrices(cluster, ADDRESSES).values()
              for open_ in matrix.values())
        for case in CASES
        for cluster in histories(case)
        if set(cluster.pods) == set(START.pods)
    }  # fmt: skip
    assert len(seen) > 60


@pytest.mark.promise("M-117")
@pytest.mark.parametrize("family", COUNTS)
def test_two_oracles_agree(family: str) -> None:
    for case in CASES:
        if case.family != family:
            continue
        for number, cluster in enumerate(histories(case)):
            by_letter = letter.matrices(cluster, ADDRESSES)
            by_oracle = calico.matrices(cluster, ADDRESSES)
            for door in DOORS:
                assert by_letter[door] == by_oracle[door], f"{case.title} step {number} {door}"


@pytest.mark.promise("M-117", "F-67", "F-68")
@pytest.mark.parametrize("title", TITLES)
def test_packets_agree(runner: Runner, title: str) -> None:
    case = by_title(runner)[title]
    for number, cluster in enumerate(histories(case)):
        runner.become(cluster)
        expected = calico.matrices(cluster, runner.addresses)
        assert expected == letter.matrices(cluster, runner.addresses)
        runner.expect(expected, f"{title} step {number}")


def by_title(runner: Runner) -> dict[str, Case]:
    """The cases around the real address of z/c."""
    return {case.title: case for case in families(runner.addresses["z/c"])}
