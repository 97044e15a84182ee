"""Checks of the way to other nodes, by the probes of them. Pure.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from node.checks.check import Finding, bad, check, good, unknown
from node.checks.facts import Facts, Probe


def _some(probes: list[Probe]) -> str:
    listed = ", ".join(f"{one.node} {one.address}" for one in probes[:5])
    return f"{listed} and {len(probes) - 5} more" if len(probes) > 5 else listed


@check(
    "mtu-probe",
    required=True,
    cause="Small packets pass and full-size ones vanish: connections open and then hang.",
    fix="Make every interface and switch between the nodes carry the MTU, let ICMP `fragmentation"
    " needed` through, or lower the MTU of nodes and pods.",
)
def mtu_probe(facts: Facts) -> Finding:
    """A full-size packet that may not be fragmented reaches the other nodes."""
    heard = [one for one in facts.probes if one.small == "answer"]
    if not heard:
        return unknown("no other node answers echo requests" if facts.probes else "no other node")
    lost = [one for one in heard if one.full != "answer"]
    if lost:
        why = lost[0].full
        return bad(f"{lost[0].size} bytes with DF to {_some(lost)}: {why}")
    return good(f"{heard[0].size} bytes with DF, {len(heard)} node(s)")


@check(
    "nodes-reachable",
    required=False,
    cause="Without a way between the nodes there is none between their pods.",
    fix="Look at the routes, and let ICMP echo through if only that is filtered.",
)
def nodes_reachable(facts: Facts) -> Finding:
    """Other nodes answer echo requests or on port 179."""
    if not facts.probes:
        return unknown("no other node")
    mute = [
        one for one in facts.probes if one.small != "answer" and one.bgp not in ("open", "refused")
    ]
    if mute:
        return bad(f"{_some(mute)}: {mute[0].small or mute[0].bgp}")
    return good(f"{len(facts.probes)} node(s) answer")


@check(
    "bgp-peers",
    required=False,
    cause="Without a session to a node no route leads to its pods.",
    fix="refused: start calico-node there; filtered: let TCP port 179 through between the nodes;"
    " no route: correct the routes.",
)
def bgp_peers(facts: Facts) -> Finding:
    """Port 179 of the other nodes is open."""
    if facts.network.backend == "none":
        return unknown("BGP is off")
    asked = [one for one in facts.probes if one.bgp]
    if not asked:
        return unknown("no other node")
    shut = [one for one in asked if one.bgp != "open"]
    if shut:
        reasons = sorted({one.bgp for one in shut})
        return bad(
            "; ".join(f"{why}: {_some([o for o in shut if o.bgp == why])}" for why in reasons)
        )
    return good(f"open on {len(asked)} node(s)")
