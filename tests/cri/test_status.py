"""What a kubelet makes of our STATUS: containerd 2 asks for it at every look at the runtime.

Our own configuration offers version 1.1.0 because every plugin of the list speaks it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from lab.demo import look
from tests.cri.client import READY
from tests.cri.world import NODE_ADDRESS, World
from tests.support import stopping
from tests.support.patience import wait_for

PORT = 18200


def ready(node: World) -> bool:
    return node.cri.network_ready() == (True, "")


@pytest.mark.promise("F-3")
def test_a_node_is_ready_as_long_as_our_daemon_serves(newer: World) -> None:
    wait_for(lambda: ready(newer), lambda: str(newer.cri.network_ready()))
    assert newer.calls.verbs("calico")[-1] == "STATUS"
    with newer.daemon_away():
        serves, why = newer.cri.network_ready()
        assert not serves
        assert "the daemon calico-cni on this node does not answer" in why
    wait_for(lambda: ready(newer), lambda: str(newer.cri.network_ready()))


@pytest.mark.promise("F-3")
def test_felix_away_and_no_pool_are_told_by_their_names(newer: World) -> None:
    wait_for(lambda: ready(newer), lambda: str(newer.cri.network_ready()))
    supervisor = look.processes(newer.node, "calico-node")
    felix = look.processes(newer.node, "calico-felix")
    for pid in supervisor:
        stopping.pause(pid)
    try:
        for pid in felix:
            os.kill(pid, signal.SIGKILL)
        # A restart of felix is no fault of the node: it is told after some seconds only.
        wait_for(lambda: "calico-felix cannot be reached" in newer.cri.network_ready()[1])
    finally:
        for pid in supervisor:
            os.kill(pid, signal.SIGCONT)
    wait_for(lambda: ready(newer), lambda: str(newer.cri.network_ready()))
    newer.delete("ippool", "pods")
    wait_for(lambda: "there is no enabled IP pool" in newer.cri.network_ready()[1])
    newer.apply_objects()
    wait_for(lambda: ready(newer), lambda: str(newer.cri.network_ready()))


def test_pods_start_and_end_in_the_newest_version(newer: World) -> None:
    wait_for(lambda: ready(newer), lambda: str(newer.cri.network_ready()))
    with newer.sandbox("modern") as pod:
        (ours,) = newer.calls.about("modern")
        assert ours.config["cniVersion"] == ours.answer["cniVersion"] == "1.1.0"
        assert pod.state == READY
        assert newer.endpoints()["modern"]["ipNetworks"] == [f"{pod.addresses[0]}/32"]
    ends = [call for call in newer.calls.about("modern") if call.title == "DEL calico"]
    assert [bool(call.env["CNI_NETNS"]) for call in ends] == [True, False]
    assert "GC" not in newer.calls.verbs("calico"), "containerd collects now: test what it asks"


def test_the_configuration_on_disk_is_the_one_for_every_runtime(newer: World) -> None:
    text = newer.node.path("/etc/cni/net.d/10-calico.conflist").read_text()
    assert json.loads(text)["cniVersion"] == "1.0.0"
    assert json.loads(text)["cniVersions"] == ["1.0.0", "1.1.0"]


@pytest.fixture
def chained(newer: World) -> Iterator[None]:
    """Debian's portmap and bandwidth follow ours."""
    newer.reinstall("--configuration-only", "--chain=portmap,bandwidth")
    yield
    newer.reinstall("--configuration-only", "--chain=")


@pytest.mark.promise("F-5")
@pytest.mark.usefixtures("chained")
def test_with_plugins_of_1_0_0_behind_us_the_list_stays_there(newer: World) -> None:
    text = newer.node.path("/etc/cni/net.d/10-calico.conflist").read_text()
    assert "cniVersions" not in json.loads(text)
    limits = {"kubernetes.io/ingress-bandwidth": "10M"}
    wait_for(lambda: "bandwidth" in newer.runtime_list())
    with newer.sandbox("chained", ports={PORT: 8080}, annotations=limits) as pod:
        ours, *others = newer.calls.about("chained")
        assert ours.config["cniVersion"] == ours.answer["cniVersion"] == "1.0.0"
        assert [call.title for call in others] == ["ADD portmap", "ADD bandwidth"]
        newer.serve(pod, 8080)
        wait_for(lambda: "peer" in newer.reached(NODE_ADDRESS, PORT))
        shaped = json.loads(newer.node.run(["tc", "-j", "qdisc", "show"]).stdout)
        assert [queue["dev"][:4] for queue in shaped if queue["kind"] == "tbf"] == ["cali"]
    ends = [call.title for call in newer.calls.about("chained")[3:]]
    assert ends == ["DEL bandwidth", "DEL portmap", "DEL calico"] * 2
