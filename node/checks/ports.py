"""Checks of the ports that the agents listen on.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from node.checks.check import Finding, bad, check, doubtful, good, unknown
from node.checks.facts import Facts

OUR_PORTS = {
    9099: ("felix's health", "FELIX_HEALTHPORT"),
    9091: ("felix's metrics", "FELIX_PROMETHEUSMETRICSPORT"),
    9097: ("the speaker's health", "CALICO_BGP_HEALTH_PORT"),
    9096: ("the CNI daemon's health", "CALICO_CNI_HEALTHPORT"),
}

OURS = ("calico", "exabgp", "python")


@check(
    "ports",
    required=False,
    cause="A port that another program holds makes a health or metrics server wait for it.",
    fix="Free the port, or choose another by the variable named beside it.",
)
def ports(facts: Facts) -> Finding:
    """The ports of health and metrics servers are free, or ours."""
    if facts.host.listeners is None:
        return unknown("the listening ports cannot be read")
    taken = [
        f"{port} ({purpose}, {variable}): {facts.host.listeners[port]}"
        for port, (purpose, variable) in OUR_PORTS.items()
        if facts.host.listeners.get(port) and not _ours(facts.host.listeners[port])
    ]
    return bad("; ".join(taken)) if taken else good("free or ours")


@check(
    "bgp-port",
    required=True,
    cause="Another BGP daemon on port 179 keeps ours from listening; its peers are refused.",
    fix="Stop the other daemon (bird, frr, gobgpd, or Calico's own calico-node container), or let"
    " it peer with this node from another machine.",
)
def bgp_port(facts: Facts) -> Finding:
    """Port 179 is free, or ours."""
    if facts.network.backend == "none":
        return unknown("BGP is off")
    if facts.host.listeners is None:
        return unknown("the listening ports cannot be read")
    if 179 not in facts.host.listeners:
        return good("free")
    holder = facts.host.listeners[179]
    if _ours(holder):
        return good(f"held by {holder}")
    return (
        doubtful("held by a process that cannot be seen")
        if not holder
        else bad(f"held by {holder}")
    )


def _ours(process: str) -> bool:
    return process.startswith(OURS)
