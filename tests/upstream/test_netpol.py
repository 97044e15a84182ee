"""Kubernetes' end-to-end specs of NetworkPolicy, on both datastores and both back ends."""

from __future__ import annotations

import pytest

from tests.upstream.clusters import HOMES, Home, backends
from tests.upstream.suites import POLICY, Result, check, check_whole

SUITE = POLICY
on_every = pytest.mark.parametrize("upstream_home", list(HOMES), indirect=True, scope="package")


@on_every
def test_spec(outcome: Result) -> None:
    check(outcome)


@on_every
def test_the_suite_was_whole(told_of_all: dict[str, Result]) -> None:
    check_whole(SUITE, told_of_all)


@on_every
def test_the_rules_are_in_the_back_end_that_is_meant(upstream_home: Home) -> None:
    """felix was told nothing: it follows kube-proxy."""
    wanted = HOMES[upstream_home.name].backend
    assert backends(upstream_home.world) == {"node1": wanted, "node2": wanted}
