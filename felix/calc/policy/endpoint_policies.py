"""The endpoints of this node, and the policies that decide about each, as of the last flush.

Tested in tests/felix/calc/policy/test_engine.py, test_hosts.py, test_large.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType

from felix.calc.policy.host_facts import HostFacts
from felix.calc.policy.hosts import HostTable
from felix.calc.policy.large import LargePolicies
from felix.calc.policy.policy_order import HOST_ENDPOINT, ActivePolicies
from felix.calc.policy_model import EndpointPolicy, HostEndpoint, PolicyChanges
from felix.calc.sets.items import Item
from felix.calc.sets.set_table import name_of
from libcalico.model import ResourceKey


class EndpointPolicies:
    """Workload and host endpoints by key. `order` has the list of policies of each."""

    def __init__(self, order: ActivePolicies, large: LargePolicies) -> None:
        self._order, self._large = order, large
        self._hosts = HostTable()
        self._items: dict[ResourceKey, Item] = {}
        self.names: set[Hashable] = set()
        """The names under which the sets know these endpoints."""
        self._containers: dict[ResourceKey, str] = {}
        self._renewed: set[ResourceKey] = set()
        """Endpoints that belong to another container since the last flush."""
        self._flushed: dict[ResourceKey, EndpointPolicy] = {}

    def __contains__(self, key: ResourceKey) -> bool:
        return key in self._items

    @property
    def items(self) -> Mapping[ResourceKey, Item]:
        """Labels, profiles and members of the endpoints, as they are now."""
        return MappingProxyType(self._items)

    @property
    def flushed(self) -> Mapping[ResourceKey, EndpointPolicy]:
        """The policies of the workload endpoints, as of the last flush."""
        return MappingProxyType(self._flushed)

    @property
    def hosts(self) -> Mapping[ResourceKey, HostEndpoint]:
        """The host endpoints, as of the last flush."""
        return self._hosts.flushed

    def put(self, key: ResourceKey, item: Item | None) -> Item | None:
        """Add or change an endpoint; None removes it. Returns what it was before."""
        before = self._items.get(key)
        if item is not None:
            self._items[key] = item
            self.names.add(name_of(key))
        elif before is not None:
            del self._items[key]
            self.names.discard(name_of(key))
        return before

    def put_container(self, key: ResourceKey, container_id: str | None) -> None:
        """Note whose container an endpoint is; None: the endpoint is gone."""
        before = self._containers.pop(key, "")
        if container_id is not None:
            self._containers[key] = container_id
            if before and container_id not in ("", before):
                self._renewed.add(key)

    def put_host(self, key: ResourceKey, facts: HostFacts | None) -> None:
        """Add or change the facts of a host endpoint; None removes them."""
        if self._hosts.put(key, facts):
            self._order.dirty.add(key)

    def flush(self, changes: PolicyChanges) -> None:
        """Note in `changes` which endpoints have other policies than they had."""
        self._order.dirty.update(self._large.release())
        renewed, self._renewed = self._renewed, set()
        for key in self._order.take_dirty():
            policy = self._order.view(key)
            if self._large.holds(key, policy):
                if key in renewed and self._flushed.pop(key, None) is not None:
                    # It would start with the rules of the container before it (LRG-1).
                    changes.endpoints[key] = None
            elif key.kind == HOST_ENDPOINT:
                self._hosts.settle(key, policy, changes.host_endpoints)
            elif policy != self._flushed.get(key):
                changes.endpoints[key] = policy
                if policy is None:
                    del self._flushed[key]
                else:
                    self._flushed[key] = policy

    def kept(self) -> list[EndpointPolicy]:
        """What endpoints keep that wait for a large policy (LRG-1)."""
        policies = map(self._flushed_of, self._large.waiting_endpoints)
        return [policy for policy in policies if policy is not None]

    def _flushed_of(self, key: ResourceKey) -> EndpointPolicy | None:
        host = self._hosts.flushed.get(key)
        return host.policy if host is not None else self._flushed.get(key)
