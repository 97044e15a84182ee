"""A rule book for tests that look at what is wanted after every word."""

from __future__ import annotations

from collections.abc import Mapping

from felix.calc.policy_model import EndpointPolicy, HostEndpoint, PolicyChanges
from felix.dataplane.rules.chain_store import ChainStore
from libcalico.conversion.traffic_limits import ChainLimits


def written(book: ChainStore) -> None:
    """Everything that is due."""
    for _ in book.write():
        pass


class WrittenBook(ChainStore):
    """A rule book whose every word is written at once."""

    def take(self, changes: PolicyChanges) -> None:
        """And write."""
        super().take(changes)
        written(self)

    def forget(self, changes: PolicyChanges) -> None:
        """And write."""
        super().forget(changes)
        written(self)

    def trust(self, unusable: frozenset[str]) -> None:
        """And write."""
        super().trust(unusable)
        written(self)

    def set_endpoint(
        self,
        interface: str,
        policy: EndpointPolicy,
        families: frozenset[int] | None = None,
        limits: ChainLimits | None = None,
    ) -> None:
        """And write."""
        super().set_endpoint(interface, policy, families, limits)
        written(self)

    def remove_endpoint(self, interface: str) -> None:
        """And write."""
        super().remove_endpoint(interface)
        written(self)

    def set_host_endpoints(self, serving: Mapping[str, HostEndpoint]) -> None:
        """And write."""
        super().set_host_endpoints(serving)
        written(self)

    def write_all(self) -> None:
        """And write."""
        super().write_all()
        written(self)
