"""Policies of the kinds that Kubernetes gave up are named in the log: they are not enforced.

Tested in tests/controllers/test_cluster_policies.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from libcalico.conversion import older_kind
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import KubernetesError

log = logging.getLogger(__name__)

GROUP = "/apis/policy.networking.k8s.io"
OLDER = {
    "AdminNetworkPolicy": f"{GROUP}/v1alpha1/adminnetworkpolicies",
    "BaselineAdminNetworkPolicy": f"{GROUP}/v1alpha1/baselineadminnetworkpolicies",
}


class OlderPolicies:
    """Looks for them every `period` seconds; `named` are those of the last look."""

    def __init__(self, client: Client, period: float) -> None:
        self._client, self._period = client, period
        self.named: tuple[str, ...] = ()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            policies: list[str] = []
            for kind, path in OLDER.items():
                policies += [f"{kind}({name})" for name in await self._names(path)]
            if tuple(policies) != self.named:
                self.named = tuple(policies)
                for one in policies:
                    log.error("%s: %s", one, older_kind(one.partition("(")[0]))
            await asyncio.sleep(self._period)

    async def _names(self, path: str) -> list[str]:
        try:
            listed: Mapping[str, Any] = json.loads(await self._client.request("GET", path))
        except KubernetesError:
            # A kind that is not served has no policies; after an error the next look asks again.
            return []
        return [one["metadata"]["name"] for one in listed.get("items") or ()]
