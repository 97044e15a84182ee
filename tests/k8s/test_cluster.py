"""Our manifest on a real cluster: what `kubectl apply` of one file gives its users."""

from __future__ import annotations

import json
import os

import pytest

from tests.k8s import pods
from tests.k8s.pods import PORT
from tests.k8s.world import NODES, World, pair

REPLICAS, REPEATS = (4, 6) if "MUSLIN_FULL_SIZE" in os.environ else (2, 3)
"""Pods of the Deployment; questions to its service, each of which goes to one of them."""


@pytest.mark.promise("M-191", "M-199")
@pytest.mark.promise("M-111")
@pytest.mark.promise("M-123")
@pytest.mark.promise("M-124")
@pytest.mark.promise("M-125")
@pytest.mark.promise("F-18")
@pytest.mark.promise("F-89")
@pytest.mark.promise("F-107")
@pytest.mark.promise("F-115")
def test_the_manifest_makes_a_bare_cluster_work(installed: World, space: str) -> None:
    """A Deployment on both nodes; each pod reaches each, and the service's address.

    The one case of the fast tier: few pods, and one policy.
    """
    api = installed.api
    service = pods.service("web", {"app": "web"}, space)
    api.apply(pods.deployment("web", REPLICAS, space), service, *pair(space))
    addresses = installed.wait_pods(space, REPLICAS + 2)
    where = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in installed.pods(space)}
    assert set(where.values()) == set(NODES)
    assert all(address.startswith("10.244.") for address in addresses.values()), addresses
    assert len(set(addresses.values())) == REPLICAS + 2
    cluster_ip = api.get(f"/api/v1/namespaces/{space}/services/web")["spec"]["clusterIP"]
    targets = {f"{address}:{PORT}": name for name, address in addresses.items()}
    for node in NODES:
        api.wait(
            f"pods of both nodes answer {node}",
            lambda node=node: installed.ask(space, f"on-{node}", list(targets), 15) == targets,  # type: ignore[misc]
        )
        # kube-proxy of this node, in its mode, spreads over the pods of both.
        installed.settle(space, {f"on-{node}": {cluster_ip: True}})
        heard = {
            installed.ask(space, f"on-{node}", [cluster_ip], 120)[cluster_ip]
            for _ in range(REPEATS)
        }
        assert None not in heard
        assert heard <= {name for name in where if name.startswith("web-")}
        api.wait(
            f"{node} says that its network is up",
            lambda node=node: installed.condition(node) == ("False", "CalicoIsUp"),  # type: ignore[misc]
        )
    # One deny-all and one door, written to the real API.
    api.apply(pods.policy("shut", {"app": "pair"}, ["Ingress"], space))
    one, other = f"on-{NODES[0]}", f"on-{NODES[1]}"
    goal = f"{addresses[other]}:{PORT}"
    installed.settle(space, {one: {goal: False}})
    door = [{"from": [{"podSelector": {"matchLabels": {"app": "pair"}}}]}]
    api.apply(pods.policy("door", {"app": "pair"}, ["Ingress"], space, ingress=door))
    web = next(name for name in where if name.startswith("web-"))
    installed.settle(space, {one: {goal: True}, web: {goal: False}})
    # The selected pod itself gets another label, and its old one back.
    for label, opened in (("none", True), ("pair", False)):
        api.kubectl("label", "-n", space, "pod", other, f"app={label}", "--overwrite")
        installed.settle(space, {web: {goal: opened}})


