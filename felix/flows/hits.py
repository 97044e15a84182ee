"""The policy trace of a flow: from what rules said, or from a walk, to hits in Goldmane's terms.

The kernel's rules say which resolved rules acted (`felix.rules.nflog_prefix`); a hit names the rule
that the operator wrote. A packet may meet other endpoints' policies on its way (a host endpoint's
forward policy): a hit counts only where the policy is one of the workload's own.

Invariant:
  HIT-1  A trace names the rules that the packet met, in their order, and nothing else: what is
         not the workload's own leaves no hit, and what is gone meanwhile keeps its name.
Tested in tests/felix/flows/test_hits.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import EndpointPolicy, TierView
from felix.explain.walk import By, Ruling
from felix.explain.written import written
from felix.rules import names, nflog_prefix
from felix.rules.nflog_prefix import Said, Verdict
from flows.record import Action, Hit, PolicyKind
from libcalico.conversion.cluster_policy import PREFIX as CLUSTER_PREFIX
from libcalico.conversion.network_policy import POLICY_PREFIX
from libcalico.model import ResourceKey

NO_RULE = -1
"""The rule index of an end of tier, and of a profile that no pod has: Calico's."""
NO_PROFILE = "__NO_MATCH__"
"""The name of the profile that denied what no profile allowed, as Calico calls it."""
PROFILES = "__PROFILE__"
"""The tier that Calico says profiles are in."""
ACTIONS = {
    Verdict.ALLOWED: Action.ALLOW,
    Verdict.DENIED: Action.DENY,
    Verdict.PASSED: Action.PASS,
}
_KINDS = {
    "NetworkPolicy": PolicyKind.CALICO_NETWORK_POLICY,
    "GlobalNetworkPolicy": PolicyKind.GLOBAL_NETWORK_POLICY,
    "StagedNetworkPolicy": PolicyKind.STAGED_NETWORK_POLICY,
    "StagedGlobalNetworkPolicy": PolicyKind.STAGED_GLOBAL_NETWORK_POLICY,
    "StagedKubernetesNetworkPolicy": PolicyKind.STAGED_KUBERNETES_NETWORK_POLICY,
    "Profile": PolicyKind.PROFILE,
}
_SHORT = {"np": "NetworkPolicy", "gnp": "GlobalNetworkPolicy"}
_NONE = EndpointPolicy()


def policy_of(key: ResourceKey) -> tuple[PolicyKind, str]:
    """Kind and name of a policy for people: Kubernetes' own as they are called there."""
    if key.kind == "NetworkPolicy" and key.name.startswith(POLICY_PREFIX):
        return PolicyKind.KUBERNETES_NETWORK_POLICY, key.name.removeprefix(POLICY_PREFIX)
    if key.kind == "GlobalNetworkPolicy" and key.name.startswith(CLUSTER_PREFIX):
        return PolicyKind.CLUSTER_NETWORK_POLICY, key.name.removeprefix(CLUSTER_PREFIX)
    return _KINDS.get(key.kind, PolicyKind.UNSPECIFIED), key.name


