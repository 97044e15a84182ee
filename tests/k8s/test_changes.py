"""A cluster that changes: an upgrade under traffic, a drained, a rebooted and a deleted node."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.k8s import pods, product
from tests.k8s.pods import PORT
from tests.k8s.world import World, pair

RUNNING = """\
grep TcpExt /proc/net/netstat
ping -i 0.1 {address} > /ping & ping=$!
ok=0; lost=0
while [ ! -e /stop ]; do
    for url in http://{address}:{port}/ http://{service}/; do
        if timeout 60 wget -q -O /dev/null $url; then ok=$((ok+1)); else lost=$((lost+1)); fi
    done
    usleep 50000
done
kill -INT $ping; wait $ping
tail -n 3 /ping; echo "ok $ok lost $lost"
grep TcpExt /proc/net/netstat
"""
"""A busy machine may answer late; its kernel answers a SYN at once: a second one is a loss."""


@dataclass
class Traffic:
    """What a pod sent, and what came back: packets on a beat, and new connections."""

    sent: int = 0
    received: int = 0
    answered: int = 0
    failed: int = 0
    repeated: int = 0
    dropped: int = 0
    """Packets that this machine had no time for, whoever's they were: they may be ours."""
    said: str = ""
    addresses: dict[str, str] = field(default_factory=dict)


@contextmanager
def traffic(world: World, space: str) -> Iterator[Traffic]:
    """From a pod on node 1 to one on node 2 and to a service, until the end of the block."""
    world.api.apply(*pair(space), pods.service("pair", {"app": "pair"}, space))
    told = Traffic(addresses=world.wait_pods(space, 2))
    service = world.api.get(f"/api/v1/namespaces/{space}/services/pair")["spec"]["clusterIP"]
    script = RUNNING.format(address=told.addresses["on-node2"], port=PORT, service=service)
    world.api.wait(
        "the service answers", lambda: bool(world.ask(space, "on-node1", [service])[service])
    )
    words = world.api.command("exec", "-n", space, "on-node1", "--", "sh", "-c", script)
    before_all = dropped()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        time.sleep(1.0)
        yield told
        time.sleep(1.0)
        world.api.kubectl("exec", "-n", space, "on-node1", "--", "touch", "/stop")
        told.said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    told.dropped = dropped() - before_all
    counts = re.search(r"(\d+) packets transmitted, (\d+) packets received", told.said)
    done = re.search(r"ok (\d+) lost (\d+)", told.said)
    assert counts, told.said
    assert done, told.said
    told.sent, told.received = int(counts[1]), int(counts[2])
    told.answered, told.failed = int(done[1]), int(done[2])
    names, before, _, after = (
        line.split() for line in told.said.splitlines() if line.startswith("TcpExt")
    )
    place = names.index("TCPSynRetrans")
    told.repeated = int(after[place]) - int(before[place])


def dropped() -> int:
    """Packets for which there was no room in the queue of a processor (proc(5), softnet_stat)."""
    text = Path("/proc/net/softnet_stat").read_text()
    return sum(int(line.split()[1], 16) for line in text.splitlines())


def generation(world: World) -> set[str]:
    """The identities of our pods on the nodes."""
    return {pod["metadata"]["uid"] for pod in world.api.items(product.NODE_PODS)}


@pytest.mark.promise("F-110")
def test_an_upgrade_of_every_node_loses_no_packet(installed: World, space: str) -> None:
    """Every container of every node is replaced, one node after the other."""
    before = generation(installed)
    with traffic(installed, space) as told:
        words = ("-n", "kube-system", "ds/calico-node", "-c", "calico-node")
        installed.api.kubectl("set", "env", *words, "FELIX_LOGSEVERITYSCREEN=debug")
        rollout = ("rollout", "status", "-n", "kube-system", "ds/calico-node", "--timeout=560s")
        installed.api.kubectl(*rollout, timeout=600)
    assert not before & generation(installed)
    assert told.sent > 50, told.said
    assert told.received >= told.sent - 1 - told.dropped, f"the last one was on its way: {told}"
    assert told.failed == 0, told.said
    assert told.repeated <= told.dropped, told.said
    assert told.answered > 20, told.said
    # Pods start as before.
    installed.api.apply(pods.pod("later", {"app": "later"}, "node2", space))
    installed.wait_pods(space, 3)
    installed.settle(space, {"later": {f"{told.addresses['on-node1']}:{PORT}": True}})


