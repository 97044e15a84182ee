"""VXLAN of one felix against another node that ip(8) made: devices, tables, routes, packets.

 pod 10.65.0.1 -- [ node 10.99.7.1 ] eth0 == VXLAN == [ outside 10.99.7.2 ] pod 10.65.1.1 (on lo)

The other node's side is Calico's, by the reference: VNI 4096, port 4789, the MAC that follows
from its name, routes by the tunnel's address. Drift is made by hand and counted by felix.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from felix.calc.node_grace import HOLD
from libcalico.names import vxlan_mac
from tests.felix.stage import conditions_of
from tests.felix.world import BLOCK, BLOCK6, NODE, POOL, POOL6, World, make_world
from tests.support import stopping
from tests.support.patience import HANG, wait_for

OTHER = "node2"
THEIR_BLOCK, THEIR_BLOCK6 = "10.65.1.0/26", "fd65::40/122"
OURS = {4: ("10.99.7.1", "10.65.0.0"), 6: ("2001:db8:7::1", "fd65::2")}
THEIRS = {4: ("10.99.7.2", "10.65.1.0"), 6: ("2001:db8:7::2", "fd65::41")}
THEIR_POD = {4: "10.65.1.1", 6: "fd65::43"}
HASTY = "hasty"
DEVICE = {4: "vxlan.calico", 6: "vxlan-v6.calico"}
BLOCKS = {4: THEIR_BLOCK, 6: THEIR_BLOCK6}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.environment["CALICO_NETWORKING_BACKEND"] = "vxlan"
        world.etcd.start()
        world.write_cluster()
        set_pools(world, "Always")
        put_nodes(world)
        world.put_block(THEIR_BLOCK, OTHER)
        world.put_block(THEIR_BLOCK6, OTHER)
        become_a_node(world)
        world.add_pod("a", "calia", "10.65.0.1", "fd65::1")
        world.program = ("tests.felix.hasty_tunnels", str(world.folder / HASTY))
        world.start_felix(
            FELIX_ROUTEREFRESHINTERVAL="600", FELIX_DEFAULTENDPOINTTOHOSTACTION="ACCEPT"
        )
        world.wait_ready()
        yield world


def set_pools(world: World, mode: str, **more: Any) -> None:
    for name, cidr in (("v4", POOL), ("v6", POOL6)):
        world.put("ippools", name, "IPPool", {"cidr": cidr, "vxlanMode": mode, **more})


@pytest.fixture
def hasty(world: World) -> Iterator[None]:
    """A device that is not needed goes soon."""
    file = world.folder / HASTY
    file.touch()
    yield
    file.unlink()


def set_config(world: World, spec: dict[str, Any]) -> None:
    world.put("felixconfigurations", "default", "FelixConfiguration", spec)


def put_nodes(world: World, prefix: int = 24) -> None:
    for name, ends in ((NODE, OURS), (OTHER, THEIRS)):
        bgp = {"ipv4Address": f"{ends[4][0]}/{prefix}", "ipv6Address": f"{ends[6][0]}/64"}
        spec = {"ipv4VXLANTunnelAddr": ends[4][1], "ipv6VXLANTunnelAddr": ends[6][1]}
        world.put("nodes", name, "Node", {"bgp": bgp, **spec})


def become_a_node(world: World) -> None:
    """What felix would make on the other node, made by ip(8)."""
    run = world.outside.run
    run("ip", "route", "del", "10.65.0.0/16")
    for version, block in ((4, BLOCK), (6, BLOCK6)):
        name, (own, tunnel), (far, end) = DEVICE[version], THEIRS[version], OURS[version]
        suffix = "" if version == 4 else "-v6"
        bits = 32 if version == 4 else 128
        kind = f"type vxlan id 4096 dstport 4789 local {own} dev eth0 nolearning"
        theirs, ours = vxlan_mac(OTHER + suffix), vxlan_mac(NODE + suffix)
        run(*f"ip link add {name} address {theirs} mtu 1400 {kind}".split())
        run(*f"ip addr add {tunnel}/{bits} dev {name}".split())
        run("ip", "link", "set", name, "up")
        run(*f"bridge fdb add {ours} dev {name} dst {far}".split())
        run(*f"ip neigh add {end} lladdr {ours} dev {name}".split())
        run(*f"ip -{version} route add {block} via {end} dev {name} onlink".split())
        run(*f"ip addr add {THEIR_POD[version]}/{bits} dev lo".split())


def device(world: World, version: int) -> dict[str, Any]:
    text = world.ip(f"-j -d address show {DEVICE[version]}")
    told: list[dict[str, Any]] = json.loads(text)
    assert told, "it went while it was shown"
    return told[0]


def neighbours(world: World, version: int) -> set[str]:
    text = world.ip(f"-j neigh show dev {DEVICE[version]} nud permanent")
    return {f"{n['dst']} {n['lladdr']}" for n in json.loads(text) if ".0.0." not in n["dst"]}


def forwards(world: World, version: int) -> set[str]:
    text = world.node.run("bridge", "-j", "fdb", "show", "dev", DEVICE[version])
    return {f"{n['mac']} {n['dst']}" for n in json.loads(text)}


def stands(world: World, version: int) -> bool:
    """Whether everything is as it must be; a device that goes meanwhile does not stand."""
    try:
        return whole(world, version)
    except AssertionError:
        return False


def whole(world: World, version: int) -> bool:
    """As `stands`. AssertionError when there is no device."""
    suffix = "" if version == 4 else "-v6"
    theirs = vxlan_mac(OTHER + suffix)
    own, tunnel = OURS[version]
    far, end = THEIRS[version]
    found = device(world, version)
    data = found["linkinfo"]["info_data"]
    addresses = [a["local"] for a in found["addr_info"] if a["scope"] != "link"]
    if version == 4:
        addresses = [a for a in addresses if ":" not in a]
    local = data.get("local", data.get("local6"))
    route = world.route(BLOCKS[version])
    return (
        (data["id"], data["port"], data["link"], local) == (4096, 4789, "eth0", own)
        and not data["learning"]
        and found["address"] == vxlan_mac(NODE + suffix)
        and found["mtu"] == (1450 if version == 4 else 1430)
        and "UP" in found["flags"]
        and addresses == [tunnel]
        and forwards(world, version) == {f"{theirs} {far}"}
        and f"{end} {theirs}" in neighbours(world, version)
        and f"via {end} dev {DEVICE[version]}" in route
        and f"onlink mtu {found['mtu']}" in " ".join(route.split())
    )


def writes(world: World) -> float:
    kinds = ("tunnel", "route", "link")
    return sum(world.metric(f"muslin_felix_{kind}_writes_total") for kind in kinds)


@pytest.mark.promise("F-60", "F-58")
@pytest.mark.parametrize("version", [4, 6])
def test_packets_go_through_the_tunnel_both_ways(world: World, version: int) -> None:
    wait_for(lambda: stands(world, version))
    pod = world.pods[0]
    pod.until_reached(THEIR_POD[version])
    before = json.loads(world.ip(f"-j -s link show {DEVICE[version]}"))[0]["stats64"]
    assert pod.reaches(THEIR_POD[version], 5, wait=HANG)
    after = json.loads(world.ip(f"-j -s link show {DEVICE[version]}"))[0]["stats64"]
    for way in ("tx", "rx"):
        assert after[way]["packets"] - before[way]["packets"] >= 5


@pytest.mark.promise("PAIN-21", "M-198")
def test_a_packet_of_the_tunnels_mtu_goes_through_whole_and_the_mtu_can_be_set(
    world: World,
) -> None:
    """Never fragmented; the parameter changes device and route of a running felix."""
    version = 4
    wait_for(lambda: stands(world, version))
    pod, there = world.pods[0], THEIR_POD[version]

    def whole(size: int) -> bool:
        # 20 bytes of IPv4's header and 8 of ICMP's belong to the size.
        words = ("ping", "-n", "-c", "1", "-W", "60", "-M", "do", "-s", str(size - 28), there)
        return subprocess.run(pod.space.command(*words), capture_output=True).returncode == 0

    def told() -> tuple[int, str]:
        device = json.loads(world.ip(f"-j link show {DEVICE[version]}"))[0]
        return device["mtu"], world.ip(f"route show {THEIR_BLOCK}").partition(" mtu ")[2].strip()

    assert whole(1450)
    set_config(world, {"vxlanMTU": 1300})
    try:
        wait_for(lambda: told() == (1300, "1300"))
        wait_for(lambda: whole(1300))
        assert not whole(1301), "nothing longer is sent into the tunnel"
    finally:
        set_config(world, {})
    wait_for(lambda: stands(world, version))


HARMS = [
    "link delete {device}",
    "link set {device} down",
    "link set {device} mtu 1300",
    "link set {device} address 66:00:00:00:00:99",
    "address flush dev {device} scope global",
    "address add {other} dev {device}",
    "neigh del {end} dev {device}",
    "neigh replace {end} lladdr 66:00:00:00:00:99 dev {device}",
    "neigh add {stray} lladdr 66:00:00:00:00:98 dev {device}",
    "-{version} route del {block}",
    "fdb del {theirs} dev {device} dst {far} self",
    "fdb append 66:00:00:00:00:97 dev {device} dst {far} self",
    "neigh replace {end} lladdr 66:00:00:00:00:99 dev {device} nud stale",
    "neigh replace {end} lladdr {theirs} dev {device} nud noarp",
    "fdb replace {theirs} dev {device} dst {elsewhere} self",
    "fdb replace {theirs} dev {device} dst {elsewhere} self dynamic",
    "fdb replace {theirs} dev {device} dst {far} self dynamic",
    "neigh flush dev {device} nud permanent",
]
FULL = "MUSLIN_FULL_SIZE" in os.environ
# The fast tier harms one thing of each kind, in one family.
CHOSEN = [(v, h) for v in (4, 6) for h in HARMS] if FULL else [(4, h) for h in HARMS[::2]]


@pytest.mark.promise("PAIN-23")
@pytest.mark.parametrize(("version", "harm"), CHOSEN)
def test_drift_is_repaired_and_counted(world: World, version: int, harm: str) -> None:
    wait_for(lambda: stands(world, version))
    far, end = THEIRS[version]
    words = harm.format(
        device=DEVICE[version],
        version=version,
        end=end,
        far=far,
        elsewhere="10.99.0.77" if version == 4 else "fd99::77",
        other="10.65.0.63/32" if version == 4 else "fd65::3f/128",
        stray="10.65.0.62" if version == 4 else "fd65::3e",
        block=BLOCKS[version],
        theirs=vxlan_mac(OTHER + ("" if version == 4 else "-v6")),
    )
    before = writes(world)
    program = "bridge" if words.startswith("fdb") else "ip"
    # ip(8) flushes in rounds and fails where entries are back each time: felix may be that fast.
    world.node.run(program, *words.split(), check="flush" not in words)
    wait_for(lambda: stands(world, version), f"repaired: {words}")
    if "stray" in harm:
        stray = words.split()[2]
        wait_for(lambda: not any(n.startswith(f"{stray} ") for n in neighbours(world, version)))
    wait_for(lambda: writes(world) > before)
    world.pods[0].until_reached(THEIR_POD[version])


@pytest.mark.promise("F-60")
def test_a_device_that_was_made_otherwise_is_replaced(world: World) -> None:
    assert world.process is not None
    stopping.pause(world.process.pid)
    world.ip("link delete vxlan.calico")
    world.ip("link add vxlan.calico type vxlan id 77 dstport 4789 local 10.99.7.1 dev eth0")
    world.process.send_signal(signal.SIGCONT)
    wait_for(lambda: stands(world, 4))


@pytest.mark.promise("F-62", "M-147", "M-149", "F-60")
@pytest.mark.usefixtures("hasty")
def test_the_mode_changes_live(world: World) -> None:
    """Neighbours are spared with CrossSubnet; nothing is left of it with Never."""
    wait_for(lambda: stands(world, 4))
    try:
        set_pools(world, "CrossSubnet")
        wait_for(lambda: f"via {THEIRS[4][0]} dev eth0" in world.route(THEIR_BLOCK))
        wait_for(lambda: f"via {THEIRS[6][0]} dev eth0" in world.route(THEIR_BLOCK6))
        assert device(world, 4), "the tunnel stands for nodes elsewhere"
        put_nodes(world, prefix=32)
        wait_for(lambda: stands(world, 4))
        set_pools(world, "Never")
        wait_for(lambda: "no tunnel leads there" in str(conditions_of(world, OTHER)))
        wait_for(lambda: not world.route(THEIR_BLOCK))
        wait_for(lambda: f"via {THEIRS[6][0]} dev eth0" in world.route(THEIR_BLOCK6))
        wait_for(lambda: "calico" not in world.ip("-br link"), "no device is left")
    finally:
        put_nodes(world)
        set_pools(world, "Always")
    wait_for(lambda: stands(world, 4))
    wait_for(lambda: stands(world, 6))


@pytest.mark.promise("F-60")
@pytest.mark.usefixtures("hasty")
def test_the_door_is_open_as_long_as_the_device_is_there(world: World) -> None:
    """From the first rule to the last: no device without rules, and no rules on without it."""
    wait_for(lambda: stands(world, 4))

    def there() -> bool:
        return "vxlan.calico" in world.ip("-br link")

    def guarded() -> bool:
        return any("IPv4 VXLAN packets" in text for _, text in world.kernel.counted("cali-INPUT"))

    def seen() -> tuple[bool, bool]:
        before, rules, after = there(), guarded(), there()
        assert rules or not (before and after), "the device unwraps for everybody"
        return after, rules

    try:
        set_pools(world, "Never")
        wait_for(lambda: seen() == (False, False), "closed with the device")
        # Asked for, but no link has the node's address: there is no device, and no door.
        world.put("nodes", NODE, "Node", {"bgp": {"ipv4Address": "198.51.100.1/24"}})
        set_pools(world, "Always")
        told = f"Node({NODE})"
        wait_for(lambda: "no link has its address" in str(conditions_of(world, told)))
        wait_for(lambda: seen() == (False, False), "not open without a device")
    finally:
        put_nodes(world)
        set_pools(world, "Always")
    wait_for(lambda: seen() == (True, True))
    wait_for(lambda: stands(world, 4) and stands(world, 6))


@pytest.mark.promise("F-60")
def test_a_device_on_a_new_port_replaces_one_on_the_old(world: World) -> None:
    wait_for(lambda: stands(world, 4))

    def ports() -> set[str]:
        texts = [text for _, text in world.kernel.counted("cali-INPUT")]
        return {port for port in ("4789", "4790") for text in texts if port in text}

    try:
        world.put("felixconfigurations", "default", "FelixConfiguration", {"vxlanPort": 4790})
        shown = "-d link show type vxlan"
        wait_for(lambda: world.ip(shown).count("dstport 4790 ") == 2, world.ip(shown))
        wait_for(lambda: ports() == {"4790"}, "the old port is closed")
    finally:
        world.delete("felixconfigurations", "default")
    wait_for(lambda: stands(world, 4) and ports() == {"4789"})


def test_a_node_whose_address_vanishes_for_a_moment_keeps_its_routes(world: World) -> None:
    """For five seconds (`felix.calc.node_grace`); then they go."""
    without = {"bgp": {"ipv6Address": f"{THEIRS[6][0]}/64"}}
    try:
        for _ in range(50):
            wait_for(lambda: stands(world, 4) and stands(world, 6))
            before, began = writes(world), time.monotonic()
            world.put("nodes", OTHER, "Node", without)
            stood = [stands(world, 4)]
            while time.monotonic() - began < HOLD / 3:
                stood.append(stands(world, 4))
            put_nodes(world)
            # On a machine that has much to do the moment may have been longer than what is held.
            if time.monotonic() - began < HOLD / 2:
                break
        assert all(stood)
        assert world.pods[0].reaches(THEIR_POD[4], wait=HANG)
        assert writes(world) == before, "not a route, not an entry was touched"
        world.put("nodes", OTHER, "Node", without)
        wait_for(lambda: not world.route(THEIR_BLOCK), "gone for good")
    finally:
        put_nodes(world)
    wait_for(lambda: stands(world, 4))


def test_a_tunnels_address_that_is_our_pods_is_refused(world: World) -> None:
    """Whoever writes a Node could else lead addresses of our pods away."""
    wait_for(lambda: stands(world, 4))
    (own, _), stolen = THEIRS[4], "10.65.0.1"
    bgp = {"ipv4Address": f"{own}/24", "ipv6Address": f"{THEIRS[6][0]}/64"}
    ends = {"ipv4VXLANTunnelAddr": stolen, "ipv6VXLANTunnelAddr": "fd65::1"}
    try:
        world.put("nodes", OTHER, "Node", {"bgp": bgp, **ends})
        told = "is of a block of this node, which did not lend it"
        wait_for(lambda: told in str(conditions_of(world, f"Node({OTHER})")))
        for address in (f"{stolen}/32", "fd65::1/128"):
            assert "dev calia" in world.route(address), address
    finally:
        put_nodes(world)
    wait_for(lambda: stands(world, 4) and stands(world, 6))
    wait_for(lambda: not conditions_of(world, f"Node({OTHER})"))


def test_without_an_address_of_the_tunnel_the_node_says_so(world: World) -> None:
    bgp = {"ipv4Address": "10.99.7.1/24", "ipv6Address": f"{OURS[6][0]}/64"}
    try:
        world.put("nodes", NODE, "Node", {"bgp": bgp})
        wait_for(lambda: "no tunnel address yet" in str(conditions_of(world, f"Node({NODE})")))
    finally:
        put_nodes(world)
    wait_for(lambda: stands(world, 4))
    wait_for(lambda: not conditions_of(world, f"Node({NODE})"))


@pytest.mark.promise("M-144", "F-61")
def test_a_kernel_without_ipip_says_so_by_node_and_pool_and_nothing_else_suffers(
    world: World,
) -> None:
    if "tunl0" in world.ip("-br link") or "tunl0" in world.node.run(
        "sh", "-c", "ip link add t0 type ipip 2>&1; ip link delete t0 2>&1", check=False
    ):
        pytest.skip("this kernel has IP-in-IP")
    block = "10.66.0.0/26"
    try:
        world.put("ippools", "ipip", "IPPool", {"cidr": "10.66.0.0/16", "ipipMode": "Always"})
        world.put_block(block, OTHER)
        wait_for(lambda: conditions_of(world, "IPPool(ipip)"))
        (told,) = conditions_of(world, "IPPool(ipip)")
        assert "spec.ipipMode: Always: this kernel has no IP-in-IP" in told
        wait_for(lambda: any("IP-in-IP" in each for each in conditions_of(world, f"Node({NODE})")))
        assert not world.route(block)
        assert "tunl0" not in world.ip("-br link")
        assert world.ready()
        assert stands(world, 4)
        assert world.pods[0].reaches(THEIR_POD[4], wait=HANG)
    finally:
        world.delete("ippools", "ipip")
        world.etcd.ctl("del", "/calico/ipam/v2/assignment/ipv4/block/10.66.0.0-26")
    wait_for(lambda: not conditions_of(world, "IPPool(ipip)"))


def test_tunl0_takes_what_is_under_way_after_its_last_pool(world: World) -> None:
    """It has no address any more, and its rules stand; then it takes nothing, without rules.

    A bridge of that name stands for it where the kernel has none: that it unwraps is tests/uml's.
    """
    if "tunl0" not in world.ip("-br link"):
        world.ip("link add tunl0 type bridge")
    ours = {"bgp": {"ipv4Address": "10.99.7.1/24", "ipv4IPIPTunnelAddr": "10.65.0.60"}}

    def shown() -> tuple[bool, str, bool]:
        loose = world.node.run("cat", "/proc/sys/net/ipv4/conf/tunl0/rp_filter").strip()
        rules = any("IPIP packets" in text for _, text in world.kernel.counted("cali-INPUT"))
        return "10.65.0.60" in world.ip("address show tunl0"), loose, rules

    try:
        world.put("nodes", NODE, "Node", ours)
        world.put("ippools", "ipip", "IPPool", {"cidr": "10.66.0.0/16", "ipipMode": "Always"})
        wait_for(lambda: shown() == (True, "2", True), "in use")
        world.delete("ippools", "ipip")
        wait_for(lambda: shown() == (False, "0", True), "the address is given back")
        wait_for(lambda: shown() == (False, "2", False), "given up")
    finally:
        world.delete("ippools", "ipip")
        put_nodes(world)
        world.ip("link delete tunl0")
    wait_for(lambda: stands(world, 4) and stands(world, 6))


@pytest.mark.promise("F-60")
def test_who_is_no_node_speaks_to_nobody_through_the_tunnel(world: World) -> None:
    """The rule counts what it drops; a node's own packets go on."""
    wait_for(lambda: stands(world, 4))
    stranger = "203.0.113.9"
    run = world.outside.run
    dropped = "Drop IPv4 VXLAN packets from non-allowed hosts"

    def count() -> int:
        return sum(
            packets for packets, text in world.kernel.counted("cali-INPUT") if dropped in text
        )

    def calls() -> None:
        run("python3", "-c", code)

    before = count()
    code = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"s.bind(('{stranger}', 0))\n"
        "for _ in range(5): s.sendto(bytes(64), ('10.99.7.1', 4789))\n"
    )
    calls()
    wait_for(lambda: count() >= before + 5)
    assert world.pods[0].reaches(THEIR_POD[4], wait=HANG)
    try:  # unless the operator names it
        spec = {"externalNodesList": ["203.0.113.9/28"]}
        world.put("felixconfigurations", "default", "FelixConfiguration", spec)
        shown = ("ipset", "list", "cali40all-vxlan-net")
        wait_for(lambda: "203.0.113.0/28" in world.node.run(*shown))
        before = count()
        calls()
        time.sleep(0.5)
        assert count() == before, "taken like a node's"
    finally:
        world.delete("felixconfigurations", "default")
    wait_for(lambda: "203.0.113.0/28" not in world.node.run(*shown))


@pytest.mark.promise("F-59")
def test_a_restart_finds_all_as_it_must_be_and_writes_nothing(world: World) -> None:
    wait_for(lambda: stands(world, 4) and stands(world, 6))
    index = device(world, 4)["ifindex"]
    world.stop_felix()
    world.start_felix(FELIX_ROUTEREFRESHINTERVAL="600", FELIX_DEFAULTENDPOINTTOHOSTACTION="ACCEPT")
    world.wait_ready()
    assert stands(world, 4)
    assert stands(world, 6)
    assert device(world, 4)["ifindex"] == index
    assert world.metric("muslin_felix_tunnel_writes_total") == 0
