"""Pods in ways that a kubelet has them: made anew, many at once, in both families, without one."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cni.install.configuration import CHAINED, default_conflist
from tests.cri import image
from tests.cri.client import READY, Wish
from tests.cri.world import NODE_ADDRESS, World
from tests.support.patience import HANG, wait_for

POOL6 = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods6}
spec: {cidr: "fd65::/112", blockSize: 122, ipipMode: Never, vxlanMode: Never}
"""
NODE_ADDRESS6 = "fd99:0:0:1::1"
PORT = 18100
CROWD, CALLERS = 24, 4


def test_a_pod_that_is_made_anew_keeps_its_network(node: World) -> None:
    """The sandbox's process dies; the kubelet makes another one and removes the first later."""
    wish = Wish("anew", ports={PORT: 8080})
    first = node.cri.run(wish)
    for pid in node.runtime.processes(first.id):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: node.cri.look(first.id).state != READY)
    node.cri.stop(first.id)
    second = node.cri.run(replace(wish, attempt=1))
    node.cri.remove(first.id)
    stands(node, second.id, second.addresses[0])
    node.serve(second, 8080)
    wait_for(lambda: "peer" in node.reached(NODE_ADDRESS, PORT))
    node.cri.end(second.id)
    node.assert_clean()


def test_the_end_of_an_old_sandbox_does_not_touch_the_new(node: World) -> None:
    """A kubelet that lost its memory runs the pod again before it stops what was there."""
    wish = Wish("twice")
    old = node.cri.run(wish)
    new = node.cri.run(replace(wish, attempt=1))
    node.cri.end(old.id)
    stands(node, new.id, new.addresses[0])
    node.cri.end(new.id)
    node.assert_clean()


def stands(node: World, container: str, address: str) -> None:
    endpoint = node.endpoints()
    (spec,) = endpoint.values()
    assert (spec["containerID"], spec["ipNetworks"]) == (container, [f"{address}/32"])
    node.node.run(["ping", "-n", "-c", "1", "-W", "60", address])


@pytest.mark.promise("M-247")
def test_many_at_once(node: World) -> None:
    wishes = [Wish(f"crowd-{number}", ports={PORT + number: 80}) for number in range(CROWD)]
    order = random.Random(CROWD)
    with ThreadPoolExecutor(CALLERS) as callers:
        made = list(callers.map(node.cri.run, wishes))
        assert len({pod.addresses for pod in made}) == CROWD
        assert len(node.endpoints()) == CROWD
        order.shuffle(made)
        list(callers.map(node.cri.end, [pod.id for pod in made]))
    node.assert_clean()


@pytest.fixture
def both_families(node: World) -> Iterator[None]:
    """A list whose pods have two addresses."""
    document = default_conflist()
    ipam = document["plugins"][0]["ipam"]
    assert isinstance(ipam, dict)
    ipam |= {"assign_ipv4": "true", "assign_ipv6": "true"}
    document["plugins"].append(dict(CHAINED["portmap"]))
    node.apply(POOL6)
    node.reinstall("--configuration-only", CNI_NETWORK_CONFIG=json.dumps(document))
    # The runtime hears of a file by inotify, in its own time.
    wait_for(lambda: "assign_ipv6" in node.runtime_list())
    yield
    node.reinstall("--configuration-only", "--chain=portmap,bandwidth")
    wait_for(lambda: "assign_ipv6" not in node.runtime_list())
    node.delete("ippool", "pods6")


@pytest.mark.promise("F-8")
@pytest.mark.usefixtures("both_families")
def test_a_pod_of_both_families(node: World) -> None:
    before = len(node.calls.about("both"))
    with node.sandbox("both", ports={PORT: 8080}) as pod:
        node.serve(pod, 8080)
        assert [":" in address for address in pod.addresses] == [False, True]
        answer = node.calls.about("both")[before].answer
        assert [one["address"].partition("/")[0] for one in answer["ips"]] == list(pod.addresses)
        for address in pod.addresses:
            node.node.run(["ping", "-n", "-c", "1", "-W", "60", address])
        wait_for(lambda: "peer" in node.reached(NODE_ADDRESS, PORT))
        wait_for(lambda: "peer" in node.reached(NODE_ADDRESS6, PORT))


@pytest.mark.cni("CTD-09")
def test_a_container_without_a_kubelet(node: World) -> None:
    node.runtime.ctr("images", "import", str(node.runtime.archive), namespace="default")
    started = node.runtime.begin(
        "run", "--rm", "--cni", "--cgroup", f"{node.runtime.cgroup}/alone", image.NAME, "alone"
    )
    try:
        wait_for(lambda: node.endpoints() or started.poll() is not None)
        assert started.poll() is None, started.stdout and started.stdout.read().decode()
        ((container, spec),) = node.endpoints().items()
        assert "alone" in container
        address = spec["ipNetworks"][0].partition("/")[0]
        # The endpoint is stored before the pod has its cable.
        ping = ["ping", "-n", "-c", "1", "-W", "1", address]
        wait_for(lambda: node.node.run(ping, check=False).returncode == 0)
    finally:
        node.runtime.ctr("tasks", "kill", "-s", "SIGTERM", "alone", namespace="default")
        started.wait(HANG)
    node.assert_clean()