class Hits:
    """The hits of one calculation. `forget` after a change of policies."""

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = engine
        self._read: dict[tuple[str, ResourceKey], Hit | None] = {}

    def forget(self) -> None:
        """Look up everything anew."""
        self._read.clear()

    def judges(self, prefix: str, endpoint: ResourceKey) -> bool:
        """Whether a rule that said this is one of the endpoint's."""
        return self._hit(prefix, endpoint) is not None

    def enforced(self, prefixes: Sequence[str], endpoint: ResourceKey) -> tuple[Hit, ...]:
        """The trace of a packet whose rules said this, in order."""
        hits = (self._hit(prefix, endpoint) for prefix in prefixes)
        return numbered([hit for hit in hits if hit is not None])

    def walked(self, ruling: Ruling, policy: EndpointPolicy, *, ingress: bool) -> tuple[Hit, ...]:
        """The trace of a walk (`felix.explain.walk`) through the lists `policy`."""
        hits: list[Hit] = []
        steps = [step for step in ruling.steps if step.did == "pass" and step.tier]
        for tier in policy.tiers:
            passing = next((step for step in steps if step.tier == tier.name), None)
            if passing is not None:
                hits.append(self._by(passing.policy, tier.name, Action.PASS, passing.rule, ingress))
            elif ruling.tier == tier.name or not _policies(tier, ingress):
                continue
            elif not tier.ends_in_deny:
                hits.append(self._end(tier, Action.PASS, ingress))
            if ruling.tier == tier.name:
                break
        action = Action.ALLOW if ruling.allowed else Action.DENY
        if ruling.by is By.TIER_END:
            tier = next(each for each in policy.tiers if each.name == ruling.tier)
            hits.append(self._end(tier, Action.DENY, ingress))
        elif ruling.policy is not None:
            hits.append(self._by(ruling.policy, ruling.tier, action, ruling.rule, ingress))
        else:
            hits.append(Hit(PolicyKind.PROFILE, PROFILES, "", NO_PROFILE, action, 0, NO_RULE))
        return numbered(hits)

    def _hit(self, prefix: str, endpoint: ResourceKey) -> Hit | None:
        which = (prefix, endpoint)
        if which not in self._read:
            said = nflog_prefix.read(prefix)
            self._read[which] = None if said is None else self._look_up(prefix, said, endpoint)
        return self._read[which]

    def _look_up(self, prefix: str, said: Said, endpoint: ResourceKey) -> Hit | None:
        policy = self._engine.endpoint(endpoint) or _NONE
        action, ingress = ACTIONS[said.verdict], said.ingress
        if said.profile:
            if said.rule is None:
                return Hit(PolicyKind.PROFILE, PROFILES, "", NO_PROFILE, action, 0, NO_RULE)
            for name in policy.profiles:
                key = ResourceKey("Profile", name)
                if self._says(key, said, prefix):
                    return self._by(key, "", action, said.rule, ingress)
            return None
        for tier in policy.tiers:
            keys = _policies(tier, ingress)
            if said.rule is None:
                end = nflog_prefix.by_tier(tier.name, ingress=ingress, verdict=said.verdict)
                if keys and end == prefix:
                    return self._end(tier, action, ingress)
                continue
            for key in keys:
                if self._says(key, said, prefix):
                    return self._by(key, tier.name, action, said.rule, ingress)
        return None if self._is_there(said) else _gone(said, action)

    def _is_there(self, said: Said) -> bool:
        """Whether the policy of a prefix exists: then it is another endpoint's."""
        if said.rule is None or said.name.startswith("_"):
            return True
        return any(names.policy_id(key) == said.name for key in self._engine.policies)

    @staticmethod
    def _says(key: ResourceKey, said: Said, prefix: str) -> bool:
        assert said.rule is not None
        if not said.name.startswith("_"):
            return nflog_prefix.rule_name(key) == said.name
        ingress, verdict = said.ingress, said.verdict
        return nflog_prefix.by_rule(key, said.rule, ingress=ingress, verdict=verdict) == prefix

    def _by(
        self, key: ResourceKey, tier: str, action: Action, rule: int | None, ingress: bool
    ) -> Hit:
        kind, name = policy_of(key)
        index = NO_RULE if rule is None else rule
        if rule is not None:
            engine = self._engine
            stored, services = engine.stored(key), engine.knows_services
            source = written(key, stored, rule, ingress=ingress, services=services)
            index = rule if source is None else source[0]
        where = PROFILES if kind is PolicyKind.PROFILE else tier
        return Hit(kind, where, key.namespace, name, action, 0, index)

    def _end(self, tier: TierView, action: Action, ingress: bool) -> Hit:
        last = _policies(tier, ingress)[-1]
        kind, name = policy_of(last)
        trigger = Hit(kind, tier.name, last.namespace, name, Action.UNSPECIFIED, 0, NO_RULE)
        return Hit(PolicyKind.END_OF_TIER, tier.name, "", "", action, 0, NO_RULE, trigger)


def numbered(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """The hits of one trace, each with its place in it."""
    return tuple(
        Hit(h.kind, h.tier, h.namespace, h.name, h.action, place, h.rule_index, h.trigger)
        for place, h in enumerate(hits)
    )


def _policies(tier: TierView, ingress: bool) -> tuple[ResourceKey, ...]:
    return tier.ingress if ingress else tier.egress


def _gone(said: Said, action: Action) -> Hit:
    """The hit of a policy that was deleted since: its prefix is all that is known."""
    short, _, rest = said.name.partition("/")
    namespace, _, name = rest.rpartition("/")
    kind, name = policy_of(ResourceKey(_SHORT.get(short, short), name, namespace))
    assert said.rule is not None
    return Hit(kind, "", namespace, name, action, 0, said.rule)
