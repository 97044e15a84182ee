"""Pods as a kubelet has them made: containerd 1.6 calls our plugin with portmap and bandwidth.

1. The plugin is called as the runtime really does it, and the sandbox has the answer's address.
2. A port of the host leads into the pod, as far as policy lets it.
3. The pod's bandwidth is limited in both directions.
4. Stop and remove are two DELs, the second without namespace and result; both succeed.
5. When a later plugin fails, the runtime takes back what ours did.
"""

from __future__ import annotations

import json

import pytest

from tests.cri.client import READY, Sandbox, Wish
from tests.cri.world import NODE_ADDRESS, World, fails
from tests.support.patience import wait_for

HOST_PORT, POD_PORT = 18080, 8080
RATE = 10_000_000
POLICY = """\
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {{name: front, namespace: default}}
spec:
  types: [Ingress]
  ingress: [{{action: {action}, protocol: TCP, destination: {{ports: [8080]}}}}]
"""


@pytest.mark.promise("F-5")
@pytest.mark.promise("F-6")
@pytest.mark.promise("M-46")
def test_a_pod_from_start_to_end(node: World) -> None:
    limits = {f"kubernetes.io/{way}-bandwidth": "10M" for way in ("ingress", "egress")}
    with node.sandbox("web", ports={HOST_PORT: POD_PORT}, annotations=limits) as pod:
        called_as_it_should_be(node, pod)
        reached_as_far_as_policy_goes(node, pod)
        limited(node)
    deleted_twice(node)


def called_as_it_should_be(node: World, pod: Sandbox) -> None:
    ours, ports, width = node.calls.about("web")
    assert [ours.title, ports.title, width.title] == ["ADD calico", "ADD portmap", "ADD bandwidth"]
    assert (ours.env["CNI_CONTAINERID"], ours.env["CNI_IFNAME"]) == (pod.id, "eth0")
    assert ours.env["CNI_NETNS"] == pod.netns
    assert ours.args["K8S_POD_NAMESPACE"] == "default"
    assert ours.args["K8S_POD_INFRA_CONTAINER_ID"] == pod.id
    assert "prevResult" not in ours.config
    # Each plugin hands on what ours said: the runtime's answer is our answer.
    assert ports.config["prevResult"]["ips"] == ours.answer["ips"] == width.answer["ips"]
    address = ours.answer["ips"][0]["address"]
    assert (pod.state, pod.addresses) == (READY, (address.partition("/")[0],))
    assert node.endpoints()["web"]["ipNetworks"] == [address]
    assert node.endpoints()["web"]["containerID"] == pod.id


def reached_as_far_as_policy_goes(node: World, pod: Sandbox) -> None:
    node.serve(pod, POD_PORT)
    greeting = "peer 10.99.1.254"
    wait_for(lambda: greeting in node.reached(NODE_ADDRESS, HOST_PORT))
    node.apply(POLICY.format(action="Deny"))
    wait_for(lambda: node.reached(NODE_ADDRESS, HOST_PORT) == "")
    node.apply(POLICY.format(action="Allow"))
    wait_for(lambda: greeting in node.reached(NODE_ADDRESS, HOST_PORT))
    node.delete("networkpolicy", "front", "--namespace=default")


def limited(node: World) -> None:
    shaped = json.loads(node.node.run(["tc", "-j", "qdisc", "show"]).stdout)
    rates = {queue["dev"]: queue["options"]["rate"] for queue in shaped if queue["kind"] == "tbf"}
    # tc tells bytes a second. What the pod sends is shaped on a device of its own.
    assert set(rates.values()) == {RATE // 8}
    assert sorted(device[:3] for device in rates) == ["bwp", "cal"]


def deleted_twice(node: World) -> None:
    ends = [call for call in node.calls.about("web") if call.env["CNI_COMMAND"] == "DEL"]
    order = ["DEL bandwidth", "DEL portmap", "DEL calico"]
    assert [call.title for call in ends] == order * 2
    stop, remove = ends[2], ends[5]
    assert stop.env["CNI_NETNS"]
    assert stop.config["prevResult"]["ips"]
    assert remove.env["CNI_NETNS"] == ""
    assert "prevResult" not in remove.config
    assert node.endpoints() == {}


@pytest.mark.promise("M-16")
def test_a_later_plugin_fails(node: World) -> None:
    error = {"cniVersion": "1.0.0", "code": 111, "msg": "no more queues", "details": "of its own"}
    node.calls.fail("ADD", "bandwidth", error)
    wish = Wish("later", ports={HOST_PORT: POD_PORT})
    said = fails(node, wish)
    assert 'plugin type="bandwidth" failed (add): no more queues; of its own' in said
    titles = [call.title for call in node.calls.about("later")]
    assert titles == [
        *("ADD calico", "ADD portmap", "ADD bandwidth"),
        *("DEL bandwidth", "DEL portmap", "DEL calico"),
    ]
    node.assert_clean()
    node.calls.mend("ADD", "bandwidth")
    node.cri.end(node.cri.run(wish).id)
    node.assert_clean()
