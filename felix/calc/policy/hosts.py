"""The host endpoints of this node: what the dataplane was told of each.

Tested in tests/felix/calc/policy/test_hosts.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from felix.calc.policy.host_facts import HostFacts
from felix.calc.policy_model import EndpointPolicy, HostEndpoint
from libcalico.model import ResourceKey


class HostTable:
    """Facts by host endpoint, and the endpoints as of the last flush."""

    def __init__(self) -> None:
        self._facts: dict[ResourceKey, HostFacts] = {}
        self._flushed: dict[ResourceKey, HostEndpoint] = {}

    @property
    def flushed(self) -> Mapping[ResourceKey, HostEndpoint]:
        """The values as of the last flush."""
        return MappingProxyType(self._flushed)

    def put(self, key: ResourceKey, facts: HostFacts | None) -> bool:
        """Add or change a host endpoint; None removes it. Returns whether it differs."""
        before = self._facts.get(key)
        if facts is None:
            self._facts.pop(key, None)
        else:
            self._facts[key] = facts
        return before != facts

    def settle(
        self,
        key: ResourceKey,
        policy: EndpointPolicy | None,
        changes: dict[ResourceKey, HostEndpoint | None],
    ) -> None:
        """Note in `changes` what differs now that this policy decides about it."""
        facts = self._facts.get(key)
        now = None
        if facts is not None and policy is not None:
            now = HostEndpoint(key, facts.interface, facts.addresses, policy)
        if now == self._flushed.get(key):
            return
        changes[key] = now
        if now is None:
            del self._flushed[key]
        else:
            self._flushed[key] = now
