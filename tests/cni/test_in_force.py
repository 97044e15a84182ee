"""`policy_setup_timeout_seconds` with the real felix, running and stopped in the middle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni.veth import wiring
from libcalico import names
from libcalico.local.node_api import Await, Offer, Stored
from libcalico.model import ResourceKey
from tests.cni.world import (
    NODE,
    WAITS,
    FelixPeer,
    World,
    container_id,
    node_world,
    pod_namespace,
    result_of,
)
from tests.support.netns import Namespace
from tests.support.patience import HANG, until

LINK = names.host_interface_name("default", "web-1")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


def traces(node: World, link: str, address: str) -> list[str]:
    """What the host's tables hold of a pod."""
    kernel = (
        *(f"rule {line}" for line in node.space.run("iptables-nft-save").splitlines()),
        *(f"rule {line}" for line in node.space.run("ip6tables-nft-save").splitlines()),
        *(f"route {line}" for line in node.space.run("ip", "route").splitlines()),
    )
    return [line for line in kernel if link in line or f" {address} " in line]


@pytest.mark.asyncio
async def test_felix_hears_of_a_newer_sandbox_when_its_cable_stands(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says of the older one's link says nothing of the newer one's routes."""
    heard: list[int] = []
    real = wiring.remove_stale

    async with FelixPeer(node.settings.felix_socket) as peer, node.daemon() as daemon:
        await until(lambda: daemon.context.felix.connected)

        def slowly(name: str, mark: str | None) -> None:
            time.sleep(0.3)
            heard.append(len(peer.offers()))
            real(name, mark)

        monkeypatch.setattr(wiring, "remove_stale", slowly)
        config = WAITS
        peer.routes = ["10.65.0.200/32"]
        result_of(await node.add(pod, container="a" * 64, config=config))
        assert [asked.wired for asked in peer.awaits()] == [True]
        assert not heard
        peer.messages.clear()
        with pod_namespace("newer") as newer:
            result_of(await node.add(newer, container="b" * 64, config=config))
            assert heard == [0], "nothing was offered while the old link stood"
            assert len(peer.offers()) == 1
            assert not any(asked.wired for asked in peer.awaits()), "felix writes its routes"
            kinds = [type(message) for message in peer.messages]
            assert kinds.index(Await) < kinds.index(Offer), "it listens before it looks"
            assert (await node.delete(newer, container="b" * 64)).status == 0
        assert (await node.delete(pod, container="a" * 64)).status == 0
        node.assert_clean()


@pytest.mark.asyncio
async def test_an_add_waits_for_the_policy_and_undoes_everything(
    node: World, pod: Namespace
) -> None:
    async with node.felix() as felix, node.daemon(felix_socket=felix.socket) as daemon:
        await until(lambda: daemon.context.felix.connected)
        # The default wait: when ADD returns, rules and routes are there.
        result = result_of(await node.add(pod, config={"policy_setup_timeout_seconds": None}))
        address = result["ips"][0]["address"].removesuffix("/32")
        assert any(line.startswith("rule") for line in traces(node, LINK, address))
        assert any(line.startswith("route") for line in traces(node, LINK, address))
        assert (await node.delete(pod)).status == 0

        felix.pause()
        try:
            # A felix that is connected and does nothing: code 11 in time, nothing left.
            began = time.monotonic()
            error = (await node.add(pod, config={"policy_setup_timeout_seconds": 1})).error
            assert 1 <= time.monotonic() - began < HANG
            assert error["code"] == 11
            assert "not in force within 1 s" in error["msg"]
            assert "calico-felix did not report it" in error["details"]
            node.assert_clean()
            assert "eth0" not in pod.run("ip", "link")
            assert not list(node.settings.pending.glob("*"))
            assert daemon.context.felix._waits == {}
            assert daemon.context.felix._offers == {}
            # 0: no wait at all, and the pod stays.
            with pod_namespace("unwaited") as other:
                began = time.monotonic()
                config = {"policy_setup_timeout_seconds": 0}
                unwaited = result_of(await node.add(other, "web-2", config=config))
                assert time.monotonic() - began < HANG
                felix.resume()
                done = await node.check(other, unwaited, "web-2", config=config)
                assert done.status == 0, done
                assert (await node.delete(other, "web-2")).status == 0
        finally:
            felix.resume()
        # What felix was offered and then told to forget leaves no rule and no route either.
        await until(lambda: traces(node, LINK, address) == [])
        first = result_of(await node.add(pod, config=WAITS))
        address = first["ips"][0]["address"].removesuffix("/32")
        before = traces(node, LINK, address)
        # A repeated ADD that fails leaves the first in force (ADD-07): felix is not told of an end.
        felix.pause()
        try:
            error = (await node.add(pod, config={"policy_setup_timeout_seconds": 1})).error
            assert error["code"] == 11
        finally:
            felix.resume()
        with pod_namespace("later") as other:
            config = WAITS
            result_of(await node.add(other, "web-3", config=config))  # felix has read all by now
            assert traces(node, LINK, address) == before
            assert (await node.delete(other, "web-3")).status == 0
        await a_newer_sandbox_has_its_route(node)
        assert (await node.delete(pod)).status == 0
        node.assert_clean()


async def a_newer_sandbox_has_its_route(node: World) -> None:
    """The first one's link was in use until then, by felix too."""
    config = WAITS
    with pod_namespace("newer") as newer, pod_namespace("newest") as newest:
        for turn, space in enumerate((newer, newest, newer)):
            container = f"{turn + 7}" * 64
            done = await node.add(space, container=container, config=config)
            address = result_of(done)["ips"][0]["address"].removesuffix("/32")
            assert f"{address} dev {LINK} " in node.space.run("ip", "route"), turn
            if turn == 1:
                newer.run("ip", "link", "del", "eth0", check=False)
        for turn in range(3):
            assert (await node.delete(None, container=f"{turn + 7}" * 64)).status == 0


@pytest.mark.asyncio
async def test_every_offer_is_closed_by_the_revision_that_stored_it_or_taken_back(
    node: World, pod: Namespace
) -> None:
    """CNI-24: an ADD, the same once more, one that felix refuses, that of a pod that runs."""
    config = WAITS

    def said(peer: FelixPeer) -> list[str]:
        told = [type(m).__name__ for m in peer.messages if not isinstance(m, Await)]
        return told[told.index("Offer") :] if "Offer" in told else []

    async with FelixPeer(node.settings.felix_socket) as peer, node.daemon() as daemon:
        await until(lambda: daemon.context.felix.connected)
        key = ResourceKey("WorkloadEndpoint", f"{NODE}-k8s-web--1-eth0", "default")
        for _ in range(2):
            peer.messages.clear()
            result_of(await node.add(pod, config=config))
            await until(lambda: "Stored" in said(peer))
            assert said(peer) == ["Offer", "Stored"]
            (told,) = (m for m in peer.messages if isinstance(m, Stored))
            stored = await daemon.context.store.get(key)
            assert stored is not None
            assert told == Stored("default", key.name, container_id("web-1"), stored.revision)
        peer.error = "no"
        peer.messages.clear()
        assert (await node.add(pod, config=config)).status
        await until(lambda: "Stored" in said(peer))
        assert said(peer) == ["Offer", "Stored"], "the first ADD's pod runs on"
        with pod_namespace("other") as other:
            peer.messages.clear()
            assert (await node.add(other, "web-2", config=config)).status
            await until(lambda: "Retract" in said(peer))
            assert said(peer) == ["Offer", "Retract"]
        assert not daemon.context.felix._offers
