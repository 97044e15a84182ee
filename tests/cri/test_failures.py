"""What a kubelet reads when a pod cannot start, and that nothing of the pod is left then.

In each case the runtime says our message, has called DEL once, and knows no sandbox; a second
try of the same pod succeeds as soon as the cause is gone.
"""

from __future__ import annotations

import pytest

from lab import proc
from tests.cri.client import READY, RuntimeFailed, Wish
from tests.cri.world import NODE_ADDRESS, World, fails
from tests.support.patience import wait_for

FULL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: tiny}
spec: {cidr: 10.66.0.0/30, blockSize: 30, ipipMode: Never, vxlanMode: Never}
"""
TINY = {"cni.projectcalico.org/ipv4pools": '["tiny"]'}
PORT = 18090


def ends(node: World, pod: str) -> list[str]:
    """The DELs of our plugin for a pod: whether each had a namespace."""
    return [
        "with" if call.env["CNI_NETNS"] else "without"
        for call in node.calls.about(pod)
        if call.title == "DEL calico"
    ]


def test_the_pool_is_full(node: World) -> None:
    node.apply(FULL)
    running = []
    try:
        # Four addresses, and how many of them are given to pods is the pool's own affair.
        for number in range(4):
            running.append(node.cri.run(Wish(f"tiny-{number}", annotations=TINY)).id)
        said = fails(node, Wish("too-many", annotations=TINY))
        assert 'plugin type="calico" failed (add)' in said
        assert "tiny" in said
        assert "too-many" not in node.endpoints()
        assert ends(node, "too-many") == ["with"]
        node.cri.end(running.pop())
        running.append(node.cri.run(Wish("too-many", annotations=TINY)).id)
    finally:
        for sandbox in running:
            node.cri.end(sandbox)
        node.delete("ippool", "tiny")
    node.assert_clean()


def test_the_daemon_is_away(node: World) -> None:
    before = node.cri.run(Wish("before"))
    with node.daemon_away():
        said = fails(node, Wish("away"))
        assert 'plugin type="calico" failed (add)' in said
        assert "the daemon calico-cni on this node does not answer" in said
        # A pod that ends meanwhile is not held up; its addresses come back with the daemon.
        node.cri.end(before.id)
        assert node.cri.sandboxes() == []
        assert "before" in node.endpoints()
    node.assert_clean()
    node.cri.end(node.cri.run(Wish("away")).id)
    node.assert_clean()


def test_the_datastore_is_away(node: World) -> None:
    with node.datastore_away():
        said = fails(node, Wish("no-store"))
    assert 'plugin type="calico" failed (add)' in said
    assert "datastore" in said, said
    assert ends(node, "no-store") == ["with"]
    node.assert_clean()
    node.cri.end(node.cri.run(Wish("no-store")).id)
    node.assert_clean()


def test_a_runtime_that_gives_up_leaves_nothing(node: World) -> None:
    """The kubelet's patience ends while our plugin waits: it is killed, and a DEL follows."""
    with node.datastore_away():
        call = node.cri.begin(Wish("hasty"))
        wait_for(lambda: "ADD calico" in [call.title for call in node.calls.about("hasty")])
        call.cancel()
    wait_for(lambda: len(ends(node, "hasty")) == 1)
    wait_for(lambda: node.cri.sandboxes() == [])
    node.assert_clean()


def test_a_runtime_that_is_killed_finds_its_pods_again(node: World) -> None:
    pod = node.cri.run(Wish("stays", ports={PORT: 8080}))
    node.serve(pod, 8080)
    wait_for(lambda: "peer" in node.reached(NODE_ADDRESS, PORT))
    node.runtime.kill()
    wait_for(lambda: "peer" in node.reached(NODE_ADDRESS, PORT))
    node.runtime.start()
    again = node.cri.look(pod.id)
    assert (again.state, again.addresses) == (pod.state, pod.addresses)
    assert [call.title for call in node.calls.about("stays")][:1] == ["ADD calico"]
    node.cri.end(pod.id)
    node.assert_clean()


def test_a_runtime_that_dies_with_its_pods_takes_them_down_later(node: World) -> None:
    """As after a crash of the machine's services: no process of a pod or of the runtime is left."""
    pod = node.cri.run(Wish("lost", ports={PORT: 8080}))
    processes = node.runtime.processes(pod.id)
    assert processes
    node.runtime.kill()
    node.runtime.close()
    wait_for(lambda: not any(proc.start_time(pid) for pid in processes))
    assert "lost" in node.endpoints()
    node.runtime.start()
    assert node.cri.look(pod.id).state != READY
    node.cri.end(pod.id)
    node.assert_clean()


def test_a_stop_that_fails_is_tried_again(node: World) -> None:
    pod = node.cri.run(Wish("stuck"))
    node.calls.fail("DEL", "portmap", {"cniVersion": "1.0.0", "code": 7, "msg": "not now"})
    with pytest.raises(RuntimeFailed, match="not now"):
        node.cri.stop(pod.id)
    assert "stuck" in node.endpoints()
    node.calls.mend("DEL", "portmap")
    node.cri.stop(pod.id)
    node.cri.stop(pod.id)
    node.cri.remove(pod.id)
    node.cri.remove(pod.id)
    node.assert_clean()


def test_the_configuration_goes_and_comes(node: World) -> None:
    assert node.cri.network_ready() == (True, "")
    node.reinstall("--uninstall")
    wait_for(lambda: not node.cri.network_ready()[0])
    assert "cni plugin not initialized" in node.cri.network_ready()[1]
    node.reinstall("--chain=portmap,bandwidth")
    wait_for(lambda: node.cri.network_ready() == (True, ""))
