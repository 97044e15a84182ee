"""Where the agent learns from: the datastore, and what stands beside it.

Tested in tests/bgp/test_api_away.py and test_agent_routing.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from bgp.cluster.resolving import Resolver
from bgp.cluster.services import ServiceSource
from bgp.peering.passwords import PasswordSource
from libcalico.datastore.syncer import Syncer


@dataclass
class Sources:
    """A source that is None is not asked.

    `patience`: seconds until the agent goes on without word of services. `services_known`: there
    is word of them, or the agent goes on without.
    """

    services: ServiceSource | None
    passwords: PasswordSource | None
    resolver: Resolver | None
    patience: float
    services_known: bool
    datastore: Syncer | None = None

    @property
    def connected(self) -> bool:
        """The datastore answers."""
        return self.datastore is not None and self.datastore.connected

    def problems(self) -> list[tuple[str, str]]:
        """Conditions for an operator: the objects of Kubernetes that cannot be read."""
        return [
            (what, source.problem)
            for what, source in (
                ("Kubernetes services", self.services),
                ("BGP passwords", self.passwords),
            )
            if source is not None and source.problem
        ]
