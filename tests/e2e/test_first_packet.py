"""Nothing passes before policy is known; what ADD has returned works at once.

Felix is stopped (SIGSTOP) where a slow or dead one is meant. Packets are sent at the pod's address
from before it exists, and counted inside its namespace from before it has an interface.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab import pods, proc, stream
from lab.cluster import Lab
from lab.demo import look
from lab.errors import LabError
from lab.machine import FAST_PYTHON, PROBE
from lab.pods import Pod
from lab.runtime import PluginError
from lab.stream import Stream
from tests.e2e.conftest import plugin, stopped
from tests.e2e.test_settings import POOL
from tests.support.patience import HANG, wait_for

FELIX = "calico-felix"
PORT = "9000"


@pytest.fixture(scope="module")
def pair(small: Lab) -> Iterator[tuple[Lab, Pod]]:
    """A pool, and a pod that listens."""
    small.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=POOL)
    peer = pods.add(small, "peer", "node1", ports=["tcp:8080"])
    yield small, peer
    pods.remove(small, peer)


def reaches(lab: Lab, source: Pod, target: Pod, seconds: float = 0.9) -> bool:
    """Whether one TCP connection gets an answer."""
    command = [*FAST_PYTHON, str(PROBE), "tcp", "8080", f"{seconds:g}", target.address]
    done = lab.machine(source.node).run(command, netns=source.netns)
    return bool(json.loads(done.stdout) == {target.address: source.address})


def counter(lab: Lab, pod: Pod, protocol: str, name: str) -> int:
    """One of the counters of a pod's kernel (`man 5 proc`, net/snmp)."""
    text = lab.machine(pod.node).run(["cat", "/proc/net/snmp"], netns=pod.netns).stdout
    lines = (line.split() for line in text.splitlines() if line.startswith(f"{protocol}:"))
    names, figures = lines
    return int(dict(zip(names, figures, strict=True))[name])


@pytest.mark.promise("F-11")
@pytest.mark.promise("PAIN-24")
def test_add_waits_for_the_policy_and_then_the_network_works_at_once(
    pair: tuple[Lab, Pod],
) -> None:
    lab, peer = pair
    with ThreadPoolExecutor(max_workers=1) as pool:
        with stopped(lab.nodes[0], FELIX):
            adding = pool.submit(pods.add, lab, "waits", "node1")
            with pytest.raises(TimeoutError):
                adding.result(1.5)
        pod = adding.result(HANG)
    assert pods.answers(lab, pod, peer.address), "the first packet, which is sent once"
    assert reaches(lab, pod, peer, HANG)
    pods.remove(lab, pod)


@pytest.mark.promise("F-11")
def test_add_gives_up_with_try_again_later_and_leaves_nothing(pair: tuple[Lab, Pod]) -> None:
    lab, _ = pair
    node = lab.nodes[0]
    links = node.run(["ip", "-br", "link"]).stdout.count("cali")
    used = look.in_use(lab)
    with plugin(node, policy_setup_timeout_seconds=1), stopped(node, FELIX):
        with pytest.raises(PluginError) as failed:
            pods.add(lab, "never", "node1")
        assert failed.value.answer["code"] == 11
        assert "never" not in str(look.etcd(lab, f"{look.RESOURCES}/workloadendpoints/"))
        assert look.in_use(lab) == used
        assert node.run(["ip", "-br", "link"]).stdout.count("cali") == links
    assert [pod.name for pod in pods.every(lab)] == ["peer"]


@pytest.mark.promise("F-12")
@pytest.mark.promise("PAIN-25")
@pytest.mark.promise("ADV-10")
def test_a_pod_whose_policy_is_not_known_is_closed_in_both_directions(
    pair: tuple[Lab, Pod],
) -> None:
    """An operator may choose not to wait (0 seconds): even then nothing passes unseen by policy."""
    lab, peer = pair
    node = lab.nodes[0]
    counters: list[Stream] = []
    with plugin(node, policy_setup_timeout_seconds=0), stopped(node, FELIX):
        outgoing = stream.begin(node, peer.netns, "count", PORT)
        pod = pods.add(
            lab,
            "early",
            "node1",
            prepared=lambda netns: counters.append(stream.begin(node, netns, "count", PORT)),
        )
        # Felix has not even the pod's route yet: it is given one, so that only rules can hold.
        host_side = f"{pod.address}/32"
        node.run(["ip", "route", "replace", host_side, "dev", look_up(lab, pod)])
        senders = [
            stream.begin(node, peer.netns, "fresh", pod.address, PORT, "500"),
            stream.begin(node, pod.netns, "fresh", peer.address, PORT, "500"),
        ]
        for sending in (peer, pod):
            wait_for(lambda one=sending: counter(lab, one, "Udp", "OutDatagrams") > 100)  # type: ignore[misc]
        for sender in senders:
            assert sender.finish()["sent"] > 100
        assert not reaches(lab, pod, peer)
        assert counters[0].finish()["arrived"] == {}
        assert outgoing.finish()["arrived"] == {}
    proc.wait_until(
        lambda: reaches(lab, pod, peer), "the pod opens when felix is back", timeout=HANG
    )
    pods.remove(lab, pod)


def look_up(lab: Lab, pod: Pod) -> str:
    """The pod's host interface, as its endpoint in etcd names it."""
    found = look.etcd(lab, f"{look.RESOURCES}/workloadendpoints/")
    names = [
        value["spec"]["interfaceName"]
        for value in found.values()
        if value["spec"].get("pod") == pod.name
    ]
    if not names:
        raise LabError(f"no endpoint of pod {pod.title} in etcd")
    return str(names[0])
