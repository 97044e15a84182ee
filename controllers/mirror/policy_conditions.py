"""What of a ClusterNetworkPolicy is not enforced, as a condition of type `Enforced` in its status.

A policy that is enforced as written has no such condition. Tested in
tests/controllers/test_cluster_policies.py.
"""

from __future__ import annotations

import json
import logging

from controllers.mirror.objects import CLUSTER_POLICIES, ClusterNetworkPolicy
from controllers.queue import WorkQueue
from libcalico.conversion.cluster_policy import API_VERSION, KIND
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import KubernetesError, ObjectNotFound
from libcalico.kubernetes.names import Name
from libcalico.model.base.meta import now_text

log = logging.getLogger(__name__)

ENFORCED = "Enforced"
MANAGER = "calico-kube-controllers"
APPLY = "application/apply-patch+yaml"
MAX_MESSAGE = 32_768


class PolicyConditions:
    """Writes the conditions of the policies while `run` runs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._values: dict[Name, ClusterNetworkPolicy] = {}
        self._problems: dict[Name, str] = {}
        self._queue: WorkQueue[Name] = WorkQueue()

    def __len__(self) -> int:
        """How many conditions wait to be written."""
        return len(self._queue)

    @property
    def policies(self) -> list[tuple[Name, ClusterNetworkPolicy]]:
        """All policies as they are now."""
        return list(self._values.items())

    def remember(self, name: Name, value: ClusterNetworkPolicy) -> None:
        """Store a policy."""
        self._values[name] = value

    def forget(self, name: Name) -> None:
        """Remove it."""
        self._values.pop(name, None)
        self._problems.pop(name, None)

    def report(self, value: ClusterNetworkPolicy, problem: str) -> None:
        """Have the condition say this problem; empty: the policy has none."""
        self._problems[value.name] = problem
        if _differs(value, problem):
            self._queue.add(value.name)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.work(self._write)

    async def _write(self, name: Name) -> bool:
        value, problem = self._values.get(name), self._problems.get(name, "")
        if value is None or not _differs(value, problem):
            return True
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name.name},
            "status": {"conditions": [_condition(problem)] if problem else []},
        }
        path = CLUSTER_POLICIES.path("", name.name, "status")
        query = {"fieldManager": MANAGER, "force": "true"}
        try:
            await self._client.request("PATCH", path, query, json.dumps(body).encode(), APPLY)
        except ObjectNotFound:
            return True
        except KubernetesError as error:
            log.warning("the condition is not written: %s", error, extra={"object": name.name})
            return False
        return True


def _condition(problem: str) -> dict[str, str]:
    return {
        "type": ENFORCED,
        "status": "False",
        "reason": "NotInFull",
        "message": problem[:MAX_MESSAGE],
        "lastTransitionTime": now_text(),
    }


def _differs(value: ClusterNetworkPolicy, problem: str) -> bool:
    written = [one for one in value.status.conditions or () if one.type == ENFORCED]
    if not problem:
        return bool(written)
    return [(one.status, one.message) for one in written] != [("False", problem[:MAX_MESSAGE])]
