"""The Kubernetes objects of a test: bounded, in one namespace, and with no rights."""

from __future__ import annotations

import json

from calicoctl.connectivity import documents, leftovers
from calicoctl.connectivity.model import ALLOWED, DENIED, OPEN


def test_every_object_lies_in_the_marked_namespace() -> None:
    space = documents.namespace("x")
    assert space["metadata"]["labels"][leftovers.LABEL] == "calicoctl"
    assert not leftovers.expired(space["metadata"]["annotations"][leftovers.UNTIL])
    trees = [
        *documents.pods("x", ["n1", "n2"], "image:1", 8790),
        documents.service("x", 8790),
        *documents.policies("x", DENIED, 8790),
        *documents.policies("x", ALLOWED, 8790),
    ]
    assert {tree["metadata"]["namespace"] for tree in trees} == {"x"}
    assert json.loads(json.dumps(documents.listed(trees)))["kind"] == "List"


def test_pods_end_by_themselves_and_have_no_rights() -> None:
    pods = documents.pods("x", ["n1", "n2"], "image:1", 8790)
    assert len(pods) == 6
    assert len({pod["metadata"]["name"] for pod in pods}) == 6
    for pod in pods:
        spec = pod["spec"]
        assert 0 < spec["activeDeadlineSeconds"] <= leftovers.LIVE_SECONDS
        assert spec["automountServiceAccountToken"] is False
        (container,) = spec["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["runAsNonRoot"] is True
        assert container["imagePullPolicy"] == "IfNotPresent"
    hosts = [pod for pod in pods if pod["spec"]["hostNetwork"]]
    # What shares a node's network listens on nothing.
    assert [pod["spec"]["containers"][0]["command"][-2] for pod in hosts] == ["node-0", "node-1"]


def test_policies_choose_servers_only() -> None:
    assert documents.policies("x", OPEN, 8790) == []
    (deny,) = documents.policies("x", DENIED, 8790)
    (allow,) = documents.policies("x", ALLOWED, 8790)
    chosen = {"matchLabels": {documents.ROLE: documents.SERVER}}
    assert deny["spec"]["podSelector"] == allow["spec"]["podSelector"] == chosen
    assert "ingress" not in deny["spec"]
    (rule,) = allow["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8790}]
