"""Causes that are rules: of a policy, of the end of a tier, of others. Pure.

Tested in tests/calicoctl/test_tracing_cause.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from calicoctl.tracing.cause import Cause
from calicoctl.tracing.naming import Hit
from calicoctl.tracing.story import Stage


def ruled(way: tuple[Stage, ...]) -> Iterator[Cause]:
    """The rule that ended a way, if one did."""
    for stage in way:
        denying = [hit for hit in stage.hits if hit.denies]
        if denying:
            yield rule_cause(denying[-1], stage)


def rule_cause(hit: Hit, stage: Stage) -> Cause:
    """What a rule that denies says."""
    where = f"{hit.place} on {hit.node}"
    if not hit.ours:
        text = f"a rule that is not Calico's drops it: {where}: {hit.said or 'no text is known'}"
        return Cause("foreign-rule", text, hit.node, "remove or change that rule")
    if hit.policy:
        kind = "policy" if not hit.policy.startswith("Profile") else "profile"
        rule = f", {hit.field}" if hit.field else ""
        tier = f"tier {hit.tier}, " if hit.tier else ""
        return Cause(kind, f"denied by {tier}{hit.policy}{rule} ({where})", hit.node,
                     f"calicoctl explain rule {hit.rule.chain}:{hit.rule.number}")  # fmt: skip
    said = hit.said
    if "End of tier" in said:
        tier = said.partition("End of tier ")[2].partition(".")[0]
        text = f"no policy of tier {tier} allows it: end of the tier, {hit.title} ({where})"
        return Cause("end-of-tier", text, hit.node, "allow it in a policy that selects the pod")
    if "no profiles" in said:
        text = f"no policy selects the pod and no profile allows it, {hit.title} ({where})"
        return Cause("no-profile", text, hit.node)
    if "INVALID" in said or "ctstate" in said or _is_invalid_rule(hit):
        text = f"conntrack takes the packet for invalid: it knows no such connection ({where})"
        return Cause(
            "conntrack-invalid", text, hit.node, "look for another way of the first packet"
        )
    name = "untracked" if hit.rule.table == "raw" or hit.rule.chain.startswith("raw-") else "rule"
    return Cause(name, f"dropped by {where}: {hit.title} {said}".rstrip(), hit.node)


def _is_invalid_rule(hit: Hit) -> bool:
    # The second rule of a workload's chain, in both back ends (felix.rules.endpoints).
    endpoint = "cali-tw-" in hit.rule.chain or "cali-fw-" in hit.rule.chain
    return endpoint and hit.rule.number == 2 and not hit.rule.comment.partition(";")[2]
