"""A running pod's endpoint and addresses are back after a deletion, with a real etcd and kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cni.node.felix_client import Subject
from cni.node.records import Record
from cni.server import restore
from cni.server.daemon import Daemon
from cni.server.restore import Restorer
from ipam.admin import node_removal
from ipam.allocator import affinities
from ipam.allocator.requests import Allocate
from ipam.allocator.view import View
from libcalico.datastore.interface import Entry, Put, Selection
from libcalico.errors import DatastoreFull, DatastoreUnavailable
from libcalico.model import IPPool, ResourceKey
from tests.cni.world import (
    HERE,
    NETWORK,
    NODE,
    WAITS,
    World,
    container_id,
    node_world,
    pod_namespace,
    put_pool,
    result_of,
)
from tests.support.patience import HANG, until

KEY = ResourceKey("Node", NODE)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


def addresses(done: Any) -> list[str]:
    return [one["address"] for one in result_of(done)["ips"]]


def held(node: World) -> dict[str, Any]:
    """What is stored of pods, without what each write changes."""
    found = {}
    for name, value in node.endpoints().items():
        value["metadata"].pop("resourceVersion", None)
        found[name] = value
    return {"endpoints": found, "handles": node.handles(), "in use": node.in_use()}


async def entry_of(daemon: Daemon, key: ResourceKey) -> Entry:
    entry = await daemon.context.store.get(key)
    assert entry is not None
    return entry


async def remove_node(daemon: Daemon) -> None:
    """The Node with all that is its own, as one step for a daemon that lives.

    Between them it would write a block again, which goes before the Node.
    """
    async with daemon.context.allocator._turn:
        await node_removal.remove(daemon.context.store, await entry_of(daemon, KEY))
        await until(lambda: not daemon.context.cluster.has_node(NODE))


@pytest.mark.asyncio
async def test_pods_of_a_node_that_was_deleted_are_put_back_when_it_is_there(
    node: World, caplog: pytest.LogCaptureFixture
) -> None:
    with pod_namespace() as first, pod_namespace() as second, pod_namespace() as other:
        async with node.daemon() as daemon:
            store = daemon.context.store
            await store.commit([Put(KEY, HERE)])
            both = {"ipam": {"type": "calico-ipam", "assign_ipv6": "true"}}
            had = addresses(await node.add(first, "first", config=both))
            assert len(had) == 2
            had += addresses(await node.add(second, "second"))
            before = held(node)
            await remove_node(daemon)
            assert (node.endpoints(), node.handles()) == ({}, {})
            assert "does not exist" in str(daemon._status()["conditions"])
            await store.commit([Put(KEY, HERE)])
            await until(lambda: held(node) == before)
            # It is told once the datastore has answered, which shows it earlier.
            await until(lambda: caplog.text.count("was missing from the datastore: put back") == 2)
            assert daemon.restorer.lost == {}
            # The collector's word may be of the time without a Node, until its next sweep.
            assert "does not exist" not in str(daemon._status()["conditions"])
            (fresh,) = addresses(await node.add(other, "other"))
            assert fresh not in had
            for space, name in ((first, "first"), (second, "second"), (other, "other")):
                assert (await node.delete(space, name)).status == 0
        node.assert_clean()
        assert list(node.settings.attachments.glob("*")) == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "what", ["endpoint", "handle", "handle and block", "block", "everything", "pool off"]
)
async def test_what_an_operator_deletes_of_a_running_pod_is_put_back(
    node: World, what: str
) -> None:
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            result_of(await node.add(pod))
            before = held(node)
            if what == "pool off":
                store = daemon.context.store
                await put_pool(store, "pool4", "10.65.0.0/24", 28, disabled=True)
                pools = (await store.list(Selection("IPPool"))).entries
                assert any(isinstance(p.value, IPPool) and p.value.spec.disabled for p in pools)
            if what != "block":
                node.etcd.delete("/calico/ipam/v2/handle/" if "handle" in what else "/calico/none")
            if what in ("endpoint", "everything"):
                node.etcd.delete("/calico/resources/v3/projectcalico.org/workloadendpoints/")
            if what not in ("endpoint", "handle"):
                node.etcd.delete("/calico/ipam/v2/assignment/")
            if what in ("everything", "pool off"):
                node.etcd.delete("/calico/ipam/v2/handle/")
                node.etcd.delete("/calico/ipam/v2/host/")
            assert held(node) != before
            looked = daemon.restorer.looked
            daemon.context.records.comparison_due.set()
            await until(lambda: node.in_use() == 1 and held(node)["endpoints"])
            await until(lambda: daemon.restorer.looked > looked and node.handles())
            assert daemon.restorer.lost == {}
            after = held(node)
            assert (after["endpoints"], after["in use"]) == (before["endpoints"], before["in use"])
            assert list(after["handles"]) == list(before["handles"])
            await until(lambda: len(node.stored("/calico/ipam/v2/host/")) == 1)
            assert (await node.delete(pod)).status == 0
        node.assert_clean()


@pytest.mark.asyncio
@pytest.mark.parametrize("claim", ["stands", "deleted"])
@pytest.mark.parametrize("daemon_was", ["running", "started again"])
async def test_a_block_is_made_anew_with_what_runs_and_has_no_endpoint_any_more(
    node: World, monkeypatch: pytest.MonkeyPatch, claim: str, daemon_was: str
) -> None:
    """IPAM-31: other nodes would borrow the address that only this node remembers."""

    async def later(_: Restorer) -> None:
        return None

    monkeypatch.setattr(Restorer, "look", later)
    keys = ["/calico/ipam/v2/assignment/", "/calico/resources/v3/projectcalico.org/workloadend"]
    keys += ["/calico/ipam/v2/host/"] if claim == "deleted" else []
    another = Allocate("another", {"node": NODE})
    with pod_namespace() as runs:
        async with node.daemon() as daemon:
            had = addresses(await node.add(runs, "runs"))
            if daemon_was == "running":
                for key in keys:
                    node.etcd.delete(key)
                fresh = await daemon.context.allocator.perform(another)
        if daemon_was == "started again":
            for key in keys:
                node.etcd.delete(key)
            async with node.daemon() as daemon:
                fresh = await daemon.context.allocator.perform(another)
        assert str(fresh.addresses[0]) not in had[0]
        (block,) = node.stored("/calico/ipam/v2/assignment/").values()
        given = {one["handle_id"] for one in block["attributes"]}
        assert given == {f"{NETWORK}.{container_id('runs')}", "another"}


@pytest.mark.asyncio
async def test_an_address_in_use_here_is_not_given_out_again(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-100: whatever the datastore says of the first block."""

    async def later() -> None:
        return None

    with pod_namespace() as runs, pod_namespace() as comes:
        async with node.daemon() as daemon:
            had = addresses(await node.add(runs, "runs"))
            monkeypatch.setattr(daemon.restorer, "look", later)
            (record,) = daemon.context.records.all()
            block = ip_network(had[0]).supernet(new_prefix=28)
            everything = msgspec.structs.replace(record, addresses=tuple(block))
            daemon.context.records.remember(everything)
            refused = await node.add(comes, "comes")
            assert refused.error["code"] == 11
            assert "is in use on this node by default/runs eth0" in refused.error["msg"]
            assert node.in_use() == 1
            assert len(node.links()) == 1
            daemon.context.records.remember(record)
            assert addresses(await node.add(comes, "comes")) != had


