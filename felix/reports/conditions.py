"""What of a node's dataplane is not as an operator would want it, object by object.

For the status file and so for `calicoctl node status`. Tested in tests/felix/dataplane/test_mtu.py,
test_policy_refused.py and test_repair.py, each where the condition belongs.
"""

from __future__ import annotations

from felix.dataplane.loop import Dataplane


def of_dataplane(plane: Dataplane) -> list[tuple[str, str]]:
    """(object, reason) of everything; the calculation's first."""
    calc, state = plane.calc, plane.state
    found = [(str(key), reason) for key, reason in calc.broken.items()]
    if calc.held_up:
        found.append(("ClusterInformation(default)", calc.held_up))
    for reasons in (calc.policy.conditions, plane.rules.degraded(), state.shadowed):
        found += [(str(key), reason) for key, reason in reasons.items()]
    found += list(state.failures.items())
    found += plane.background.conditions()
    found += [
        (f"route {dst}", "another program's route of the same destination and metric stands")
        for dst in plane.routing.routes.conflicts
    ]
    found += [
        (
            f"route {route.dst}",
            f"one of protocol {route.protocol} and metric {route.metric} came"
            " back after it was removed, and goes before ours: is Calico still running?",
        )
        for route in plane.routing.stale.living.values()
    ]
    learned = plane.routing.off_node.learned
    found += [(f"path {p}", reason) for p, reason in learned.complaints().items()]
    links = plane.links
    found += links.tunnels.problems
    found += links.offload.problems(calc.node)
    found += calc.cluster.complaints().items()
    found += calc.unsettled_claims.items()
    found += calc.poolless.items()
    too_large = links.mtu.too_large(plane.view, state.active)
    found += [
        (f"node {calc.node}", f"mtu: {text}") for text in (links.mtu.problem, too_large) if text
    ]
    refused = plane.encapsulation().refused
    return found + [(f"IPPool({name})", reason) for name, reason in refused.items()]
