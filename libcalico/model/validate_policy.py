"""Rules of policies and network sets (data model 2.10, 2.12)."""

from __future__ import annotations

from libcalico.model.checks import Problems
from libcalico.model.policy import Policy
from libcalico.model.sets import GlobalNetworkSet, NetworkSet


def check_policy(policy: Policy, found: Problems) -> None:
    """Everything that is wrong with a policy."""
    found.selector("spec.selector", policy.spec.selector)


def check_set(networks: NetworkSet | GlobalNetworkSet, found: Problems) -> None:
    """Everything that is wrong with a network set."""
    for index, net in enumerate(networks.spec.nets):
        found.network(f"spec.nets[{index}]", net, host_bits=True)
