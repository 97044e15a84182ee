"""The address that a node registers: several interfaces, every method, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from libcalico.errors import MuslinError
from node.start import startup
from tests.node.world import resource, start
from tests.support.etcd import Etcd
from tests.support.netns import Namespace


def second_interface(machine: Namespace, address: str) -> None:
    """eth1, made after eth0."""
    machine.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth1-far")
    machine.run("ip", "address", "add", address, "dev", "eth1")
    machine.run("ip", "link", "set", "eth1", "up")


@pytest.mark.promise("M-200")
@pytest.mark.parametrize(
    ("method", "address"),
    [
        # docker0 is there too, and never taken unless it is named.
        ("first-found", "192.0.2.9/28"),
        ("interface=^eth0$", "10.99.1.1/24"),
        ("interface=docker.*", "172.17.0.1/16"),
        ("skip-interface=eth1", "10.99.1.1/24"),
        ("cidr=10.0.0.0/8", "10.99.1.1/24"),
        ("can-reach=10.99.1.77", "10.99.1.1/24"),
    ],
)
def test_two_interfaces_and_every_method(
    etcd_inside: Etcd,
    machine: Namespace,
    environ: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    method: str,
    address: str,
) -> None:
    caplog.set_level("INFO")
    second_interface(machine, "192.0.2.9/28")
    start(environ, IP="autodetect", IP_AUTODETECTION_METHOD=method)
    assert resource(etcd_inside, "nodes/node1")["spec"]["bgp"]["ipv4Address"] == address
    assert f"chose this node's IPv4 address {address}: " in caplog.text
    assert method.partition("=")[2] in caplog.text, "and why"


def test_first_found_is_the_highest_index_whatever_was_made_when(
    etcd_inside: Etcd,
    machine: Namespace,
    environ: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Calico's rule: interfaces in reverse kernel order, addresses in the kernel's own."""
    caplog.set_level("INFO")
    made = {
        "zz0": (90, "192.0.2.1/28"),
        "aa0": (200, "192.0.2.17/28"),
        "mm0": (70, "192.0.2.33/28"),
    }
    for name, (index, address) in made.items():
        machine.run("ip", "link", "add", name, "index", str(index), "type", "bridge")
        machine.run("ip", "address", "add", address, "dev", name)
    machine.run("ip", "address", "add", "192.0.2.18/28", "dev", "aa0")
    machine.run("ip", "link", "add", "docker1", "index", "210", "type", "bridge")
    machine.run("ip", "address", "add", "172.18.0.1/16", "dev", "docker1")
    listed = [line.split(": ")[1] for line in machine.run("ip", "-o", "link").splitlines()]
    assert [name for name in listed if name in made] == ["mm0", "zz0", "aa0"], "by index"
    start(environ, IP="autodetect", IP_AUTODETECTION_METHOD="first-found")
    chosen = resource(etcd_inside, "nodes/node1")["spec"]["bgp"]["ipv4Address"]
    assert chosen == "192.0.2.17/28", "though all links are down, and zz0 was made first"
    assert "before 192.0.2.1/28 on zz0, 192.0.2.33/28 on mm0, 10.99.1.1/24 on eth0" in caplog.text


@pytest.mark.promise("M-148")
def test_an_interface_without_a_subnet_is_warned_about(
    etcd_inside: Etcd,
    machine: Namespace,
    environ: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    second_interface(machine, "192.0.2.9/32")
    start(environ)
    assert resource(etcd_inside, "nodes/node1")["spec"]["bgp"]["ipv4Address"] == "192.0.2.9/32"
    assert "IP 192.0.2.9/32 has no subnet: cross-subnet pools will encapsulate" in caplog.text


def test_an_address_that_another_node_has(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    start(environ)
    other = {"NODENAME": "node2", "CALICO_NODENAME_FILE": environ["CALICO_NODENAME_FILE"] + "2"}
    with pytest.raises(MuslinError, match=r"Node\(node2\): the address 10\.99\.1\.1 belongs to"):
        start(environ | other)
    assert resource(etcd_inside, "nodes/node2") is None
    assert not Path(other["CALICO_NODENAME_FILE"]).exists()
    assert start(environ | other, DISABLE_NODE_IP_CHECK="true") == "node2"


def test_no_address_is_refused(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    with pytest.raises(MuslinError, match="IP_AUTODETECTION_METHOD"):
        start(environ, IP_AUTODETECTION_METHOD="interface=nothing")
    with pytest.raises(MuslinError, match="no address"):
        start(environ, IP="none")
    assert start(environ, CALICO_NETWORKING_BACKEND="none") == "node1"


def test_the_source_towards_a_host(machine: Namespace, environ: dict[str, str]) -> None:
    wish = {"IP_AUTODETECTION_METHOD": "can-reach=10.99.1.77"}
    asyncio.run(startup.start_up(environ | wish))
    with pytest.raises(MuslinError, match=r"can-reach=203\.0\.113\.1"):
        start(environ | {"NODENAME": "n2", "IP_AUTODETECTION_METHOD": "can-reach=203.0.113.1"})