@pytest.mark.promise("M-124")
@pytest.mark.promise("F-18")
def test_a_node_says_that_its_network_goes_and_comes(installed: World) -> None:
    """With time to end, the preStop hook tells Kubernetes; the next pod takes it back."""
    patch = json.dumps({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 20}}}})
    where = ("-n", "kube-system", "ds/calico-node")
    installed.api.kubectl("patch", *where, "-p", patch)
    installed.api.kubectl("rollout", "status", *where, "--timeout=560s", timeout=600)
    product.wait_ready(installed.cluster)
    installed.api.wait(
        "the node is up", lambda: installed.condition("node2") == ("False", "CalicoIsUp")
    )
    pod = installed.node_pod("node2")
    condition = '{.status.conditions[?(@.type=="NetworkUnavailable")].reason}{"\\n"}'
    # A restart may be over between two looks; a watch is told of each state.
    with installed.api.watching("node", "node2", "-o", f"jsonpath={condition}") as reasons:
        installed.api.kubectl("delete", "pod", "-n", "kube-system", pod, "--wait=false")

        def came_back() -> bool:
            went = reasons.index("CalicoIsDown") if "CalicoIsDown" in reasons else len(reasons)
            return "CalicoIsUp" in reasons[went:]

        installed.api.wait(f"the condition comes back: {reasons}", came_back, timeout=400)
    assert installed.condition("node2") == ("False", "CalicoIsUp")
    product.wait_ready(installed.cluster)


def test_a_drained_node_is_emptied_and_filled_again(installed: World, space: str) -> None:
    api = installed.api
    api.apply(pods.deployment("web", 4, space), pods.pod("asker", {"app": "asker"}, "node1", space))
    installed.wait_pods(space, 5)
    drain = ("drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    api.kubectl(*drain, "--timeout=280s")
    try:
        addresses = installed.wait_pods(space, 5)
        placed = {pod["spec"]["nodeName"] for pod in installed.pods(space)}
        assert placed == {"node1"}
        targets = [f"{address}:{PORT}" for address in addresses.values()]
        installed.settle(space, {"asker": dict.fromkeys(targets, True)})
    finally:
        api.kubectl("uncordon", "node2")
    api.apply(*pair(space))
    installed.wait_pods(space, 7)
    both = installed.addresses(space)
    installed.settle(space, {"on-node1": {f"{both['on-node2']}:{PORT}": True}})


def test_a_node_that_was_rebooted_serves_its_pods_again(installed: World, space: str) -> None:
    installed.api.apply(pods.deployment("web", 4, space), *pair(space))
    installed.wait_pods(space, 6)
    old = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in installed.pods(space)}
    installed.cluster.reboot("node2")
    product.wait_ready(installed.cluster)

    def again() -> bool:
        found = installed.addresses(space)
        goal = f"{found.get('on-node2')}:{PORT}"
        back = f"{found.get('on-node1')}:{PORT}"
        return (
            installed.ask(space, "on-node1", [goal])[goal] == "on-node2"
            and installed.ask(space, "on-node2", [back])[back] == "on-node1"
        )

    installed.api.wait("pods of both nodes reach each other", again, timeout=400)
    assert old["on-node2"] == installed.api.get(
        f"/api/v1/namespaces/{space}/pods/on-node2"
    )["metadata"]["uid"]  # fmt: skip
    installed.wait_pods(space, 6)
    # What the sandboxes of before had is given back, once the kubelet has removed them.
    installed.api.wait(
        "every address belongs to a pod", lambda: allocated(installed) == held(installed)
    )


def test_a_deleted_node_gives_its_addresses_back(installed: World, space: str) -> None:
    installed.api.apply(*pair(space))
    installed.wait_pods(space, 2)
    node = installed.cluster.nodes["node2"]
    assert node.name in installed.calicoctl("get", "nodes")
    node.stop()
    try:
        installed.api.kubectl("delete", "node", node.name)
        installed.api.wait(
            "the node is forgotten",
            lambda: (
                node.name not in installed.calicoctl("get", "nodes")
                and allocated(installed) == held(installed)
            ),
            timeout=400,
        )
        # node 1 has no route left to what was node 2's.
        other = installed.cluster.nodes["node1"]
        installed.api.wait(
            "the other node has no routes to it",
            lambda: f"via {node.address} " not in other.run("ip", "route").stdout,
        )
    finally:
        node.start()
        node.join()
    product.wait_ready(installed.cluster)
    installed.api.apply(*pair(space))
    addresses = installed.wait_pods(space, 2)
    installed.settle(space, {"on-node1": {f"{addresses['on-node2']}:{PORT}": True}})


def allocated(world: World) -> set[str]:
    """The addresses that IPAM has given out, as calicoctl tells, which finds nothing wrong."""
    told = world.calicoctl("ipam", "check", "--show-all-ips")
    if "found 0 problems" not in told:
        return {told}
    return set(re.findall(r"^\s+(\S+) allocated;", told, re.MULTILINE))


def held(world: World) -> set[str]:
    """The addresses of the pods that have one of ours."""
    return {
        pod["status"]["podIP"]
        for pod in world.api.items("/api/v1/pods")
        if not pod["spec"].get("hostNetwork") and pod["status"].get("podIP")
    }
