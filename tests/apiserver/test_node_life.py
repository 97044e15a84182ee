"""NODE-3 on the Kubernetes datastore: the kubelet's Lease and boot id, by a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libcalico.errors import MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import Forbidden
from libcalico.kubernetes.objects import LEASES
from node.identity import life
from node.start import startup
from tests.apiserver import kdd
from tests.apiserver.test_kdd_node import environment
from tests.node.test_life import Clock
from tests.support.apiserver import ApiServer

NAME = "life-1"
NODE = f"/api/v1/nodes/{NAME}"
PATHS = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
OTHER = "22222222-bbbb"
STORED = "projectcalico.org/IPv4Address"


class Kubelet:
    """What a kubelet writes."""

    def __init__(self, api: ApiServer) -> None:
        self._api, self._beats = api, 0

    def renew(self) -> None:
        """The Lease, once more."""
        self._beats += 1
        spec = {
            "holderIdentity": NAME, "leaseDurationSeconds": 40,
            "renewTime": f"2026-11-23T10:00:{self._beats:02}.000000Z",
        }  # fmt: skip
        path = f"{PATHS}/{NAME}"
        self._api.call("PATCH", path, {"spec": spec}, content="application/merge-patch+json")

    def status(self, boot: str, ready: str = "True") -> None:
        """The node's status."""
        told = {"status": {"nodeInfo": {"bootID": boot}, "conditions": [
            {"type": "Ready", "status": ready, "reason": "r", "message": "m"}]}}  # fmt: skip
        merge = "application/merge-patch+json"
        self._api.call("PATCH", f"{NODE}/status", told, content=merge)


@pytest.fixture
def kubelet(api: ApiServer) -> Iterator[Kubelet]:
    """A node of another machine, 10.0.0.1, with a Lease."""
    kdd.install(api)
    api.namespace("kube-node-lease")
    kdd.node(api, NAME, "10.0.0.1")
    api.call(
        "PATCH", NODE, {"metadata": {"annotations": {STORED: "10.0.0.1/24"}}},
        content="application/merge-patch+json",
    )  # fmt: skip
    api.ensure(PATHS, {"metadata": {"name": NAME}, "spec": {}})
    one = Kubelet(api)
    one.status(OTHER)
    one.renew()
    yield one
    api.delete(f"{PATHS}/{NAME}")
    api.delete(NODE)


def start(api: ApiServer, folder: Path, clock: Clock) -> str:
    """Start-up of this machine under that name; the stored address."""
    environ = environment(api) | {
        "NODENAME": NAME, "IP": "10.99.1.1/24", "NO_DEFAULT_POOLS": "true",
        "CALICO_NODENAME_FILE": str(folder / "nodename"),
    }  # fmt: skip
    try:
        asyncio.run(startup.start_up(environ, wait=clock.wait))
    finally:
        told = api.call("GET", NODE)["metadata"]["annotations"]
    return str(told[STORED])


def test_a_name_whose_kubelet_lives_elsewhere_is_refused(
    api: ApiServer, kubelet: Kubelet, tmp_path: Path
) -> None:
    clock = Clock(lambda passed: kubelet.renew() if passed % 10 == 0 else None)
    with pytest.raises(MuslinError) as refused:
        start(api, tmp_path, clock)
    for part in (
        "another machine lives",
        NAME,
        "10.0.0.1",
        OTHER,
        life.BOOT_ID.read_text().strip(),
    ):
        assert part in str(refused.value)
    assert api.call("GET", NODE)["metadata"]["annotations"][STORED] == "10.0.0.1/24"
    assert clock.passed == 10 + life.SLACK
    assert start_where_it_went(api, kubelet, tmp_path) == "10.99.1.1/24"


def start_where_it_went(api: ApiServer, kubelet: Kubelet, folder: Path) -> str:
    """The same, once that machine is gone."""
    clock = Clock()
    stored = start(api, folder, clock)
    assert clock.passed <= 10 + life.SLACK
    return stored


def test_a_rebooted_node_whose_kubelet_tells_its_boot_a_little_later(
    api: ApiServer, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The Lease is renewed at once after a reboot, the boot id comes with the next status."""
    own = life.BOOT_ID.read_text().strip()

    def at(passed: float) -> None:
        kubelet.renew()
        if passed == 8:
            kubelet.status(own)

    clock = Clock(at)
    assert start(api, tmp_path, clock) == "10.99.1.1/24"
    assert clock.passed == 8
    # Renumbered while calico-node was down: this kubelet lives here.
    api.call(
        "PATCH", NODE, {"metadata": {"annotations": {STORED: "10.0.0.1/24"}}},
        content="application/merge-patch+json",
    )  # fmt: skip
    clock = Clock()
    assert (start(api, tmp_path, clock), clock.passed) == ("10.99.1.1/24", 0)


def test_without_the_right_to_the_lease_the_node_controller_is_believed(
    api: ApiServer, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = Client.get

    async def answer(self: Client, resource: Any, *where: str) -> Any:
        if resource is LEASES:
            raise Forbidden("not allowed")
        return await get(self, resource, *where)

    monkeypatch.setattr(Client, "get", answer)
    with pytest.raises(MuslinError, match="another machine lives"):
        start(api, tmp_path, Clock())
    kubelet.status(OTHER, ready="Unknown")
    assert start(api, tmp_path, Clock()) == "10.99.1.1/24"


def test_a_node_without_a_lease_is_nobodys(
    api: ApiServer, kubelet: Kubelet, tmp_path: Path
) -> None:
    api.delete(f"{PATHS}/{NAME}")
    clock = Clock()
    assert (start(api, tmp_path, clock), clock.passed) == ("10.99.1.1/24", 0)
