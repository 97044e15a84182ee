"""`calico-ipam` under the reference plugins bridge, ptp and macvlan, and by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cni.request.result import SUPPORTED_VERSIONS
from tests.cni.world import CIDR4, World, container_id, node_world, pod_namespace, result_of
from tests.support.netns import Namespace
from tests.support.patience import until

PLUGINS = Path("/usr/lib/cni")
OTHERS: dict[str, dict[str, Any]] = {
    "bridge": {"bridge": "cni0"},
    "ptp": {},
    "macvlan": {"master": "uplink"},
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        folder = tmp_path / "bin"
        folder.mkdir()
        shutil.copy(world.build.plugin("calico-ipam"), folder / "calico-ipam")
        world.plugins = f"{folder}:{PLUGINS}"
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


@pytest.mark.asyncio
@pytest.mark.promise("M-61", "M-80")
@pytest.mark.cni("DLG-18", "IPM-01")
async def test_other_main_plugins_take_addresses_of_our_pools(node: World, pod: Namespace) -> None:
    async with node.daemon():
        for number, (main, extra) in enumerate(OTHERS.items()):
            config = {"type": main, "name": f"net-{main}", "ipam": {"type": "calico-ipam"}} | extra
            call: dict[str, Any] = {
                "config": config,
                "plugin": PLUGINS / main,
                "ifname": f"net{number}",
            }
            result = result_of(await node.cni("ADD", pod, "web-1", **call))
            address = result["ips"][0]["address"]
            assert address.endswith("/28"), "the mask of the block"
            assert address.partition("/")[0] in pod.run("ip", "-4", "addr", "show", f"net{number}")
            assert node.in_use() == 1
            previous = {"prevResult": result, **config}
            checked = await node.cni("CHECK", pod, "web-1", **call | {"config": previous})
            assert checked.status == 0, checked
            gone = await node.cni("DEL", pod, "web-1", **call)
            assert (gone.status, node.in_use(), node.handles()) == (0, 0, {}), gone


@pytest.mark.asyncio
@pytest.mark.promise("M-59", "M-61")
async def test_two_interfaces_of_a_container_are_distinct(node: World) -> None:
    async def ask(command: str, ifname: str, **config: Any) -> Any:
        # A namespace that is none: it is never opened.
        done = await node.cni(
            command, None, "web-1", ifname=ifname, config=config, plugin="calico-ipam",
            CNI_NETNS="nonsense",
        )  # fmt: skip
        return json.loads(done.stdout) if done.stdout else done.status

    async with node.daemon():
        for version in SUPPORTED_VERSIONS:
            result = await ask("ADD", "eth0", cniVersion=version)
            flat = version in ("0.1.0", "0.2.0")
            assert result["cniVersion"] == version
            assert "interfaces" not in result
            assert "interface" not in (result["ip4"] if flat else result["ips"][0])
            assert node.in_use() == 1, "the same addresses again"
        first = (await ask("ADD", "eth0"))["ips"][0]["address"]
        second = (await ask("ADD", "net1"))["ips"][0]["address"]
        assert first != second
        assert list(node.handles()) == [f"k8s-pod-network.{container_id('web-1')}"]

        good = {"cniVersion": "1.0.0", "ips": [{"address": first}]}
        assert await ask("CHECK", "eth0", prevResult=good) == 0
        wrong = {"cniVersion": "1.0.0", "ips": [{"address": second}]}
        assert "is not allocated" in (await ask("CHECK", "eth0", prevResult=wrong))["msg"]
        assert (await ask("CHECK", "eth0"))["code"] == 7
        assert (await ask("CHECK", "net9", prevResult=good))["code"] == 3

        keep = [{"containerID": container_id("web-1"), "ifname": "eth0"}]
        newest = {"cniVersion": "1.1.0", "cni.dev/valid-attachments": keep}
        assert await ask("GC", "", **newest) == 0
        assert node.in_use() == 1
        assert await ask("CHECK", "eth0", prevResult=good) == 0
        assert await ask("STATUS", "", cniVersion="1.1.0") == 0
        for _ in range(2):
            assert await ask("DEL", "eth0") == 0
        node.assert_clean()


@pytest.mark.asyncio
async def test_requested_addresses_and_families(node: World) -> None:
    async def ask(command: str, **more: Any) -> Any:
        done = await node.cni(
            command, None, "", container="c1", plugin="calico-ipam", CNI_NETNS="b", **more
        )
        return json.loads(done.stdout) if done.stdout else done.status

    wanted = CIDR4.replace(".0/24", ".77")
    async with node.daemon():
        result = await ask("ADD", CNI_ARGS=f"IP={wanted}")
        assert result["ips"] == [{"address": f"{wanted}/32"}]
        both = {"ipam": {"type": "calico-ipam", "assign_ipv6": "true"}}
        result = await ask("ADD", config=both)
        assert [ip["address"].rpartition("/")[2] for ip in result["ips"]] == ["28", "124"]
        assert node.in_use() == 2, "what did not serve any more was given back"
        refused = await ask("ADD", CNI_ARGS="IP=192.0.2.1")
        assert "192.0.2.1" in refused["msg"]
        await ask("DEL")
        node.assert_clean()


@pytest.mark.asyncio
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_an_operator_deletes_of_a_container_that_runs_is_put_back(
    node: World, pod: Namespace, restarted: bool
) -> None:
    """CNI-83: block, claim and handle, as `etcdctl del` takes them."""
    config = {"type": "bridge", "name": "net", "bridge": "cni0", "ipam": {"type": "calico-ipam"}}
    call: dict[str, Any] = {"config": config, "plugin": PLUGINS / "bridge", "ifname": "net1"}

    def held() -> list[str]:
        return sorted(
            allocation["handle_id"]
            for value in node.stored("/calico/ipam/v2/assignment/").values()
            for allocation in value["attributes"]
        )

    async with node.daemon() as daemon:
        address = result_of(await node.cni("ADD", pod, "web-1", **call))["ips"]
        before = held()
        if not restarted:
            node.etcd.delete("/calico/ipam/v2/")
            daemon.context.records.comparison_due.set()
            await until(lambda: held() == before)
            daemon.context.records.flush()
    if restarted:
        node.etcd.delete("/calico/ipam/v2/")
    async with node.daemon(prepare=False) as daemon:
        await until(lambda: held() == before)
        with pod_namespace() as other:
            next_one = result_of(await node.cni("ADD", other, "web-2", **call))["ips"]
            assert next_one != address
            assert (await node.cni("DEL", other, "web-2", **call)).status == 0
        assert (await node.cni("DEL", pod, "web-1", **call)).status == 0
        assert (node.in_use(), node.handles(), daemon.context.records.all()) == (0, {}, [])


@pytest.mark.asyncio
async def test_an_address_of_a_container_that_runs_is_given_to_no_other(
    node: World, pod: Namespace
) -> None:
    async def ask(command: str, name: str, space: Namespace | None) -> Any:
        done = await node.cni(
            command, space, name, plugin="calico-ipam", config={"ipam": {"type": "calico-ipam"}}
        )
        return json.loads(done.stdout) if done.stdout else done.status

    async with node.daemon() as daemon:
        address = (await ask("ADD", "web-1", pod))["ips"][0]["address"]
        (record,) = daemon.context.records.all()
        assert record.stands({})
        for name in ("ipam/v2/assignment/", "ipam/v2/handle/"):
            node.etcd.delete(f"/calico/{name}")
        with pod_namespace() as gone:
            second = await ask("ADD", "web-2", gone)
            if "ips" in second:
                assert second["ips"][0]["address"] != address
            else:
                assert (second["code"], "is in use on this node" in second["msg"]) == (11, True)
        late = [one for one in daemon.context.records.all() if "web-2" in str(one.attachment)]
        assert not any(one.stands({}) for one in late), "its namespace is gone"
