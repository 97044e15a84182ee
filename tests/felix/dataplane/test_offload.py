"""A network card that fills in checksums wrongly inside VXLAN is found, named, and gone around.

 [ node 10.99.7.1 ] eth0 == VXLAN == a cable that lies == [ outside 10.99.7.2 ] pod 10.65.1.1

The other node's side is that of tests/felix/kernel/test_vxlan.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from felix.dataplane.devices import offload as keeper
from linux import offload
from linux.errors import KernelError
from tests.felix.kernel.test_vxlan import OTHER, THEIR_BLOCK, become_a_node, put_nodes, set_pools
from tests.felix.lying_cable import Cable, lying_cable
from tests.felix.stage import conditions_of
from tests.felix.world import NODE, World, make_world
from tests.support.netns import Namespace
from tests.support.patience import wait_for

DEVICE = "vxlan.calico"
TOLD = "checksums that are left to the network card are wrong at 10.65.1.0"


@pytest.fixture(scope="module")
def cabled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Cable]]:
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.ip("link delete eth0")
        with lying_cable(world.node, world.outside) as cable:
            for space, number in ((world.node, 1), (world.outside, 2)):
                space.run(*f"ip addr add 10.99.7.{number}/24 dev eth0".split())
                space.run(*f"ip addr add 2001:db8:7::{number}/64 dev eth0 nodad".split())
                space.run("ip", "link", "set", "eth0", "up")
            world.outside.run("ip", "route", "add", "10.65.0.0/16", "dev", "eth0")
            world.environment["CALICO_NETWORKING_BACKEND"] = "vxlan"
            world.etcd.start()
            world.write_cluster()
            set_pools(world, "Always")
            put_nodes(world)
            world.put_block(THEIR_BLOCK, OTHER)
            become_a_node(world)
            world.add_pod("a", "calia", "10.65.0.1")
            yield world, cable


@pytest.fixture
def running(cabled: tuple[World, Cable]) -> Iterator[tuple[World, Cable]]:
    """A felix that begins with a new device."""
    world, cable = cabled
    world.start_felix(FELIX_IPV6SUPPORT="false")
    world.wait_ready()
    yield world, cable
    world.delete("felixconfigurations", "default")
    world.stop_felix()
    world.ip(f"link delete {DEVICE}")


def switched_on(world: World) -> bool:
    """Whether the device leaves checksums to what is behind it."""
    try:
        return world.node.call(lambda: offload.tx_checksum(DEVICE))
    except KernelError as error:
        raise AssertionError(str(error)) from error


def connects(space: Namespace) -> bool:
    """Whether a TCP connection through the tunnel is refused by the other node's own kernel."""
    code = (
        "import socket, sys\n"
        "s = socket.socket(); s.settimeout(2)\n"
        "sys.exit(0 if s.connect_ex(('10.65.1.1', 9)) == 111 else 1)"
    )
    command = space.command(sys.executable, "-I", "-S", "-c", code)
    return subprocess.run(command, check=False).returncode == 0


def override(world: World, value: str) -> None:
    world.put(
        "felixconfigurations", "default", "FelixConfiguration", {"featureDetectOverride": value}
    )


@pytest.mark.promise("PAIN-22", "F-60")
def test_a_broken_offload_is_found_switched_off_and_named(running: tuple[World, Cable]) -> None:
    world, cable = running
    cable.honest = False
    pod = world.pods[0]
    pod.until_reached("10.65.1.1", "pings hide it")
    wait_for(lambda: not switched_on(world))
    wait_for(lambda: any(TOLD in told for told in conditions_of(world, f"Node({NODE})")))
    assert cable.lies > 0
    wait_for(lambda: connects(pod.space), "connections work without the offload")
    # An operator who knows better: it is as asked, and nothing is told any more.
    override(world, "ChecksumOffloadBroken=false")
    wait_for(lambda: switched_on(world))
    wait_for(lambda: not conditions_of(world, f"Node({NODE})"))
    assert not connects(pod.space), "the cable does lie"
    override(world, "ChecksumOffloadBroken=true")
    wait_for(lambda: not switched_on(world))
    assert not conditions_of(world, f"Node({NODE})")


@pytest.mark.promise("PAIN-22")
def test_a_sound_offload_stays_on_and_is_not_tested_again(running: tuple[World, Cable]) -> None:
    world, cable = running
    cable.honest = True
    wait_for(lambda: f"checksum offload of {DEVICE} was tested and works" in world.log())
    assert switched_on(world)
    assert not conditions_of(world, f"Node({NODE})")
    cable.honest, before = False, cable.lies
    world.pods[0].until_reached("10.65.1.1")
    assert cable.lies == before, "nothing more was sent"
    assert switched_on(world)


@pytest.mark.promise("PAIN-22")
def test_where_nobody_answers_nothing_is_changed(cabled: tuple[World, Cable]) -> None:
    """OFL-3: a firewall on the other side looks like a broken card but for the second segment."""
    world, cable = cabled
    cable.honest = False
    world.outside.run(*f"iptables -A INPUT -i {DEVICE} -p tcp --dport 179 -j DROP".split())
    mark = len(world.log())
    try:
        world.start_felix(FELIX_IPV6SUPPORT="false", FELIX_LOGSEVERITYSCREEN="DEBUG")
        world.wait_ready()
        wait_for(lambda: "no far end answered" in world.log()[mark:])
        assert switched_on(world)
        assert not conditions_of(world, f"Node({NODE})")
        assert "is switched off" not in world.log()[mark:]
    finally:
        world.outside.run("iptables", "-F", "INPUT")
        world.stop_felix()
        world.ip(f"link delete {DEVICE}")


@pytest.mark.parametrize(
    ("said", "kernel", "found", "wanted"),
    [
        (None, False, False, None),
        (None, True, False, False),
        (None, False, True, False),
        (True, False, False, False),
        (False, True, True, True),
    ],
)
def test_who_decides(said: bool | None, kernel: bool, found: bool, wanted: bool | None) -> None:
    assert keeper.decided(said, kernel_broken=kernel, found_broken=found) is wanted


@pytest.mark.parametrize(
    ("release", "broken"),
    [("5.7.19", True), ("4.18.0-553.el8.x86_64", True), ("5.8.0", False), ("6.1.0-9-amd64", False),
     ("10.0", False), ("strange", False)],
)  # fmt: skip
def test_which_kernels_are_known_to_do_it_wrongly(release: str, broken: bool) -> None:
    assert keeper.kernel_is_broken(release) is broken
