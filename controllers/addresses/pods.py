"""The cluster's pods, listed and followed once for all who need them.

Tested in tests/controllers/test_endpoint_labels.py and tests/controllers/test_collection.py.
"""

from __future__ import annotations

from controllers.mirror.objects import PODS, Pod
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.reflector import Reflector, Sink


class Pods:
    """Forward what the API says to each of `takers`, which are added before `run`."""

    def __init__(self, client: Client) -> None:
        self.takers: list[Sink[Pod]] = []
        self.reflector = Reflector(client, PODS, self)

    def put(self, name: Name, value: Pod) -> None:
        """Store a pod."""
        for taker in self.takers:
            taker.put(name, value)

    def gone(self, name: Name) -> None:
        """Remove it."""
        for taker in self.takers:
            taker.gone(name)

    def listed(self) -> None:
        """Note that the list is complete."""
        for taker in self.takers:
            taker.listed()

    async def run(self) -> None:
        """Follow until cancelled."""
        await self.reflector.run()
