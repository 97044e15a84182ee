"""Nobody else's rules are ever touched: kube-proxy's and Docker's, byte for byte.

The rules are written by hand in the shape that those programs give them (chains, order, marks,
comments); no dump of a live node. They are loaded, felix lives through a day of its life, and
every line that is not ours is compared: chains, policies, rules and their order.
"""

from __future__ import annotations

import re
import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.felix.in_kernel import mode
from tests.felix.stage import allow
from tests.felix.world import NODE, World, eventually
from tests.support.netns import Namespace

FOREIGN = Path(__file__).with_name("foreign") / "kube-proxy-docker.v4"
QUIET = "KUBE-SEP-|KUBE-SVC-|DOCKER-ISOLATION-STAGE-2|KUBE-EXT-"
BACKENDS = ("nft", "legacy", "nftables")


def load(node: Namespace, kind: str) -> None:
    """The foreign rules, as if kube-proxy and Docker were here; the same for IPv6."""
    text = FOREIGN.read_text()
    # An nfacct object is no rule; without it the rule would be refused.
    text = text.replace(" -m nfacct --nfacct-name localhost_nps_accepted_pkts", "")
    node.run(f"iptables-{kind}-restore", "-c", input=text)
    node.run(f"ip6tables-{kind}-restore", "-c", input=in_ipv6(text))


def in_ipv6(text: str) -> str:
    dotted = r"(\d+)\.(\d+)\.(\d+)\.(\d+)"

    def net(found: re.Match[str]) -> str:
        one, two, three, four, length = found.groups()
        if length == "32":
            return f"fd00:{one}:{two}:{three}:{four}::1/128"
        return f"fd00:{one}:{two}::/48"

    text = text.replace("127.0.0.0/8", "::1/128")
    text = re.sub(rf"--to-destination {dotted}:", r"--to-destination [fd00:\1:\2:\3:\4::1]:", text)
    return re.sub(rf"{dotted}/(\d+)", net, text)


def foreign(node: Namespace, kind: str) -> dict[str, list[str]]:
    """What is not felix's, of both families, in order; counters where nothing passes."""
    found: dict[str, list[str]] = {}
    for tool in ("iptables", "ip6tables"):
        table = ""
        for line in node.run(f"{tool}-{kind}-save", "-c").splitlines():
            if line.startswith("*"):
                table = f"{tool} {line}"
            elif line and line[0] in ":[" and "cali" not in line:
                quiet = re.search(rf"-A ({QUIET})", line) is not None
                kept = line if quiet else re.sub(r"\[\d+:\d+\]", "", line)
                found.setdefault(table, []).append(kept)
    return found


@pytest.mark.promise("ADV-9")
@pytest.mark.promise("PAIN-20")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_day_beside_kube_proxy_and_docker(bare_world: World, backend: str) -> None:
    world, kind = bare_world, "legacy" if backend == "legacy" else "nft"
    world.node.run("ip", "link", "add", "docker0", "type", "bridge")
    load(world.node, kind)
    before = foreign(world.node, kind)
    assert sum(map(len, before.values())) > 150
    world.environment |= mode(backend)
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    assert foreign(world.node, kind) == before, "after the start"
    pod = world.add_pod("a", "cali0a", "10.65.0.1", "fd65::1")
    if backend != "nftables":
        # In a table of its own an accept is no last word: Docker's FORWARD policy is asked too.
        eventually(lambda: pod.reaches("203.0.113.9"), what="Docker's FORWARD DROP is passed over")
    eventually(lambda: world.chain("cali-fw-cali0a"))
    spec = {"selector": "all()", "types": ["Ingress"], "ingress": [allow(protocol="TCP")]}
    world.put("globalnetworkpolicies", "p", "GlobalNetworkPolicy", spec)
    world.put("hostendpoints", "h", "HostEndpoint", {"node": NODE, "interfaceName": "eth0",
                                                     "profiles": ["kns.default"]})  # fmt: skip
    eventually(lambda: world.chain("cali-fh-eth0"))
    assert foreign(world.node, kind) == before, "with policy and a host endpoint"
    if backend != "nftables":
        node = {"chainInsertMode": "append"}
        world.put("felixconfigurations", f"node.{NODE}", "FelixConfiguration", node)
        eventually(lambda: last_of(world, "INPUT").endswith("cali-INPUT"))
        assert foreign(world.node, kind) == before, "when our hooks moved"
        world.delete("felixconfigurations", f"node.{NODE}")
        eventually(lambda: not last_of(world, "INPUT").endswith("cali-INPUT"))
    world.kernel.flush("cali-INPUT")
    eventually(lambda: "cali-wl-to-host" in world.chain("cali-INPUT"))
    world.stop_felix()
    world.start_felix()
    world.wait_ready()
    world.delete("hostendpoints", "h")
    world.delete("globalnetworkpolicies", "p")
    world.delete_endpoint("a")
    eventually(lambda: not world.chain("cali-fw-cali0a"))
    eventually(lambda: not world.chain("cali-fh-eth0"))
    assert foreign(world.node, kind) == before, "at the end"


@pytest.mark.promise("PAIN-20")
@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_two_writers_lose_nothing(bare_world: World, backend: str) -> None:
    """While kube-proxy writes all the time, felix does; each finds its own in the end."""
    world = bare_world
    load(world.node, backend)
    before = foreign(world.node, backend)
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
            restore = [*beside, f"iptables-{backend}-restore", "--noflush", "-w", "5"]
            subprocess.run(restore, input=text, text=True, check=True)

    churn = threading.Thread(target=kube_proxy)
    churn.start()
    try:
        pods = [world.wire(f"cali{n}x", f"10.65.0.{n + 1}") for n in range(8)]
        for number, pod in enumerate(pods):
            world.put_endpoint(f"p{number}", pod)
        for pod in pods:
            eventually(partial(pod.reaches, "203.0.113.9", wait=0.3), 20)
    finally:
        done.set()
        churn.join()
    assert written > 10
    assert world.ready()
    saved = world.node.run(f"iptables-{backend}-save")
    assert f"-A KUBE-SVC-CHURN -d 10.96.{written % 250}.1/32 -j KUBE-MARK-MASQ" in saved
    assert f"-A KUBE-CHURN -d 10.96.{written % 250}.2/32 -j ACCEPT" in saved
    left = {
        table: [line for line in lines if "CHURN" not in line]
        for table, lines in foreign(world.node, backend).items()
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
        load(world.node, theirs)
        for chain in ("KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-PROXY-CANARY"):
            for tool in ("iptables", "ip6tables"):
                world.node.run(f"{tool}-{theirs}", "-t", "mangle", "-X", chain)
        world.node.run(f"iptables-{other}", *dropping(9))
    before = foreign(world.node, "nft"), foreign(world.node, "legacy")
    world.environment["FELIX_NFTABLESMODE"] = "Disabled"
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    assert "cali-FORWARD" in world.node.run(f"iptables-{theirs}-save")
    assert "cali-" not in world.node.run(f"iptables-{other}-save")
    assert "cali-FORWARD" in world.node.run(f"ip6tables-{theirs}-save")
    after = foreign(world.node, "nft"), foreign(world.node, "legacy")
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
