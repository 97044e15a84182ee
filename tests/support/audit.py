"""The audit log of a kube-apiserver of the tests: who asked for what, as the server saw it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts"]
  - level: None
"""
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request that was answered; `resource` with its subresource, as in RBAC."""

    user: str
    verb: str
    resource: str
    name: str
    status: int

    @property
    def writes(self) -> bool:
        """Whether it asked for a change."""
        return self.verb in WRITES


class Audit:
    """Requests of service accounts; give `flags` to the server. A watch is told when it ends."""

    def __init__(self, at: Path) -> None:
        at.mkdir(parents=True, exist_ok=True)
        self._log, policy = at / "audit.log", at / "audit.yaml"
        policy.write_text(POLICY)
        self.flags = [f"--audit-policy-file={policy}", f"--audit-log-path={self._log}"]
        self._offset = 0

    def requests(self) -> list[Request]:
        """What came since the last call, oldest first; all of it at the first."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(self._offset)
            text = log.read()
        # The server may be in the middle of a line.
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [_request(line) for line in whole.splitlines()]


def by_kind(requests: list[Request]) -> dict[str, int]:
    """How many of each verb and resource, in the order of their names."""
    return dict(sorted(Counter(f"{one.verb} {one.resource}" for one in requests).items()))


def _request(line: bytes) -> Request:
    event = json.loads(line)
    of = event.get("objectRef", {})
    resource = of.get("resource") or event["requestURI"].partition("?")[0]
    if sub := of.get("subresource"):
        resource = f"{resource}/{sub}"
    status = event.get("responseStatus", {}).get("code", 0)
    return Request(event["user"]["username"], event["verb"], resource, of.get("name", ""), status)
