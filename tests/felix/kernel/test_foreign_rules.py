"""Nobody else's rules are ever touched: kube-proxy's and Docker's, byte for byte.

kube-proxy's are recorded, Docker's written by hand (tests.felix.foreign). They are loaded, felix
lives through a day of its life, and every line that is not ours is compared: chains, policies,
rules and their order. The living kube-proxy: tests/apiserver/test_kube_proxy.py.
"""

from __future__ import annotations

import subprocess
import threading
from functools import partial

import pytest

from tests.felix.foreign import in_iptables, in_nftables, load_iptables, load_nftables
from tests.felix.in_kernel import mode
from tests.felix.stage import allow
from tests.felix.world import NODE, World
from tests.support.patience import HANG, wait_for

BACKENDS = ("nft", "legacy", "nftables")
MORE = {
    "KUBE-SVC-UDG7DZWKNFYDA3N7",
    "KUBE-EXT-UDG7DZWKNFYDA3N7",
    "KUBE-FW-DEEZERWQ4WYKCLF2",
    "DOCKER-ISOLATION-STAGE-1",
}
"""Chains of what was loaded, so that comparing nothing with nothing is noticed."""


@pytest.mark.promise("ADV-9")
@pytest.mark.promise("PAIN-20")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_day_beside_kube_proxy_and_docker(bare_world: World, backend: str) -> None:
    world, kind = bare_world, "legacy" if backend == "legacy" else "nft"
    world.node.run("ip", "link", "add", "docker0", "type", "bridge")
    load_iptables(world.node, kind)
    before = in_iptables(world.node, kind)
    assert sum(map(len, before.values())) > 250
    assert all(any(name in line for lines in before.values() for line in lines) for name in MORE)
    world.environment |= mode(backend)
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    assert in_iptables(world.node, kind) == before, "after the start"
    pod = world.add_pod("a", "cali0a", "10.65.0.1", "fd65::1")
    if backend != "nftables":
        # In a table of its own an accept is no last word: Docker's FORWARD policy is asked too.
        pod.until_reached("203.0.113.9", "Docker's FORWARD DROP is passed over")
    wait_for(lambda: world.chain("cali-fw-cali0a"))
    spec = {"selector": "all()", "types": ["Ingress"], "ingress": [allow(protocol="TCP")]}
    world.put("globalnetworkpolicies", "p", "GlobalNetworkPolicy", spec)
    world.put("hostendpoints", "h", "HostEndpoint", {"node": NODE, "interfaceName": "eth0",
                                                     "profiles": ["kns.default"]})  # fmt: skip
    wait_for(lambda: world.chain("cali-fh-eth0"))
    assert in_iptables(world.node, kind) == before, "with policy and a host endpoint"
    if backend != "nftables":
        node = {"chainInsertMode": "append"}
        world.put("felixconfigurations", f"node.{NODE}", "FelixConfiguration", node)
        wait_for(lambda: last_of(world, "INPUT").endswith("cali-INPUT"))
        assert in_iptables(world.node, kind) == before, "when our hooks moved"
        world.delete("felixconfigurations", f"node.{NODE}")
        wait_for(lambda: not last_of(world, "INPUT").endswith("cali-INPUT"))
    world.kernel.flush("cali-INPUT")
    wait_for(lambda: "cali-wl-to-host" in world.chain("cali-INPUT"))
    world.stop_felix()
    world.start_felix()
    world.wait_ready()
    world.delete("hostendpoints", "h")
    world.delete("globalnetworkpolicies", "p")
    world.delete_endpoint("a")
    wait_for(lambda: not world.chain("cali-fw-cali0a"))
    wait_for(lambda: not world.chain("cali-fh-eth0"))
    assert in_iptables(world.node, kind) == before, "at the end"


@pytest.mark.promise("ADV-9")
def test_beside_kube_proxy_in_nftables_felix_is_there_too(bare_world: World) -> None:
    """Found by kube-proxy's recorded tables; those stay as they are while felix mends its own."""
    world = bare_world
    load_nftables(world.node)
    before = in_nftables(world.node)
    assert sum("shop/near" in line for line in before) > 10
    world.environment |= {"FELIX_NFTABLESMODE": "Auto", "FELIX_NFTABLESREFRESHINTERVAL": "2"}
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    world.environment["FELIX_NFTABLESMODE"] = "Enabled"
    assert world.kernel.native
    pod = world.add_pod("a", "cali0a", "10.65.0.1", "fd65::1")
    pod.until_reached("203.0.113.9")
    spec = {"selector": "all()", "types": ["Ingress"], "ingress": [allow(protocol="TCP")]}
    world.put("globalnetworkpolicies", "p", "GlobalNetworkPolicy", spec)
    wait_for(lambda: world.chain("cali-pi-gnp/p"))
    world.kernel.flush("cali-FORWARD")
    wait_for(lambda: "to-wl-dispatch" in world.chain("cali-FORWARD"))
    assert in_nftables(world.node) == before, "after a repair"
    world.node.run("nft", "delete", "table", "ip", "calico")
    wait_for(lambda: world.chain("cali-pi-gnp/p"))
    world.stop_felix()
    # Over to iptables, where felix cleans up what it has in nftables.
    world.start_felix(FELIX_NFTABLESMODE="Disabled", FELIX_IPTABLESBACKEND="nft")
    world.wait_ready()
    wait_for(lambda: not world.node.run("nft", "list", "table", "ip", "calico", check=False))
    assert in_nftables(world.node) == before, "at the end"


