"""The MTU: what follows from the host's links, the file, the devices, the pods that are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.encapsulation import Encapsulation
from felix.config.parameters import Config
from felix.dataplane.devices.mtu import UNKNOWN_HOST, MtuKeeper, host_mtu, mtus
from felix.dataplane.devices.view import KernelView
from felix.dataplane.devices.work import LinkWork
from linux import addresses, links
from linux.links import Link
from linux.netlink import Socket
from tests.felix.stage import conditions_of
from tests.felix.world import NODE, World
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import wait_for

PATTERN = Config().mtu_iface_pattern


def link(name: str, mtu: int, *, up: bool = True) -> Link:
    return Link(2, name, "", mtu, up, up, up, False, 6, "", 0, 0, None, 0, "", b"", b"")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([link("eth0", 1500), link("eth1", 1400)], 1400),
        ([link("enp0s3", 9000), link("docker0", 1500), link("lo", 65536)], 9000),
        ([link("eth0", 1400, up=False), link("wlan0", 1500)], 1500),
        ([link("cali1", 1300), link("tunl0", 1200)], UNKNOWN_HOST),
        ([], UNKNOWN_HOST),
    ],
)
def test_the_hosts_mtu_is_the_least_of_its_own_links(found: list[Link], expected: int) -> None:
    assert host_mtu(found, PATTERN) == expected


@pytest.mark.parametrize(
    ("used", "pod"),
    [
        (Encapsulation(), 1500),
        (Encapsulation(ipip=True), 1480),
        (Encapsulation(vxlan=True), 1450),
        (Encapsulation(ipip=True, vxlan_v6=True), 1430),
    ],
)
def test_pods_get_what_every_tunnel_in_use_carries(used: Encapsulation, pod: int) -> None:
    found = mtus(1500, Config(), used)
    assert (found.pod, found.ipip, found.vxlan, found.vxlan_v6) == (pod, 1480, 1450, 1430)


def test_parameters_count_instead() -> None:
    config = Config(ipip_mtu=1440, vxlan_mtu=1410, vxlan_mtu_v6=1390)
    assert mtus(1500, config, Encapsulation(ipip=True)).pod == 1440
    everything = Encapsulation(ipip=True, vxlan=True, vxlan_v6=True)
    assert mtus(9000, config, everything).pod == 1390
    assert mtus(1500, config, Encapsulation()).pod == 1500


@pytest.mark.promise("PAIN-21")
@given(
    host=st.integers(1280, 9000),
    used=st.builds(Encapsulation, ipip=st.booleans(), vxlan=st.booleans(), vxlan_v6=st.booleans()),
)
def test_no_tunnel_in_use_gets_packets_that_it_cannot_carry(host: int, used: Encapsulation) -> None:
    found = mtus(host, Config(), used)
    for wanted, size in (
        (used.ipip, found.ipip),
        (used.vxlan, found.vxlan),
        (used.vxlan_v6, found.vxlan_v6),
    ):
        assert not wanted or found.pod <= size
    assert found.pod <= found.host == host


def seen(sock: Socket) -> KernelView:
    view = KernelView(("cali",))
    view.replace_links(links.dump(sock), addresses.dump(sock))
    return view


def ip(space: Namespace, words: str) -> None:
    space.run("ip", *words.split())


def with_eth0(space: Namespace) -> None:
    ip(space, "link add eth0 mtu 1500 type veth peer name other")
    ip(space, "link set eth0 up")
    ip(space, "link set other up")


def test_the_file_and_the_devices_that_are_there(tmp_path: Path) -> None:
    file = tmp_path / "calico" / "mtu"
    keeper = MtuKeeper(file)
    used = Encapsulation(vxlan=True)
    with network_namespace("mtu") as space, space.entered():
        with_eth0(space)
        ip(space, "link add vxlan.calico type vxlan id 4096 dstport 4789 dev eth0")
        # The kernel may lack ipip: any link of the name stands for the device.
        ip(space, "link add tunl0 mtu 1300 type veth peer name t")
        sock = Socket()
        try:
            touched = keeper.commit(LinkWork(sock, seen(sock), Config(vxlan_mtu=1410), used=used))
            assert file.read_text() == "1410\n"
            after = seen(sock)
            vxlan, tunl0 = after.link_named("vxlan.calico"), after.link_named("tunl0")
            assert vxlan is not None
            assert tunl0 is not None
            # No pool uses IP in IP: that device is somebody else's.
            assert (vxlan.mtu, tunl0.mtu, touched) == (1410, 1300, {vxlan.index})
            assert keeper.commit(LinkWork(sock, after, Config(vxlan_mtu=1410), used=used)) == set()
            both = Encapsulation(ipip=True, vxlan=True)
            keeper.commit(LinkWork(sock, after, Config(ipip_mtu=1440, vxlan_mtu=1410), used=both))
            last = seen(sock).link_named("tunl0")
            assert last is not None
            assert last.mtu == 1440
        finally:
            sock.close()
    assert [entry.name for entry in file.parent.iterdir()] == ["mtu"]


def test_a_file_that_cannot_be_written_is_said_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "calico").touch()
    keeper = MtuKeeper(tmp_path / "calico" / "mtu")
    with network_namespace("mtu") as space, space.entered():
        sock = Socket()
        try:
            keeper.commit(LinkWork(sock, seen(sock), Config(), used=Encapsulation()))
            assert "calico" in keeper.problem
            (tmp_path / "calico").unlink()
            keeper.commit(LinkWork(sock, seen(sock), Config(), used=Encapsulation()))
            assert keeper.problem == ""
        finally:
            sock.close()
    assert (tmp_path / "calico" / "mtu").read_text() == f"{UNKNOWN_HOST}\n"


def test_a_device_that_was_refused_its_mtu_once_is_not_said_for_ever(tmp_path: Path) -> None:
    keeper = MtuKeeper(tmp_path / "mtu")
    used = Encapsulation(ipip=True, vxlan=True)
    with network_namespace("mtu") as space, space.entered():
        ip(space, "link add tunl0 mtu 1300 type veth peer name t")
        sock = Socket()
        try:
            for size, said in ((70_000, "set the MTU of tunl0 to 70000"), (1440, "")):
                config = Config(ipip_mtu=size, vxlan_mtu=1410)
                for _ in range(2):
                    keeper.commit(LinkWork(sock, seen(sock), config, used=used))
                    assert said in keeper.problem
            assert keeper.problem == ""
        finally:
            sock.close()


def mtu_file(world: World) -> str:
    path = world.folder / "run" / "var-lib" / "calico" / "mtu"
    return path.read_text().strip() if path.exists() else ""


def device_mtu(world: World, name: str) -> Callable[[], int]:
    return lambda: int(world.node.run("cat", f"/sys/class/net/{name}/mtu"))


@pytest.mark.promise("M-198")
@pytest.mark.promise("F-7")
def test_felix_follows_link_pool_and_parameter_without_a_restart(bare_world: World) -> None:
    world = bare_world
    world.etcd.start()
    world.write_cluster()
    world.ip("link add tunl0 mtu 1480 type veth peer name t")
    pod = world.add_pod("a", "cali0000000000a", "10.65.0.1")
    world.start_felix(FELIX_IPINIPMTU="1440")
    world.wait_ready()
    assert mtu_file(world) == "1500"
    assert conditions_of(world, "node") == []
    tunnel = device_mtu(world, "tunl0")
    assert tunnel() == 1480
    world.put("ippools", "tunnelled", "IPPool", {"cidr": "10.66.0.0/16", "ipipMode": "Always"})
    wait_for(lambda: mtu_file(world) == "1440")
    wait_for(lambda: tunnel() == 1440)
    # Somebody changes the device: it is put right.
    world.ip("link set tunl0 mtu 1300")
    wait_for(lambda: tunnel() == 1440)
    # The pod keeps its own, and is named.
    (named,) = wait_for(lambda: conditions_of(world, f"node {NODE}"))
    assert "default/a (1500)" in named
    assert int(pod.space.run("cat", "/sys/class/net/eth0/mtu")) == 1500
    world.delete("ippools", "tunnelled")
    wait_for(lambda: mtu_file(world) == "1500")
    wait_for(lambda: conditions_of(world, "node") == [])
    world.ip("link set eth0 mtu 1400")
    wait_for(lambda: mtu_file(world) == "1400")
    assert world.process is not None
    assert world.process.poll() is None
