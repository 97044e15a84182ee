"""What is wrong is said, at once and clearly, and leaves nothing behind.

A malformed configuration, an unknown CNI version, a pool that is none, no etcd, an etcd that hangs:
the runtime gets CNI JSON (code 11 when trying again later makes sense, within the deadline), the
operator a sentence, and the node and the datastore are as before.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from cni.node.del_queue import LATE_SECONDS
from lab import datastore, namespaces, pods, proc
from lab.cluster import Lab
from lab.demo import look
from lab.runtime import PluginError
from libcalico.process import paths
from tests.support import stopping
from tests.support.patience import HANG

POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {{name: pods}}
spec: {{cidr: {cidr}, ipipMode: Never, vxlanMode: Never}}
"""
TRY_AGAIN = 11
ADD_DEADLINE = 90.0
ENVIRONMENT = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c" * 64,
    "CNI_NETNS": "/proc/self/ns/net",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": str(paths.CNI_BIN),
    "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b",
}


@pytest.fixture(scope="module", autouse=True)
def pool(small: Lab) -> None:
    """A good pool, and the profiles of the namespace that all pods here are in."""
    namespaces.ensure(small, "default")
    text = POOL.format(cidr="10.65.0.0/16").encode()
    small.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=text)


@pytest.fixture(autouse=True)
def nothing_left(small: Lab, no_record_left: None) -> Iterator[None]:
    """After each test: no interface, namespace, endpoint, handle, address of a pod."""
    yield
    proc.wait_until(lambda: leftovers(small) == [], "no partial state", timeout=HANG)


@pytest.fixture(scope="module")
def no_record_left(small: Lab) -> Iterator[None]:
    """After all: no record of an ADD whose outcome nobody knows.

    It stays some seconds longer than its ADD, on purpose: a late commit would be taken back by it
    (CNI-19).
    """
    yield
    proc.wait_until(
        lambda: records(small) == [], "no record of an ADD", timeout=LATE_SECONDS + HANG
    )


def leftovers(lab: Lab) -> list[str]:
    """What pods have left on the node and in etcd."""
    node = lab.nodes[0]
    links = node.run(["ip", "-o", "link"]).stdout.splitlines()
    found = [line for line in links if " cali" in line]
    found += node.run(["ip", "netns"]).stdout.split()
    found += list(look.etcd(lab, f"{look.RESOURCES}/workloadendpoints/"))
    found += list(look.etcd(lab, f"{look.IPAM}/handle/"))
    found += [block for block, used in look.in_use(lab).items() if used]
    return found


def records(lab: Lab) -> list[str]:
    """What the daemon still has to look at again."""
    pending = lab.nodes[0].path(paths.CNI_PENDING)
    return [path.name for path in pending.iterdir()] if pending.is_dir() else []


def call(lab: Lab, stdin: bytes) -> tuple[int, dict[str, object]]:
    """The plugin's exit code and error object."""
    done = lab.nodes[0].run(
        [f"{paths.CNI_BIN}/calico"], stdin=stdin, environment=ENVIRONMENT, check=False
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return done.returncode, answer


@pytest.mark.parametrize(
    "stdin", [b"", b"{", b"[]", b'{"cniVersion": "1.0.0", "name": 7}', b"\xff\xfe", b"null"]
)
def test_a_malformed_configuration_is_cni_json(small: Lab, stdin: bytes) -> None:
    code, answer = call(small, stdin)
    assert code == 1
    assert answer["code"] in (6, 7)
    assert answer["msg"]


def test_an_unknown_cni_version_is_refused_with_what_is_supported(small: Lab) -> None:
    config = {"cniVersion": "9.9.9", "name": "n", "type": "calico"}
    code, answer = call(small, json.dumps(config).encode())
    assert code == 1
    assert answer["code"] == 1
    assert "9.9.9" in f"{answer['msg']} {answer.get('details')}"


@pytest.mark.parametrize("cidr", ["10.65.0.0/33", "ten", "", "10.66.0.0/30"])
def test_a_pool_with_a_bad_cidr_is_refused_by_field(small: Lab, cidr: str) -> None:
    before = sorted(look.etcd(small, f"{look.RESOURCES}/ippools/"))
    text = POOL.format(cidr=cidr).replace("name: pods", "name: bad").encode()
    done = small.nodes[0].run(["calicoctl", "create", "-f", "-"], stdin=text, check=False)
    assert done.returncode != 0
    assert "cidr" in (done.stdout + done.stderr).lower()
    assert "Traceback" not in done.stderr
    assert sorted(look.etcd(small, f"{look.RESOURCES}/ippools/")) == before


@contextlib.contextmanager
def etcd_gone(lab: Lab) -> Iterator[None]:
    """etcd is killed; started again on its data afterwards."""
    for pid in look.processes(lab.etcd, "etcd"):
        os.kill(pid, signal.SIGKILL)
    proc.wait_until(lambda: not look.processes(lab.etcd, "etcd"), "etcd is dead", timeout=HANG)
    try:
        yield
    finally:
        datastore.start(lab.etcd, lab.plan)
        datastore.wait(lab.etcd)


@contextlib.contextmanager
def etcd_hangs(lab: Lab) -> Iterator[None]:
    """etcd is stopped: connections stand, nothing is answered."""
    pids = look.processes(lab.etcd, "etcd")
    for pid in pids:
        stopping.pause(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("away", [etcd_gone, etcd_hangs])
def test_without_etcd_add_says_try_again_and_leaves_nothing(
    small: Lab, away: Callable[[Lab], contextlib.AbstractContextManager[None]]
) -> None:
    with away(small):
        begun = time.monotonic()
        with pytest.raises(PluginError) as caught:
            pods.add(small, "early", "node1")
        took = time.monotonic() - begun
        assert caught.value.answer.get("code") == TRY_AGAIN, str(caught.value)
        assert took < ADD_DEADLINE
        links = small.nodes[0].run(["ip", "-o", "link"]).stdout
        assert " cali" not in links
        assert small.nodes[0].run(["ip", "netns"]).stdout == ""

    def works() -> bool:
        try:
            pod = pods.add(small, "later", "node1")
        except PluginError:
            return False
        pods.remove(small, pod)
        return True

    proc.wait_until(works, "ADD works when etcd is back", timeout=HANG, every=0.5)


def test_traffic_of_pods_goes_on_without_etcd(small: Lab) -> None:
    one, two = (pods.add(small, name, "node1") for name in ("one", "two"))
    with etcd_gone(small):
        assert pods.answers(small, one, two.address, count=3)
    for pod in (one, two):
        pods.remove(small, pod)


def test_calicoctl_without_etcd_ends_with_a_sentence(small: Lab) -> None:
    with etcd_gone(small):
        done = small.nodes[0].run(["calicoctl", "get", "ippools"], check=False, timeout=HANG)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert "10.99.0.1:2379" in done.stderr + done.stdout