def test_policies_of_the_real_api(installed: World, space: str) -> None:
    """Deny all, allow from labelled pods, another namespace, a port, and egress."""
    api = installed.api
    other = installed.space(f"{space}-b")
    try:
        api.apply(
            pods.pod("server", {"role": "server"}, "node2", space),
            pods.pod("friend", {"role": "friend"}, "node1", space),
            pods.pod("stranger", {"role": "stranger"}, "node1", space),
            pods.pod("near", {"role": "near"}, "node2", space),
            pods.pod("outside", {"role": "friend"}, "node1", other),
        )
        addresses = installed.wait_pods(space, 4)
        outside = installed.wait_pods(other, 1)["outside"]
        goal = f"{addresses['server']}:{PORT}"
        everybody = ("friend", "stranger", "near")
        installed.settle(space, {name: {goal: True} for name in everybody})
        # A running pod is quarantined by a label of its own, and let go: in and out.
        api.apply(
            pods.policy("shut-in", {"quarantine": "in"}, ["Ingress"], space),
            pods.policy("shut-out", {"quarantine": "out"}, ["Egress"], space, egress=[]),
        )
        for label, pod, shut in (("in", "server", everybody), ("out", "near", ("near",))):
            api.kubectl("label", "-n", space, "pod", pod, f"quarantine={label}")
            installed.settle(space, {name: {goal: name not in shut} for name in everybody})
            api.kubectl("label", "-n", space, "pod", pod, "quarantine-")
            installed.settle(space, {name: {goal: True} for name in everybody})
        api.apply(pods.policy("deny-all", {}, ["Ingress"], space))
        installed.settle(space, {name: {goal: False} for name in everybody})
        friends = [{"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}]}]
        api.apply(pods.policy("friends", {"role": "server"}, ["Ingress"], space, ingress=friends))
        told = {name: {goal: name == "friend"} for name in everybody}
        installed.settle(space, told)
        # A pod of the same label in another namespace is no friend, until its namespace is.
        installed.settle(other, {"outside": {goal: False}})
        spaces = {"namespaceSelector": {"matchLabels": {"team": other}}}
        ports = [{"protocol": "TCP", "port": PORT}]
        guests = [{"from": [spaces], "ports": ports}]
        api.apply(pods.policy("guests", {"role": "server"}, ["Ingress"], space, ingress=guests))
        installed.settle(other, {"outside": {goal: True}})
        installed.settle(space, told)
        # A label that changes opens the door.
        api.kubectl("label", "-n", space, "pod", "stranger", "role=friend", "--overwrite")
        installed.settle(space, {"stranger": {goal: True}})
        # And what a friend may send to.
        only = [{"to": [{"ipBlock": {"cidr": f"{outside}/32"}}]}]
        api.apply(pods.policy("out", {"role": "friend"}, ["Egress"], space, egress=only))
        installed.settle(space, {"friend": {goal: False, f"{outside}:{PORT}": True}})
        api.kubectl("delete", "-n", space, "networkpolicy", "--all")
        installed.settle(space, {name: {goal: True} for name in everybody})
    finally:
        installed.forget(other)


def test_a_rule_that_names_a_service_follows_its_pods(installed: World, space: str) -> None:
    """The endpoints are EndpointSlices, in whatever version the API server has them."""
    api = installed.api
    web = pods.deployment("web", 1, space)
    api.apply(*pair(space), web, pods.service("web", {"app": "web"}, space))
    addresses = installed.wait_pods(space, 3)
    other = f"{addresses['on-node2']}:{PORT}"
    goals = {f"{at}:{PORT}": True for name, at in addresses.items() if name.startswith("web")}
    installed.settle(space, {"on-node1": {**goals, other: True}})
    to_web = {"action": "Allow", "destination": {"services": {"name": "web", "namespace": space}}}
    policy = {
        "apiVersion": "projectcalico.org/v3",
        "kind": "NetworkPolicy",
        "metadata": {"name": "to-web", "namespace": space},
        "spec": {"selector": "app == 'pair'", "types": ["Egress"], "egress": [to_web]},
    }
    installed.administer("apply", "-f", "-", stdin=json.dumps(policy))
    try:
        installed.settle(space, {"on-node1": {**goals, other: False}})
        # Another pod stands behind the service, and the rule follows.
        api.kubectl("delete", "pod", "-n", space, "-l", "app=web", "--wait=false")
        api.wait("the pod is another", lambda: not goals.keys() & answering(installed, space))
        installed.wait_pods(space, 3)
        new = dict.fromkeys(answering(installed, space), True)
        assert len(new) == 1
        installed.settle(space, {"on-node1": {**new, other: False}})
    finally:
        installed.administer("delete", "networkpolicy", "to-web", "-n", space)


def answering(world: World, space: str) -> set[str]:
    """Where the pods of `web` answer."""
    found = world.addresses(space)
    return {f"{at}:{PORT}" for name, at in found.items() if name.startswith("web") and at}


def test_a_port_of_the_host_leads_into_the_pod(installed: World, space: str) -> None:
    ported = pods.pod("ported", {"app": "ported"}, "node2", space)
    ported["spec"]["containers"][0]["ports"] = [{"containerPort": PORT, "hostPort": 18080}]
    installed.api.apply(ported)
    installed.wait_pods(space, 1)
    node2 = installed.cluster.nodes["node2"]
    url = f"http://{node2.address}:18080/"
    for asker in (installed.cluster.nodes["node1"], node2):
        said = asker.run("curl", "-sf", "-m", "120", url, check=False)
        assert said.stdout.strip() == "ported", f"from {asker.name}: {said}"
    installed.forget(space)
    asker = installed.cluster.nodes["node1"]
    installed.api.wait(
        "the port is closed",
        lambda: asker.run("curl", "-s", "-m", "3", url, check=False).returncode != 0,
    )
    installed.space(space)


@pytest.mark.promise("F-115")
@pytest.mark.promise("M-214")
def test_our_pods_are_not_privileged_and_calicoctl_answers(installed: World) -> None:
    listed = installed.calicoctl("get", "nodes", "-o", "json")
    names = [item["metadata"]["name"] for item in json.loads(listed)["items"]]
    assert sorted(names) == sorted(NODES)
    for node in NODES:
        where = f"/api/v1/namespaces/kube-system/pods/{installed.node_pod(node)}"
        pod = installed.api.get(where)
        assert pod["spec"]["serviceAccountName"] == "calico-node"
        for container in pod["spec"]["containers"]:
            assert not container["securityContext"].get("privileged"), container["name"]
    said = installed.api.kubectl(
        "logs", "-n", "kube-system", "ds/calico-node", "-c", "calico-node"
    ).stdout
    assert "this node is registered" in said
    assert "Traceback" not in said


def test_no_pod_of_ours_was_started_again(installed: World) -> None:
    """What is healthy is not restarted: probes, memory and the first start are as they should."""
    for pod in installed.pods("kube-system"):
        for one in pod["status"]["containerStatuses"]:
            assert one["restartCount"] == 0, f"{pod['metadata']['name']} {one}"
