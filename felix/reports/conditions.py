"""The conditions of a node's dataplane: what is not as an operator would want it.

`calicoctl node status` shows them, from the status file. Tested in
tests/felix/dataplane/test_mtu.py, test_policy_refused.py and test_repair.py, each where the
condition belongs.
"""

from __future__ import annotations

from felix.dataplane.loop import Dataplane


def of_dataplane(plane: Dataplane) -> list[tuple[str, str]]:
    """Every condition as (object, reason), the calculation's first."""
    calc, state = plane.calc, plane.state
    conditions = [(str(key), reason) for key, reason in calc.broken.items()]
    if calc.held_up:
        conditions.append(("ClusterInformation(default)", calc.held_up))
    for reasons in (calc.policy.conditions, plane.rules.degraded(), state.shadowed):
        conditions += [(str(key), reason) for key, reason in reasons.items()]
    conditions += list(state.failures.items())
    conditions += plane.background.conditions()
    conditions += [
        (f"route {dst}", "another program's route of the same destination and metric stands")
        for dst in plane.routing.routes.conflicts
    ]
    conditions += [
        (
            f"route {route.dst}",
            f"one of protocol {route.protocol} and metric {route.metric} came"
            " back after it was removed, and goes before ours: is Calico still running?",
        )
        for route in plane.routing.stale.living.values()
    ]
    conditions += [
        (f"path {p}", reason) for p, reason in plane.routing.off_node.learned.complaints().items()
    ]
    links = plane.links
    conditions += links.tunnels.problems
    conditions += links.offload.problems(calc.node)
    conditions += [(f"interface {name}", text) for name, text in links.shaping.problems.items()]
    conditions += calc.cluster.complaints().items()
    conditions += calc.unsettled_claims.items()
    conditions += calc.poolless.items()
    too_large = links.mtu.too_large(plane.view, state.active)
    conditions += [
        (f"node {calc.node}", f"mtu: {text}") for text in (links.mtu.problem, too_large) if text
    ]
    refused = plane.encapsulation().refused
    return conditions + [(f"IPPool({name})", reason) for name, reason in refused.items()]
