"""`calicoctl status` on the Kubernetes datastore: conditions of kubelets, and nodes asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver import kdd
from tests.apiserver.test_kdd_calicoctl import ctl as ctl
from tests.calicoctl.conftest import Ctl
from tests.support.apiserver import ApiServer

REPORTS = "/apis/crd.projectcalico.org/v1/caliconodestatuses"


def condition(kind: str, status: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Because", "message": message}


def conditions(api: ApiServer, name: str, *told: dict[str, str]) -> None:
    api.call(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        {"status": {"conditions": list(told)}},
        content="application/strategic-merge-patch+json",
    )


@pytest.mark.promise("F-112")
def test_conditions_and_silent_nodes(api: ApiServer, ctl: Ctl) -> None:
    for number in (1, 2, 3):
        kdd.node(api, f"n{number}", f"10.0.0.{number}")
    ready = condition("Ready", "True", "kubelet is posting ready status")
    conditions(api, "n1", ready)
    conditions(api, "n2", condition("Ready", "Unknown", "Kubelet stopped posting"))
    conditions(api, "n3", ready, condition("NetworkUnavailable", "True", "BGP is not up"))
    done = ctl("status", "--ask", "0.2", "-o", "json")
    assert done.code == 0, done.err
    told: dict[str, Any] = {one["name"]: one for one in json.loads(done.out)["nodes"]}
    assert "its kubelet says that it is not ready: Kubelet stopped posting" in told["n2"]["why"]
    assert "its network is not available: BGP is not up" in told["n3"]["why"]
    assert [told[name]["grade"] for name in ("n1", "n2", "n3")] == ["warning", "bad", "bad"]
    assert {one["unanswered"] for one in told.values()} == {"no report within 0.2 s"}
    assert api.call("GET", REPORTS)["items"] == []
