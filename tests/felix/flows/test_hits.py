"""HIT-1: what rules said, as the policies and rules that an operator wrote."""

from __future__ import annotations

from felix.calc.policy import PolicyEngine
from felix.flows.hits import NO_PROFILE, NO_RULE, PROFILES, Hits, policy_of
from felix.rules import nflog_prefix
from felix.rules.nflog_prefix import Verdict
from flows.record import Action, Hit, PolicyKind
from libcalico.model import ResourceKey
from tests.felix.policy_objects import (
    ME,
    allow,
    deny,
    global_policy,
    namespace,
    pod,
    pod_key,
    policy,
    rule,
    tier,
)

POD = pod_key("a")


def engine() -> PolicyEngine:
    made = PolicyEngine(ME)
    made.start()
    both = {"types": ["Ingress", "Egress"]}
    for key, value in (
        namespace("default"),
        pod("a", "10.0.0.1", {"app": "a"}),
        pod("b", "10.0.0.2", {"app": "b"}),
        tier("first", 1.0),
        tier("open", 2.0, "Pass"),
        global_policy("gate", tier="first", order=1, ingress=[rule("Pass")], **both),
        global_policy("seldom", tier="open", ingress=[allow(protocol="SCTP")], **both),
        # Each rule becomes two: a named port has no number.
        policy("in", ingress=[rule("Log"), deny(protocol="UDP"), allow()], selector="app == 'a'"),
        policy("others", ingress=[allow()], selector="app == 'b'"),
        policy("knp.default.k8s", ingress=[allow()], selector="app == 'a'", order=2000),
        policy("x" * 90, ingress=[allow()], selector="app == 'a'", order=3000),
    ):
        made.update(key, value)
    made.flush()
    return made


def key(name: str, kind: str = "NetworkPolicy") -> ResourceKey:
    return ResourceKey(kind, name, "default" if kind == "NetworkPolicy" else "")


def test_a_trace_names_policies_rules_and_ends_of_tiers() -> None:
    hits = Hits(engine())
    passed = nflog_prefix.by_rule(
        key("gate", "GlobalNetworkPolicy"), 0, ingress=True, verdict=Verdict.PASSED
    )
    end = nflog_prefix.by_tier("open", ingress=True, verdict=Verdict.PASSED)
    allowed = nflog_prefix.by_rule(key("in"), 2, ingress=True, verdict=Verdict.ALLOWED)
    trace = hits.enforced([passed, end, allowed], POD)
    seldom = Hit(
        PolicyKind.GLOBAL_NETWORK_POLICY, "open", "", "seldom", Action.UNSPECIFIED, 0, NO_RULE
    )
    assert trace == (
        Hit(PolicyKind.GLOBAL_NETWORK_POLICY, "first", "", "gate", Action.PASS, 0, 0),
        Hit(PolicyKind.END_OF_TIER, "open", "", "", Action.PASS, 1, NO_RULE, seldom),
        Hit(PolicyKind.CALICO_NETWORK_POLICY, "default", "default", "in", Action.ALLOW, 2, 2),
    )


def test_the_end_of_a_tier_names_the_last_policy_in_it() -> None:
    hits = Hits(engine())
    (hit,) = hits.enforced(["DPE|first"], POD)
    assert (hit.kind, hit.tier, hit.action, hit.rule_index) == (
        PolicyKind.END_OF_TIER, "first", Action.DENY, NO_RULE,
    )  # fmt: skip
    assert hit.trigger is not None
    assert hit.trigger.name == "gate"


def test_profiles_and_the_want_of_one() -> None:
    hits = Hits(engine())
    assert hits.enforced(["ARI0|kns.default"], POD) == (
        Hit(PolicyKind.PROFILE, PROFILES, "", "kns.default", Action.ALLOW, 0, 0),
    )
    assert hits.enforced(["DRI"], POD) == (
        Hit(PolicyKind.PROFILE, PROFILES, "", NO_PROFILE, Action.DENY, 0, NO_RULE),
    )
    assert not hits.judges("ARI0|kns.other", POD)


def test_policies_of_other_endpoints_are_none_of_this_one() -> None:
    hits = Hits(engine())
    others = nflog_prefix.by_rule(key("others"), 0, ingress=True, verdict=Verdict.ALLOWED)
    assert not hits.judges(others, POD)
    assert hits.judges(others, pod_key("b"))
    assert hits.enforced([others], POD) == ()
    for foreign in ("hello", "DPI|nowhere"):
        assert not hits.judges(foreign, POD)


def test_a_policy_that_is_gone_keeps_its_name() -> None:
    (hit,) = Hits(engine()).enforced(["DPI4|np/default/gone"], POD)
    assert (hit.kind, hit.namespace, hit.name, hit.rule_index) == (
        PolicyKind.CALICO_NETWORK_POLICY, "default", "gone", 4,
    )  # fmt: skip


def test_a_name_that_is_too_long_is_found_by_its_digest() -> None:
    prefix = nflog_prefix.by_rule(key("x" * 90), 0, ingress=True, verdict=Verdict.ALLOWED)
    assert "_" in prefix
    (hit,) = Hits(engine()).enforced([prefix], POD)
    assert (hit.name, hit.action) == ("x" * 90, Action.ALLOW)


def test_policies_of_kubernetes_are_called_as_there() -> None:
    assert policy_of(key("knp.default.web")) == (PolicyKind.KUBERNETES_NETWORK_POLICY, "web")
    cluster = key("kcnp.web", "GlobalNetworkPolicy")
    assert policy_of(cluster) == (PolicyKind.CLUSTER_NETWORK_POLICY, "web")
    staged = ResourceKey("StagedKubernetesNetworkPolicy", "web", "default")
    assert policy_of(staged) == (PolicyKind.STAGED_KUBERNETES_NETWORK_POLICY, "web")
    assert policy_of(key("web")) == (PolicyKind.CALICO_NETWORK_POLICY, "web")


def test_what_changed_is_seen_once_it_was_forgotten() -> None:
    made = engine()
    hits = Hits(made)
    prefix = nflog_prefix.by_rule(key("in"), 1, ingress=True)
    assert hits.enforced([prefix], POD)[0].rule_index == 1
    made.update(*policy("in", ingress=[allow(), deny()], selector="app == 'b'"))
    made.flush()
    assert hits.judges(prefix, POD)
    hits.forget()
    assert not hits.judges(prefix, POD)
