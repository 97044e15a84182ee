"""The conformance tests of ClusterNetworkPolicy, on both back ends."""

from __future__ import annotations

import pytest

from tests.upstream.clusters import OF_KUBERNETES
from tests.upstream.suites import CLUSTER_POLICIES, Result, check, check_whole

SUITE = CLUSTER_POLICIES
on_both = pytest.mark.parametrize("upstream_home", OF_KUBERNETES, indirect=True, scope="package")


@on_both
def test_spec(outcome: Result) -> None:
    check(outcome)


@on_both
def test_the_suite_was_whole(told_of_all: dict[str, Result]) -> None:
    check_whole(SUITE, told_of_all)
