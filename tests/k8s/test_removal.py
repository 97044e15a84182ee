"""The way to remove our network that docs/kubernetes.md tells, on a real cluster, to the letter."""

from __future__ import annotations

import contextlib
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from tests.cri.containerd import CGROUPS
from tests.k8s import footprint, pods, product
from tests.k8s.node import Node
from tests.k8s.world import NODES, PATIENCE, World, pair

GUIDE = Path(__file__).parent.parent.parent / "docs" / "kubernetes.md"
DRAIN = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=280s")
POOL = "default-ipv4-ippool"


def documented() -> str:
    """The block of commands below the guide's heading."""
    _, _, below = GUIDE.read_text().partition("\n## Removing it\n")
    return below.split("```")[1].removeprefix("sh\n")


def clean(world: World, name: str) -> tuple[int, str]:
    """Run it on a node; its exit status, and what it said."""
    node = world.cluster.nodes[name]
    folder = node.flavour.runtime
    path = f"PATH={f'{folder}:' if folder else ''}{os.environ['PATH']}"
    done = node.run("env", path, "sh", "-ec", documented(), check=False, timeout=300)
    # containerd makes a control group of the machine's own for what `ctr` runs, and leaves it.
    for group in CGROUPS.glob("*/k8s.io"):
        with contextlib.suppress(OSError):
            group.rmdir()
    return done.returncode, done.stdout + done.stderr


def clean_once_ended(world: World, name: str) -> str:
    """The same until nothing is in use: pods end some seconds after the API has forgotten them."""
    said: list[str] = []

    def done() -> bool:
        status, text = clean(world, name)
        assert status == 0 or "or use --force" in text, text
        said.append(text)
        return status == 0

    world.api.wait(f"{name} is cleaned up", done)
    return said[-1]


def hardy(name: str, space: str, node: str) -> dict[str, Any]:
    """A pod that is on its node whatever the node says."""
    made = pods.pod(name, {"app": name}, "", space, tolerations=[{"operator": "Exists"}])
    made["spec"]["nodeName"] = node
    return made


def wrap(world: World) -> None:
    """Pods of both nodes talk through tunnels from now on."""
    pool = json.loads(world.administer("get", "ippool", POOL, "-o", "json"))
    pool["spec"] |= {"vxlanMode": "Always", "ipipMode": "Never"}
    world.administer("apply", "-f", "-", stdin=json.dumps(pool))
    for node in world.cluster.nodes.values():
        world.api.wait(f"{node.name} has its tunnel", partial(has_tunnel, node))


def has_tunnel(node: Node) -> bool:
    """Whether a node has the device of VXLAN."""
    return "vxlan.calico" in footprint.of(node)["links"]


def require_as_before(world: World, name: str, said: str) -> None:
    """Wait until a node is as it was; what differs stands in the failure."""
    last: dict[str, list[str]] = {}

    def as_before() -> bool:
        # kube-proxy forgets the services of tests in its own time.
        last.clear()
        last.update(world.came_and_went(name))
        return not last

    try:
        world.api.wait(f"{name} is as before", as_before)
    except Exception as error:
        raise AssertionError(f"{error}: {json.dumps(last, indent=1)}\n{said}") from error


def test_a_node_is_left_as_it_was_before_us(installed: World, space: str) -> None:
    """Drained, the manifest deleted, the guide's commands run on every node."""
    world, api = installed, installed.api
    assert world.mine.names["node"] in documented()
    ported = pods.pod("ported", {"app": "ported"}, "node2", space)
    ported["spec"]["containers"][0]["ports"] = [{"containerPort": pods.PORT, "hostPort": 18081}]
    door = pods.policy("door", {"app": "pair"}, ["Ingress"], space, ingress=[{}])
    api.apply(*pair(space), ported, door)
    world.wait_pods(space, 3)
    wrap(world)
    for name in NODES:
        left = world.came_and_went(name)
        assert left.keys() >= {"routes -4", "links", "addresses", "files"}, left
    # While it is in use nothing happens.
    status, said = clean(world, "node1")
    assert status != 0
    assert "calico-felix runs; calico-cni runs" in said
    assert "drain the node and delete the DaemonSet first" in said
    api.kubectl("drain", *NODES, *DRAIN, timeout=PATIENCE)
    api.kubectl("delete", "-f", "-", "--wait=false", stdin=world.text)
    for ours in (product.NODE_PODS, product.CONTROLLER_PODS):
        api.wait("our pods are gone", partial(gone, world, ours))
    for name in NODES:
        said = clean_once_ended(world, name)
        assert "routes of protocol 109:" in said
        require_as_before(world, name, said)
        # Once more: nothing is left to do, and that is no error.
        status, said = clean(world, name)
        assert status == 0, said
        assert "routes of protocol 109: 0 removed" in said
    api.kubectl("uncordon", *NODES)
    for name in NODES:
        api.wait(f"{name} says that it has no network", partial(without_network, world, name))
        late = f"late-{name}"
        api.apply(hardy(late, space, name))
        api.wait(f"{late} says why it waits", partial(waits_for_network, world, space, late))
        api.kubectl("delete", "pod", "-n", space, late, "--grace-period=0", "--force")


def gone(world: World, pods_of: str) -> bool:
    """Whether the API has none of these pods."""
    return not world.api.items(pods_of)


def without_network(world: World, name: str) -> bool:
    """Whether a node says NotReady, and that the network is why."""
    status, why = world.readiness(name)
    return status == "False" and "NetworkPluginNotReady" in why


def waits_for_network(world: World, space: str, name: str) -> bool:
    """Whether a pod's events say that its node has no network."""
    where = f"/api/v1/namespaces/{space}/events?fieldSelector=involvedObject.name%3D{name}"
    return any("NetworkPluginNotReady" in one["message"] for one in world.api.items(where))
