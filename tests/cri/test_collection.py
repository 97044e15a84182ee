"""What nobody deletes any more is collected, and the runtime's word keeps what only looks dead."""

from __future__ import annotations

import asyncio
import os
import signal

from libcalico.cri import CRISandboxes
from libcalico.process import paths
from tests.cri import image
from tests.cri.client import Wish
from tests.cri.containerd import SOCKET
from tests.cri.world import World
from tests.support.patience import wait_for


def kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def swept(node: World) -> bool:
    """Whether the daemon, new since its last death, has looked twice and collected."""
    asked = ["curl", "-s", f"http://127.0.0.1:{paths.CNI_PORT}/metrics"]
    told = node.node.run(asked, check=False).stdout
    return 'calico_cni_ipam_sweeps_total{outcome="complete"} ' in told


def test_the_sandboxes_of_a_real_runtime_are_read(node: World) -> None:
    source = CRISandboxes(node.node.path(SOCKET))
    assert asyncio.run(source.sandboxes()) == frozenset()
    made = [node.cri.run(Wish(f"listed-{number}")).id for number in range(3)]
    node.cri.stop(made[0])
    assert asyncio.run(source.sandboxes()) == frozenset(made)
    for sandbox in made:
        node.cri.end(sandbox)
    node.assert_clean()


def test_a_pod_without_a_sandbox_is_collected_and_one_with_it_is_not(node: World) -> None:
    # Both have lost their process, namespace and interface; the runtime knows only one of them.
    held = node.cri.run(Wish("held"))
    kill(node.runtime.processes(held.id))
    node.node.run(["umount", held.netns])
    node.node.path(held.netns).unlink()
    group = f"{node.runtime.cgroup}/leak"
    node.runtime.ctr("images", "import", str(node.runtime.archive), namespace="default")
    runs = node.runtime.begin("run", "--cni", "--cgroup", group, image.NAME, "leak")
    wait_for(lambda: len(node.endpoints()) == 2)
    with node.daemon_away():  # or a sweep of its could be faster
        runs.kill()
        runs.wait()
        kill(node.runtime.processes("leak"))
        wait_for(lambda: not [one for one in node.left() if one.startswith("link cali")])
        assert node.addresses() == 2
    wait_for(lambda: swept(node))
    assert node.addresses() == 1
    assert node.endpoints()["held"]["containerID"] == held.id
    node.runtime.ctr("containers", "rm", "leak", namespace="default")
    for cached in node.node.path("/var/lib/cni/results").glob("*-leak-*"):
        cached.unlink()
    node.cri.end(held.id)
    node.assert_clean()
