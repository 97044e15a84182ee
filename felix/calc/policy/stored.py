"""Stored policies, packed: what is not active here is seldom looked at, and there may be many.

A policy as an object takes some five kilobytes, packed some hundred bytes; reading one back costs
what decoding it cost. Equal policies have equal bytes.
Tested in tests/felix/calc/policy/test_engine.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from felix.calc.policy.facts import Policy, names_services
from libcalico.model import GlobalNetworkPolicy, NetworkPolicy, ResourceKey

_encode = msgspec.msgpack.Encoder().encode
_decoders: dict[
    str, msgspec.msgpack.Decoder[NetworkPolicy] | msgspec.msgpack.Decoder[GlobalNetworkPolicy]
] = {
    "NetworkPolicy": msgspec.msgpack.Decoder(NetworkPolicy),
    "GlobalNetworkPolicy": msgspec.msgpack.Decoder(GlobalNetworkPolicy),
}


class StoredPolicies:
    """Policies by key. `with_services` are those that name services."""

    def __init__(self) -> None:
        self._packed: dict[ResourceKey, bytes] = {}
        self.with_services: set[ResourceKey] = set()

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[ResourceKey]:
        return iter(self._packed)

    def get(self, key: ResourceKey) -> Policy | None:
        """A policy as it was put; None if there is none."""
        packed = self._packed.get(key)
        if packed is None:
            return None
        return _decoders[key.kind].decode(packed)

    def version(self, key: ResourceKey) -> object:
        """What stands for a policy as it is now; another one is unequal."""
        return self._packed.get(key)

    def put(self, key: ResourceKey, policy: Policy) -> bool:
        """Store a policy; returns whether it differs from before."""
        packed = _encode(policy)
        if self._packed.get(key) == packed:
            return False
        self._packed[key] = packed
        (self.with_services.add if names_services(policy) else self.with_services.discard)(key)
        return True

    def remove(self, key: ResourceKey) -> None:
        """Remove a policy, if it is stored."""
        self._packed.pop(key, None)
        self.with_services.discard(key)
