"""The conditions that kubelets write, as life signs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calicoctl.status.facts import Signs
from calicoctl.status.kubelets import decoded
from libcalico.errors import MuslinError


def condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Because", "message": message}


def page(*conditions: dict[str, str], token: str = "") -> bytes:
    node: dict[str, Any] = {"metadata": {"name": "n1"}, "status": {"conditions": [*conditions]}}
    return json.dumps({"metadata": {"continue": token}, "items": [node]}).encode()


READY, UNREADY = condition("Ready", "True"), condition("Ready", "Unknown", "Kubelet stopped")


@pytest.mark.parametrize(("conditions", "signs"), [
    ((READY,), Signs(ready=True)),
    ((READY, condition("NetworkUnavailable", "False", "up")), Signs(ready=True, network=False)),
    ((READY, condition("NetworkUnavailable", "True")),
     Signs(ready=True, network=True, reason="Because")),
    ((UNREADY, condition("NetworkUnavailable", "False", "up")),
     Signs(ready=False, network=False, reason="Kubelet stopped")),
    ((), Signs(ready=False)),
])  # fmt: skip
def test_conditions_of_a_node(conditions: tuple[dict[str, str], ...], signs: Signs) -> None:
    assert decoded(page(*conditions, token="next")) == ({"n1": signs}, "next")


def test_a_node_without_a_status() -> None:
    alone = b'{"items": [{"metadata": {"name": "n1"}}], "metadata": {}}'
    assert decoded(alone) == ({"n1": Signs(ready=False)}, "")
    assert decoded(b'{"items": null, "metadata": {}}') == ({}, "")


def test_what_is_no_list_of_nodes_is_an_error_that_is_told() -> None:
    with pytest.raises(MuslinError, match="the list of nodes is none"):
        decoded(b"<html>a proxy's page</html>")


def test_a_node_that_cannot_be_read_does_not_hide_the_others() -> None:
    good = b'{"metadata": {"name": "n2"}, "status": {"conditions": []}}'
    bad = b'{"metadata": {"name": "n1"}, "status": {"conditions": 7}}'
    assert decoded(b'{"items": [%b, %b], "metadata": {}}' % (bad, good)) == (
        {"n2": Signs(ready=False)}, "",
    )  # fmt: skip
