"""Near misses as plain values, for JSON.

Tested in tests/calicoctl/test_explain.py, tests/felix/explain/misses/test_near.py.
"""

from __future__ import annotations

from felix.explain.misses.faults import NearMiss


def miss_tree(miss: NearMiss) -> dict[str, object]:
    """One near miss: station, policy, rule, and each clause that did not match."""
    key = miss.policy
    return {
        "direction": miss.direction,
        "of": miss.of,
        "tier": miss.tier,
        "policy": {"kind": key.kind, "namespace": key.namespace, "name": key.name},
        "rule": miss.rule,
        "action": miss.action,
        "missed": [
            {
                "field": fault.field,
                "clause": fault.clause,
                "actual": fault.actual,
                "label": fault.label or None,
                "hint": fault.hint or None,
            }
            for fault in miss.faults
        ],
    }