@pytest.mark.promise("PAIN-20")
@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_two_writers_lose_nothing(bare_world: World, backend: str) -> None:
    """While kube-proxy writes all the time, felix does; each finds its own in the end."""
    world = bare_world
    load_iptables(world.node, backend)
    before = in_iptables(world.node, backend)
    world.environment |= mode(backend)
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    done, written = threading.Event(), 0
    assert world.process is not None
    # The lock of legacy is a file below felix's own /run.
    beside = ["nsenter", "-t", str(world.process.pid), "-m", "-n"]

    def kube_proxy() -> None:
        nonlocal written
        while not done.is_set():
            written += 1
            text = "\n".join((
                "*nat", ":KUBE-SVC-CHURN - [0:0]",
                f"-A KUBE-SVC-CHURN -d 10.96.{written % 250}.1/32 -j KUBE-MARK-MASQ", "COMMIT",
                "*filter", ":KUBE-CHURN - [0:0]",
                f"-A KUBE-CHURN -d 10.96.{written % 250}.2/32 -j ACCEPT", "COMMIT", "",
            ))  # fmt: skip
            restore = [*beside, f"iptables-{backend}-restore", "--noflush", "-w", f"{HANG:.0f}"]
            subprocess.run(restore, input=text, text=True, check=True)

    churn = threading.Thread(target=kube_proxy)
    churn.start()
    try:
        pods = [world.wire(f"cali{n}x", f"10.65.0.{n + 1}") for n in range(8)]
        for number, pod in enumerate(pods):
            world.put_endpoint(f"p{number}", pod)
        for pod in pods:
            wait_for(partial(pod.reaches, "203.0.113.9", wait=0.3))
        wait_for(lambda: written > 10, "both wrote")
    finally:
        done.set()
        churn.join()
    assert world.ready()
    saved = world.node.run(f"iptables-{backend}-save")
    assert f"-A KUBE-SVC-CHURN -d 10.96.{written % 250}.1/32 -j KUBE-MARK-MASQ" in saved
    assert f"-A KUBE-CHURN -d 10.96.{written % 250}.2/32 -j ACCEPT" in saved
    left = {
        table: [line for line in lines if "CHURN" not in line]
        for table, lines in in_iptables(world.node, backend).items()
    }
    assert left == before


def last_of(world: World, chain: str) -> str:
    kind = "legacy" if world.kernel.legacy else "nft"
    lines = world.node.run(f"iptables-{kind}", "-S", chain).splitlines()
    return lines[-1] if lines else ""


@pytest.mark.promise("PAIN-19")
@pytest.mark.parametrize("theirs", ["nft", "legacy"])
@pytest.mark.parametrize("hint", [True, False])
def test_felix_writes_where_the_hosts_rules_are(
    bare_world: World, theirs: str, *, hint: bool
) -> None:
    """By the kubelet's hint, else by where more rules are; a few rules elsewhere mislead nobody."""
    world, other = bare_world, "legacy" if theirs == "nft" else "nft"
    if hint:
        # The other variant has more rules, and no hint.
        for port in range(20):
            world.node.run(f"iptables-{other}", *dropping(port))
        world.node.run(f"iptables-{theirs}", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
    else:
        load_iptables(world.node, theirs)
        for chain in ("KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-PROXY-CANARY"):
            for tool in ("iptables", "ip6tables"):
                world.node.run(f"{tool}-{theirs}", "-t", "mangle", "-X", chain)
        world.node.run(f"iptables-{other}", *dropping(9))
    before = in_iptables(world.node, "nft"), in_iptables(world.node, "legacy")
    world.environment["FELIX_NFTABLESMODE"] = "Disabled"
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    assert "cali-FORWARD" in world.node.run(f"iptables-{theirs}-save")
    assert "cali-" not in world.node.run(f"iptables-{other}-save")
    assert "cali-FORWARD" in world.node.run(f"ip6tables-{theirs}-save")
    after = in_iptables(world.node, "nft"), in_iptables(world.node, "legacy")
    assert nonempty(after) == nonempty(before)


def dropping(port: int) -> list[str]:
    return ["-A", "INPUT", "-p", "udp", "--dport", str(port), "-j", "DROP"]


def nonempty(found: tuple[dict[str, list[str]], ...]) -> list[dict[str, list[str]]]:
    """Without tables that hold nothing but the kernel's own chains, which looking makes."""
    return [
        {
            table: lines
            for table, lines in each.items()
            if any("-A" in line or "- [" in line for line in lines)
        }
        for each in found
    ]
