"""VXLAN devices and their FDB, over both families."""

from __future__ import annotations

import asyncio
import errno
from ipaddress import ip_address

import pytest

from linux import links, vxlan
from linux.monitor import NEIGHBOURS, Monitor
from linux.monitor.events import ForwardChanged
from linux.netlink import Socket
from linux.vxlan import Forward, Vxlan
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import patient

MAC, OTHER = "66:00:00:00:00:01", "66:00:00:00:00:02"


def parent(sock: Socket) -> int:
    return links.made(sock, links.create("br0", "bridge", up=True), "br0").index


def make(sock: Socket, wanted: Vxlan, mtu: int) -> links.Link:
    sock.request(vxlan.create("vx0", wanted, mac=MAC, mtu=mtu))
    found = links.get(sock, "vx0")
    assert found is not None
    return found


@pytest.mark.parametrize("text", ["10.1.1.1", "fd01::1"])
def test_a_device_reads_back_as_it_was_made(text: str) -> None:
    with network_namespace("vx") as space, space.entered(), Socket() as sock:
        wanted = Vxlan(4096, 4789, ip_address(text), parent(sock))
        link = make(sock, wanted, 1400)
        assert vxlan.decode(link) == wanted
        assert (link.mac, link.mtu, link.up) == (MAC, 1400, False)
        told = space.run("ip", "-d", "link", "show", "vx0")
        assert f"vxlan id 4096 local {text} dev br0" in told
        assert "dstport 4789" in told
        assert "nolearning" in told
        assert vxlan.decode(links.get(sock, "br0") or link) is None


@pytest.mark.parametrize(
    "words",
    [
        "id 5 dstport 4789 local 10.1.1.1 dev br0 nolearning",
        "id 4096 dstport 8472 local 10.1.1.1 dev br0 nolearning",
        "id 4096 dstport 4789 local 10.1.1.2 dev br0 nolearning",
        "id 4096 dstport 4789 local 10.1.1.1 nolearning",
        "id 4096 dstport 4789 local 10.1.1.1 dev br0",
        "id 4096 dstport 4789 local 10.1.1.1 dev br0 nolearning group 239.1.1.1",
        "id 4096 dstport 4789 local 10.1.1.1 dev br0 nolearning gbp",
        "id 4096 dstport 4789 local 10.1.1.1 dev br0 nolearning l2miss",
    ],
)
def test_a_device_that_was_made_otherwise_is_told_apart(words: str) -> None:
    with network_namespace("vx") as space, space.entered(), Socket() as sock:
        index = parent(sock)
        space.run(*f"ip link add vx0 type vxlan {words}".split())
        link = links.get(sock, "vx0")
        assert link is not None
        assert vxlan.decode(link) != Vxlan(4096, 4789, ip_address("10.1.1.1"), index)


@pytest.mark.parametrize("family", [4, 6])
def test_entries_come_change_and_go_and_are_told(family: int) -> None:
    local, first, second = (
        ip_address(text)
        for text in (("10.1.1.1", "10.1.1.2", "10.1.1.3"), ("fd01::1", "fd01::2", "fd01::3"))[
            family == 6
        ]
    )
    with network_namespace("vx") as space, space.entered(), Socket() as sock:
        wanted = Vxlan(4096, 4789, local, parent(sock))
        index = make(sock, wanted, 1400).index

        async def body() -> None:
            with Monitor(NEIGHBOURS) as monitor:
                for dst in (first, second):
                    sock.request(vxlan.replace_forward(index, OTHER, dst))
                    assert vxlan.forwards(sock, index) == [Forward(index, OTHER, dst)]
                    assert f"dst {dst} self permanent" in told(space)
                sock.request(vxlan.delete_forward(index, OTHER, second))
                async with asyncio.timeout(patient(5)):
                    async for batch in monitor.batches():
                        if ForwardChanged(Forward(index, OTHER, second), True) in batch:
                            break

        asyncio.run(body())
        assert vxlan.forwards(sock, index) == []
        gone = sock.transact([vxlan.delete_forward(index, OTHER, second)])[0]
        assert gone.errno == errno.ENOENT


def told(space: Namespace) -> str:
    return space.run("bridge", "fdb", "show", "dev", "vx0")