@pytest.mark.asyncio
async def test_what_another_one_has_by_now_is_left_and_told(
    node: World, caplog: pytest.LogCaptureFixture
) -> None:
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            (address,) = addresses(await node.add(pod, "web-1"))
            theirs = node.etcd.ctl("get", "--prefix", "/calico/ipam/v2/assignment/").decode()
            key, value = theirs.splitlines()
            mine = container_id("web-1")
            node.etcd.put(key, value.replace(f"k8s-pod-network.{mine}", "k8s-pod-network.other"))
            node.etcd.delete("/calico/ipam/v2/handle/")
            daemon.context.records.comparison_due.set()
            await until(lambda: daemon.restorer.lost)
            assert address.partition("/")[0] in str(daemon.restorer.lost)
            (told,) = daemon._conditions()
            assert told["object"] == "default/web-1 eth0"
            assert "other" in told["reason"]
            assert "start it again" in told["reason"]
            assert "cannot be put back" in caplog.text
            stored = node.etcd.ctl("get", "--prefix", "/calico/ipam/v2/assignment/").decode()
            assert "k8s-pod-network.other" in stored


@pytest.mark.asyncio
async def test_one_that_stays_lost_is_tried_again_alone_and_more_and_more_seldom(
    node: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cni.server.restore.AGAIN", 0.02)
    monkeypatch.setattr("cni.server.restore.SELDOM", 0.5)
    with pod_namespace() as lost, pod_namespace() as well:
        async with node.daemon() as daemon:
            result_of(await node.add(lost, "lost"))
            result_of(await node.add(well, "well"))
            (key, value) = (
                node.etcd.ctl("get", "--prefix", "/calico/ipam/v2/assignment/")
                .decode()
                .splitlines()
            )
            handle = f"k8s-pod-network.{container_id('lost')}"
            node.etcd.put(key, value.replace(handle, "k8s-pod-network.other"))
            node.etcd.delete(f"/calico/ipam/v2/handle/{handle}")
            daemon.context.records.comparison_due.set()
            await until(lambda: daemon.restorer.lost)
            asked: list[str] = []
            get_many = daemon.context.store.get_many

            async def spied(keys: Any) -> Any:
                asked.extend(str(one) for one in keys)
                return await get_many(keys)

            monkeypatch.setattr(daemon.context.store, "get_many", spied)
            await until(lambda: daemon.restorer.gap > 0.35)
            assert any("-lost-" in one for one in asked)
            assert not [one for one in asked if "-well-" in one]
            assert caplog.text.count("cannot be put back") == 1
            node.etcd.put(key, value)
            await until(lambda: not daemon.restorer.lost)
            await until(lambda: daemon.restorer.gap > 100)
            assert len(node.handles()) == 2


@pytest.mark.asyncio
async def test_a_handle_that_could_not_be_put_back_is_looked_for_until_it_is_there(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where handles are compared only after a block was made anew, as with Kubernetes."""
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            restorer = daemon.restorer
            await until(lambda: restorer.gap > 60)
            result_of(await node.add(pod))
            restorer._stored.native = restorer._handles_too = True
            node.etcd.delete("/calico/ipam/v2/handle/")

            async def away(_: Record) -> None:
                raise DatastoreUnavailable("away")

            with monkeypatch.context() as patch:
                patch.setattr(restorer, "_put_back", away)
                await restorer.look()
                assert list(restorer.lost.values()) == ["away"]
                await restorer.look_again()
                assert list(restorer.lost.values()) == ["away"]
            await restorer.look()
            assert restorer.lost == {}
            assert len(node.handles()) == 1
            assert not restorer._handles_too, "no request more than is needed"


@pytest.mark.asyncio
async def test_handles_are_compared_as_soon_as_a_block_was_made_anew(node: World) -> None:
    """On Kubernetes; nobody else would look for one, and a DEL finds no address without it."""
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            restorer = daemon.restorer
            await until(lambda: restorer.gap > 60)
            result_of(await node.add(pod, "runs"))
            restorer._stored.native, restorer._handles_too = True, False
            for key in ("/calico/ipam/v2/handle/", "/calico/ipam/v2/assignment/"):
                node.etcd.delete(key)
            await daemon.context.allocator.perform(Allocate("another", {"node": NODE}))
            handles = {f"{NETWORK}.{container_id('runs')}", "another"}
            await until(lambda: node.handles().keys() == handles)


@pytest.mark.asyncio
async def test_a_block_that_another_node_made_anew_is_compared_at_once(node: World) -> None:
    """Block and claim were deleted, and another node is faster: it may give the address next."""
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            await until(lambda: daemon.restorer.gap > 100)
            (had,) = addresses(await node.add(pod, "runs"))
            handle = f"{NETWORK}.{container_id('runs')}"
            store = daemon.context.store
            async with daemon.context.allocator._turn:
                node.etcd.delete("/calico/ipam/v2/assignment/")
                node.etcd.delete("/calico/ipam/v2/host/")
                block = ip_network(had).supernet(new_prefix=28)
                assert await affinities.claim(store, View(), "other", block)
            await until(lambda: node.in_use() == 1)
            (made,) = node.stored("/calico/ipam/v2/assignment/").values()
            assert (made["affinity"], made["attributes"][0]["handle_id"]) == ("host:other", handle)
            assert daemon.restorer.lost == {}
            (claim,) = node.stored("/calico/ipam/v2/host/")
            assert "/host/other/" in claim


@pytest.mark.asyncio
async def test_what_went_with_the_claim_is_put_back_unless_the_node_is_being_removed(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its Node goes last: what is only remembered is not written in the middle."""
    monkeypatch.setattr("cni.server.restore.REMOVAL", 1.0)
    monkeypatch.setattr("cni.server.restore.AGAIN", 0.02)
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            await until(lambda: daemon.restorer.gap > 100)
            result_of(await node.add(pod, "runs"))
            before = held(node)
            await remove_node(daemon)
            await until(lambda: daemon.restorer.gap < 1)
            assert held(node) == {"endpoints": {}, "handles": {}, "in use": 0}
            await daemon.context.store.commit([Put(KEY, HERE)])
            await until(lambda: held(node) == before)
            await until(lambda: daemon.restorer.gap > 100)
            node.etcd.delete("/calico/resources/v3/projectcalico.org/workloadendpoints/")
            node.etcd.delete("/calico/ipam/v2/")
            await until(lambda: held(node) == before)


@pytest.mark.asyncio
@pytest.mark.parametrize("hindered", ["away", "locked"])
async def test_a_comparison_that_was_not_possible_is_made_as_soon_as_it_is(
    node: World, monkeypatch: pytest.MonkeyPatch, hindered: str
) -> None:
    """Not with the next audit only, though nothing was lost before."""
    monkeypatch.setattr("cni.server.restore.AGAIN", 0.02)
    monkeypatch.setattr("cni.server.restore.SELDOM", 0.1)
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            context, restorer = daemon.context, daemon.restorer
            result_of(await node.add(pod, "runs"))
            await until(lambda: restorer.gap > 100)
            endpoints = node.endpoints()

            async def away(_: Any) -> Any:
                raise DatastoreUnavailable("away")

            with monkeypatch.context() as patch:
                if hindered == "away":
                    patch.setattr(context.store, "get_many", away)
                else:
                    patch.setattr(type(context.cluster), "locked", True)
                node.etcd.delete("/calico/resources/v3/projectcalico.org/workloadendpoints/")
                context.records.comparison_due.set()
                await until(lambda: restorer.gap < 1)
                assert not node.endpoints()
            await until(lambda: node.endpoints().keys() == endpoints.keys())
            await until(lambda: restorer.gap > 100)


@pytest.mark.asyncio
async def test_a_block_that_cannot_be_made_anew_is_asked_for_more_and_more_seldom(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try reads all endpoints of the cluster: what it asks of the pods here is no reason for
    the next one.
    """
    monkeypatch.setattr("cni.server.restore.AGAIN", 0.02)
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            result_of(await node.add(pod, "runs"))

            async def full(*_: Any, **__: Any) -> None:
                raise DatastoreFull("no space")

            with monkeypatch.context() as patch:
                patch.setattr("ipam.allocator.affinities._confirmed", full)
                patch.setattr("ipam.allocator.affinities._set_pending", full)
                node.etcd.delete("/calico/ipam/v2/assignment/")
                daemon.context.records.comparison_due.set()
                await until(lambda: daemon.restorer.lost)
                daemon.restorer.gap = 0.0
                await until(lambda: daemon.restorer.gap > 1.5)
                looked = daemon.restorer.looked
                await asyncio.sleep(0.3)
                assert daemon.restorer.looked <= looked + 1
            await until(lambda: not daemon.restorer.lost)


@pytest.mark.asyncio
@pytest.mark.parametrize("records", ["kept", "lost"])
async def test_a_daemon_that_was_started_again_knows_its_pods(node: World, records: str) -> None:
    with pod_namespace() as pod:
        async with node.daemon():
            result_of(await node.add(pod))
            before = held(node)
        (file,) = node.settings.attachments.iterdir()
        assert file.stat().st_mode & 0o077 == 0
        if records == "lost":
            file.unlink()
        else:
            # Deleted while no daemon ran.
            node.etcd.delete("/calico/resources/v3/projectcalico.org/workloadendpoints/")
            node.etcd.delete("/calico/ipam/v2/")
        async with node.daemon(prepare=False) as daemon:
            await until(lambda: daemon.restorer.looked > 0)
            await until(lambda: held(node)["endpoints"] == before["endpoints"])
            await until(lambda: len(list(node.settings.attachments.iterdir())) == 1)
            node.etcd.delete("/calico/resources/v3/projectcalico.org/workloadendpoints/")
            daemon.context.records.comparison_due.set()
            await until(lambda: held(node)["endpoints"] == before["endpoints"])
            assert node.in_use() == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("what", ["workloadendpoint", "block"])
async def test_what_cannot_be_read_keeps_no_other_pod_from_being_put_back(
    node: World, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    with pod_namespace() as bad, pod_namespace() as good:
        async with node.daemon() as daemon:
            both = {"ipam": {"type": "calico-ipam", "assign_ipv6": "true"}}
            result_of(await node.add(bad, "bad", config=both if what == "block" else None))
            result_of(await node.add(good, "good"))
            daemon.context.records.comparison_due.set()
            await until(lambda: daemon.restorer.looked > 0)
            before = node.endpoints()
            prefix = "/calico/resources/v3/projectcalico.org/workloadendpoints/"
            (broken,) = [
                key
                for key in node.stored(prefix if what == "workloadendpoint" else "/calico/ipam/v2/")
                if "-bad-" in key or "/assignment/ipv6/" in key
            ]
            node.etcd.put(broken, '{"spec": 1, "cidr": 1}')
            (deleted,) = [key for key in node.stored(prefix) if "-good-" in key]
            node.etcd.delete(deleted)
            daemon.context.records.comparison_due.set()
            await until(lambda: deleted in node.stored(prefix))
            assert node.endpoints().keys() == before.keys()
            assert caplog.text.count("cannot be compared with the datastore") == 1


@pytest.mark.asyncio
async def test_a_record_of_a_container_before_hides_no_pod_that_runs(node: World) -> None:
    """An earlier release ran meanwhile, kept no records, and started the pod of this name anew."""
    with pod_namespace() as old, pod_namespace() as new:
        async with node.daemon() as daemon:
            result_of(await node.add(old))
            daemon.context.records.flush()
            (file,) = node.settings.attachments.iterdir()
            before = file.read_bytes()
            assert (await node.delete(old)).status == 0
            result_of(await node.add(new, container="the-new-one"))
        file.write_bytes(before)
        async with node.daemon(prepare=False) as daemon:
            await until(lambda: daemon.restorer.looked > 0)
            (record,) = daemon.context.records.all()
            assert record.attachment.container_id == "the-new-one"


@pytest.mark.asyncio
async def test_what_does_not_run_is_not_put_back(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reboot: the records are there, and no link (CNI-102)."""
    monkeypatch.setattr(restore, "GAP_SECONDS", 0.1)
    with pod_namespace() as pod:
        async with node.daemon():
            result_of(await node.add(pod))
        node.space.run("ip", "link", "delete", node.links()[0])
        node.etcd.delete("/calico/resources/v3/projectcalico.org/workloadendpoints/")
        node.etcd.delete("/calico/ipam/v2/")
        async with node.daemon(prepare=False) as daemon:
            await until(lambda: not daemon.context.records.all())
            assert held(node) == {"endpoints": {}, "handles": {}, "in use": 0}
            assert list(node.settings.attachments.glob("*")) == []


@pytest.mark.asyncio
async def test_a_pod_whose_link_is_renamed_for_a_moment_keeps_its_address(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a block that is made anew meanwhile gives it to another one (CNI-102, CNI-100)."""
    monkeypatch.setattr(restore, "GAP_SECONDS", 10 * HANG)  # its test is no race
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            (had,) = addresses(await node.add(pod, "runs"))
            before = held(node)
            (link,) = node.links()
            node.space.run("ip", "link", "set", link, "name", "renamed")
            looked = daemon.restorer.looked
            daemon.context.records.comparison_due.set()
            await until(lambda: daemon.restorer.looked > looked)
            assert 0 < daemon.restorer._sooner(100 * HANG) <= 10 * HANG
            with monkeypatch.context() as long_ago:
                long_ago.setattr(restore, "GAP_SECONDS", 0.0)
                assert daemon.restorer._sooner(5.0) == 5.0, "a store that is away is not pressed"
            node.etcd.delete("/calico/resources/v3/projectcalico.org/workloadendpoints/")
            node.etcd.delete("/calico/ipam/v2/assignment/")
            another = Allocate("another", {"node": NODE})
            fresh = await daemon.context.allocator.perform(another)
            assert str(fresh.addresses[0]) not in had
            node.space.run("ip", "link", "set", "renamed", "name", link)
            daemon.context.records.comparison_due.set()
            await until(lambda: held(node)["endpoints"] == before["endpoints"])
            assert held(node)["in use"] == before["in use"] + 1


@pytest.mark.asyncio
async def test_felix_enforces_and_routes_what_was_put_back(node: World) -> None:
    with pod_namespace() as pod:
        async with node.felix() as felix, node.daemon(felix_socket=felix.socket) as daemon:
            store = daemon.context.store
            await store.commit([Put(KEY, HERE)])
            (address,) = addresses(await node.add(pod, config=WAITS))
            route = f"{address.partition('/')[0]} dev cali"
            await until(lambda: route in node.space.run("ip", "route"))
            await remove_node(daemon)
            await until(lambda: route not in node.space.run("ip", "route"))
            await store.commit([Put(KEY, HERE)])
            await until(lambda: route in node.space.run("ip", "route"))
            chain = f"cali-tw-{node.links()[0]}"
            await until(lambda: chain in node.space.run("iptables-nft-save"))
            assert (await node.delete(pod)).status == 0


@pytest.mark.asyncio
async def test_an_endpoint_that_is_deleted_by_name_is_put_back_when_felix_tells(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a container that this node does not remember nothing is compared.

    Nor on Kubernetes, where a Pod that is gone does not come back.
    """
    monkeypatch.setattr("cni.server.restore.REMOVAL", 0.2)
    with pod_namespace() as pod:
        async with node.felix() as felix, node.daemon(felix_socket=felix.socket) as daemon:
            result_of(await node.add(pod, config=WAITS))
            before = held(node)
            await until(lambda: daemon.restorer.gap > 100)
            looked = daemon.restorer.looked
            node.etcd.delete("/calico/resources/v3/projectcalico.org/workloadendpoints/")
            await until(lambda: held(node) == before)
            await until(lambda: daemon.restorer.looked > looked)
            (record,) = daemon.context.records.all()
            place = record.key.namespace, record.key.name
            daemon.restorer.vanished(Subject(*place, "another"))
            assert daemon.restorer._later is None
            with monkeypatch.context() as kubernetes:
                kubernetes.setattr(daemon.restorer._stored, "native", True)
                daemon.restorer.vanished(Subject(*place, record.attachment.container_id))
            assert daemon.restorer._later is None
            assert (await node.delete(pod)).status == 0
        node.assert_clean()
