"""PCN-1: packets by the policy that decided."""

from __future__ import annotations

from felix.flows import policy_counts
from felix.flows.policy_counts import PolicyCounts
from flows.record import (
    Action,
    Counts,
    End,
    EndKind,
    Flow,
    Hit,
    Key,
    PolicyKind,
    Reporter,
    Trace,
)
from libcalico.process import prometheus_text


def flow(*hits: Hit, packets: int = 3, action: Action = Action.DENY) -> Flow:
    source, destination = (End(EndKind.WORKLOAD, name, "shop") for name in ("a", "b"))
    key = Key(source, destination, 80, "tcp", Reporter.DESTINATION, action, trace=Trace(hits))
    return Flow(key, 0, 15, Counts(packets_in=packets, packets_out=1))


def rule(name: str, action: Action = Action.DENY) -> Hit:
    return Hit(PolicyKind.CALICO_NETWORK_POLICY, "default", "shop", name, action)


def page(counts: PolicyCounts) -> str:
    return prometheus_text.text(counts.figures())


def test_the_last_hit_decides_and_an_end_of_tier_names_its_policy() -> None:
    counts = PolicyCounts()
    counts.add([flow(rule("first", Action.PASS), rule("web")), flow(rule("web"))])
    end = Hit(PolicyKind.END_OF_TIER, "default", "", "", Action.DENY, trigger=rule("last"))
    counts.add([flow(end), flow(action=Action.ALLOW)])
    lines = page(counts).splitlines()
    name = policy_counts.METRIC
    assert lines[1] == f"# TYPE {name} counter"
    assert lines[2] == (
        f'{name}{{kind="calico_network_policy",tier="default",policy_namespace="shop",'
        'policy="web",action="deny",direction="ingress"} 8.0'
    )
    assert 'kind="end_of_tier",tier="default",policy_namespace="shop",policy="last"' in lines[3]
    assert 'kind="unknown"' in lines[4]
    assert 'action="allow"' in lines[4]


def test_policies_beyond_the_limit_are_counted_together() -> None:
    counts = PolicyCounts()
    number = policy_counts.MOST + 5
    counts.add(flow(rule(f"p{each}")) for each in range(number))
    lines = [line for line in page(counts).splitlines() if not line.startswith("#")]
    assert len(lines) == policy_counts.MOST + 1
    assert sum(float(line.rpartition(" ")[2]) for line in lines) == 4 * number
