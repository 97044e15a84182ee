"""A staged policy through a real datastore: counted and named, and nothing of it in the kernel."""

from __future__ import annotations

import pytest

from tests.felix.world import World
from tests.support.patience import wait_for


@pytest.mark.promise("F-77")
def test_a_staged_policy_is_counted_and_nothing_is_programmed(world: World) -> None:
    world.add_pod("s", "cali0000000000e", "10.65.0.30")
    wait_for(lambda: world.metric("muslin_felix_endpoints_in_force") >= 1)
    here = world.metric("muslin_felix_endpoints_in_force")
    before = {name: world.metric(name) for name in WRITES}
    spec = {"selector": "all()", "types": ["Ingress", "Egress"], "ingress": [{"action": "Deny"}]}
    world.put("stagedglobalnetworkpolicies", "shut", "StagedGlobalNetworkPolicy", spec)
    wait_for(lambda: world.metric("muslin_felix_staged_policies") == 1)
    assert world.metric("muslin_felix_staged_policies_here") == 1
    assert world.metric("muslin_felix_staged_matches") == here
    assert world.metric("felix_active_local_policies") == 0
    # One that is broken is named, not applied.
    broken = {"selector": "a = b", "ingress": [{"action": "Deny"}]}
    world.put("stagedglobalnetworkpolicies", "broken", "StagedGlobalNetworkPolicy", broken)
    wait_for(lambda: world.metric("muslin_felix_policy_conditions") == 1)
    assert {name: world.metric(name) for name in WRITES} == before


WRITES = ("muslin_felix_rule_renders_total", "muslin_felix_ipset_writes_total")
