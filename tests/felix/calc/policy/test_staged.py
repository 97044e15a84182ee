"""Staged policies: resolved, counted, explained; nothing that is told depends on them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.policy_model import Verb
from libcalico.conversion.network_policy import network_policy
from libcalico.model import (
    ResourceKey,
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    StagedNetworkPolicy,
)
from tests.felix.policy_objects import (
    ME,
    Object,
    World,
    allow,
    deny,
    global_policy,
    host,
    host_key,
    namespace,
    pod,
    pod_key,
    policy,
    tier,
)
from tests.size import examples

HERE = (namespace("default"), pod("a", "10.0.0.1", {"app": "a"}), pod("b", "10.0.0.2"))
ELSEWHERE = pod("c", "10.0.0.3", {"app": "a"}, node="n2")


def staged(original: Object, action: str = "Set") -> Object:
    """The staged form of a policy."""
    key, value = original
    tree = msgspec.to_builtins(value)
    tree["kind"] = f"Staged{key.kind}"
    spec = tree.setdefault("spec", {})
    if action == "Delete":
        spec.clear()
    spec["stagedAction"] = action
    types: dict[str, Any] = {
        "NetworkPolicy": StagedNetworkPolicy,
        "GlobalNetworkPolicy": StagedGlobalNetworkPolicy,
    }
    resource = msgspec.convert(tree, types[key.kind])
    return ResourceKey(f"Staged{key.kind}", key.name, key.namespace), resource


def kubernetes(name: str, spec: dict[str, Any]) -> Object:
    tree = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    key = ResourceKey("StagedKubernetesNetworkPolicy", name, "default")
    return key, msgspec.convert(tree, StagedKubernetesNetworkPolicy)


@pytest.mark.promise("F-77")
def test_nothing_is_told_of_a_staged_policy_and_its_endpoints_are_counted() -> None:
    world = World(*HERE, ELSEWHERE)
    rules = [deny(source={"selector": "app == 'x'"})]
    key, value = staged(policy("np", selector="app == 'a'", ingress=rules))
    assert not world.put((key, value))
    found = world.engine.staged[key]
    assert found.endpoints == 1
    assert found.target == ResourceKey("NetworkPolicy", "np", "default")
    assert found.resolved is not None
    assert [rule.verb for rule in found.resolved.ingress] == [Verb.DENY]
    assert len(found.needs) == 1
    assert not world.engine.sets
    figures = world.engine.figures()
    assert (figures["staged_policies"], figures["staged_matches"]) == (1, 1)
    assert (figures["policies"], figures["active_policies"]) == (0, 0)
    assert not world.put(pod("d", "10.0.0.4", {"app": "a"})).policies
    assert world.engine.figures()["staged_matches"] == 2
    world.remove(pod_key("d"), key)
    figures = world.engine.figures()
    assert (figures["staged_policies"], figures["staged_matches"]) == (0, 0)
    assert not world.engine.staged


def test_what_came_before_the_first_staged_policy_counts_too() -> None:
    world = World(*HERE, namespace("default", team="x"))
    key, value = staged(global_policy("g", namespaceSelector="team == 'x'"))
    world.put((key, value))
    assert world.engine.staged[key].endpoints == 2
    world.put(namespace("default", team="y"))
    assert world.engine.staged[key].endpoints == 0


def test_stages_count_host_endpoints_only() -> None:
    world = World(*HERE, host("ours", "eth0"))
    key, value = staged(global_policy("g", doNotTrack=True, applyOnForward=True))
    world.put((key, value))
    assert world.engine.staged[key].endpoints == 1
    found = world.engine.would_be(host_key("ours"))
    assert found is not None
    assert [view.ingress for view in found.untracked] == [(key,)]


def test_what_a_staged_policy_would_not_get_is_a_condition() -> None:
    world = World(*HERE)
    bad, value = staged(policy("np", selector="app ="))
    world.put((bad, value))
    assert "spec.selector" in world.engine.conditions[bad]
    assert world.engine.staged[bad].problem == world.engine.conditions[bad]
    world.remove(bad)
    assert not world.engine.conditions


def test_a_kubernetes_policy_is_converted() -> None:
    block = {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}
    rule = {
        "from": [{"podSelector": {}}, {"ipBlock": block}],
        "ports": [{"port": "http"}, {"protocol": "UDP", "port": 53}],
    }
    spec = {
        "podSelector": {"matchLabels": {"app": "a"}},
        "policyTypes": ["Ingress"],
        "ingress": [rule],
    }
    key, value = kubernetes("k", spec)
    world = World(*HERE, (key, value))
    found = world.engine.staged[key]
    assert found.target == ResourceKey("NetworkPolicy", "knp.default.k", "default")
    assert (found.endpoints, found.problem) == (1, "")
    # It becomes what the enforced one of the same text becomes.
    tree = {"metadata": {"name": "k", "namespace": "default"}, "spec": spec}
    converted, _ = network_policy(tree)
    enforced = World(*HERE, (found.target, converted)).told.policies[found.target]
    assert found.resolved is not None
    assert (found.resolved.ingress, found.resolved.egress) == (enforced.ingress, enforced.egress)
    world.put(kubernetes("k", {"podSelector": {"matchLabels": {"app": "a", "b": "c d"}}}))
    assert "would not be converted" in world.engine.conditions[key]


def test_what_would_be_is_what_is_once_it_is_in_force() -> None:
    now = policy("np", selector="app == 'a'", order=5, ingress=[allow()])
    other = policy("other", order=4, ingress=[allow()])
    then = policy("np", selector="app == 'a'", order=1, ingress=[deny()], tier="first")
    world = World(*HERE, tier("first", 1), now, other)
    key, value = staged(then)
    world.put((key, value))
    told = world.engine.would_be(pod_key("a"))
    world.remove(key)
    world.put(then)
    after = world.told.endpoints[pod_key("a")]
    assert told is not None
    names = [(v.name, [k.name for k in v.ingress], v.ends_in_deny) for v in told.tiers]
    assert names == [(v.name, [k.name for k in v.ingress], v.ends_in_deny) for v in after.tiers]
    assert told.tiers[0].ingress == (key,)
    assert told.profiles == after.profiles


def test_a_deletion_takes_its_target_away_and_others_do_nothing() -> None:
    now = policy("np", ingress=[allow()])
    world = World(*HERE, now)
    before = world.engine.would_be(pod_key("a"))
    assert before == world.told.endpoints[pod_key("a")]
    for action in ("Ignore", "Learn"):
        world.put(staged(now, action))
        assert world.engine.would_be(pod_key("a")) == before
        assert not world.engine.conditions
    world.put(staged(now, "Delete"))
    after = world.engine.would_be(pod_key("a"))
    assert after is not None
    assert not after.tiers
    world.put(staged(now, "Burn"))
    assert "spec.stagedAction: 'Burn'" in world.engine.conditions[staged(now)[0]]
    assert world.engine.would_be(pod_key("a")) == before


def test_an_endpoint_that_is_not_here_has_nothing() -> None:
    world = World(*HERE, ELSEWHERE, staged(policy("np")))
    assert world.engine.would_be(pod_key("c")) is None


APPS = st.sampled_from(["a", "b", "c"])
policies = st.builds(
    lambda name, app, order, action: policy(
        name, selector=f"app == '{app}'", order=order, types=["Ingress"], ingress=[action]
    ),
    st.sampled_from(["one", "two", "three"]),
    APPS,
    st.sampled_from([None, 1, 2]),
    st.sampled_from([allow(), deny()]),
)
steps = st.one_of(
    policies,
    st.builds(staged, policies, st.sampled_from(["Set", "Set", "Delete", "Learn"])),
    st.builds(lambda app, node: pod("p", "10.0.0.9", {"app": app}, node=node), APPS,
              st.sampled_from([ME, "n2"])),
)  # fmt: skip


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.tuples(steps, st.booleans()), max_size=12))
def test_what_is_told_does_not_depend_on_them_and_what_would_be_is_true(
    history: list[tuple[Object, bool]],
) -> None:
    base = (namespace("default"), pod("q", "10.0.0.8", {"app": "a"}))
    with_staged, without = World(*base), World(*base)
    state: dict[ResourceKey, Any] = {}
    for (key, value), stays in history:
        one = value if stays else None
        state.pop(key, None)
        if one is not None:
            state[key] = one
        changes = with_staged.put((key, one))
        if key.kind.startswith("Staged"):
            assert not changes
        else:
            without.put((key, one))
    assert with_staged.told == without.told
    # In force: staged ones in place of their targets.
    then = dict(state)
    for key, value in state.items():
        if not key.kind.startswith("Staged"):
            continue
        target = ResourceKey("NetworkPolicy", key.name, key.namespace)
        if value.spec.stagedAction in ("Set", "Delete"):
            then.pop(target, None)
        if value.spec.stagedAction == "Set":
            fields = {f: getattr(value.spec, f) for f in ("selector", "order", "types", "ingress")}
            then[target] = policy(key.name, **fields)[1]
    applied = World(*base, *((k, v) for k, v in then.items() if not k.kind.startswith("Staged")))
    for key, endpoint in applied.told.endpoints.items():
        found = with_staged.engine.would_be(key)
        assert found is not None
        assert [[k.name for k in v.ingress] for v in found.tiers] == [
            [k.name for k in v.ingress] for v in endpoint.tiers
        ]
