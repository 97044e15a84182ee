"""A whole-table restore loses what others have written: here a foreign rule never rests.

Rules of somebody else drop what a pod sends, in every table and in a table of nftables, while
felix writes, repairs, dies, starts and changes its back end. Not one packet passes them, and every
one is counted by the rule that dropped it.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from tests.advisories.conftest import OUTSIDE, OUTSIDE6
from tests.advisories.traffic import Stream, flowing
from tests.felix.in_kernel import NFTABLES
from tests.felix.world import NODE, World
from tests.support.patience import wait_for

ROUNDS = 40 if os.environ.get("MUSLIN_FULL_SIZE") else 2
SOMEBODY = """\
table inet somebody {
    chain forward {
        type filter hook forward priority 10; policy accept;
        udp dport 7705 counter drop
    }
}
"""
# In front of everybody's rules: what comes to the node at all. Who sends counts more: a packet may
# be on its way, or lost where a queue is full.
COUNTER = """\
table inet arrivals {{
    chain first {{
        type filter hook prerouting priority -450; policy accept;
        {rules}
    }}
}}
"""


@dataclass(frozen=True)
class Foreign:
    """A rule of somebody's that drops one port."""

    table: str
    chain: str
    port: int
    tool: str = "iptables-nft"

    @property
    def text(self) -> str:
        """As it is added and found again."""
        return f"-A {self.chain} -p udp -m udp --dport {self.port} -j DROP"


RULES = (
    Foreign("filter", "FORWARD", 7701),
    Foreign("mangle", "FORWARD", 7702),
    Foreign("raw", "PREROUTING", 7703),
    Foreign("filter", "FORWARD", 7704, "ip6tables-nft"),
)
PORTS = {rule.port: OUTSIDE6 if "6" in rule.tool else OUTSIDE for rule in RULES} | {7705: OUTSIDE}


@pytest.fixture
def somebody(careless: World) -> Iterator[World]:
    """Foreign rules, a foreign chain with its jump, a foreign set, a foreign nftables table."""
    node = careless.node
    for rule in RULES:
        # In front: felix's last rule of FORWARD accepts what policy allowed.
        node.run(rule.tool, "-t", rule.table, *rule.text.replace("-A", "-I", 1).split())
    node.run("iptables-nft", "-N", "SOMEBODY")
    node.run("iptables-nft", "-I", "FORWARD", "-j", "SOMEBODY")
    node.run("ipset", "create", "somebody", "hash:ip")
    node.run("ipset", "add", "somebody", "192.0.2.1")
    node.run("nft", "-f", "-", input=SOMEBODY)
    counted = "; ".join(f"udp dport {port} counter" for port in PORTS)
    node.run("nft", "-f", "-", input=COUNTER.format(rules=counted))
    yield careless
    node.run("nft", "delete", "table", "inet", "arrivals")
    node.run("iptables-nft", "-D", "FORWARD", "-j", "SOMEBODY")
    node.run("iptables-nft", "-X", "SOMEBODY")
    for rule in RULES:
        node.run(rule.tool, "-t", rule.table, *rule.text.replace("-A", "-D", 1).split())
    node.run("nft", "delete", "table", "inet", "somebody")
    node.run("ipset", "destroy", "somebody")


def foreign(world: World) -> list[str]:
    """Everything in the kernel's rules and sets that is not felix's, in order."""
    found: list[str] = []
    for tool in ("iptables-nft-save", "ip6tables-nft-save"):
        for line in world.node.run(tool).splitlines():
            if line and line[0] in "*:-" and "cali" not in line:
                found.append(re.sub(r"\[\d+:\d+\]", "", line))
    found += world.node.run("nft", "-s", "list", "table", "inet", "somebody").splitlines()
    found += world.node.run("ipset", "list", "somebody", "-o", "save").splitlines()
    # An empty table is the kernel's: it comes and goes with who looks at it.
    text = "\n".join(found) + "\n"
    text = re.sub(r"^\*\w+\n(:[A-Z]+ ACCEPT *\n)+(?=\*|table)", "", text, flags=re.M)
    return text.splitlines()


def dropped(world: World, port: int) -> int:
    """Packets counted by the foreign rule of a port."""
    text = "".join(
        world.node.run(*command.split())
        for command in (
            "iptables-nft-save -c",
            "ip6tables-nft-save -c",
            "nft list table inet somebody",
        )
    )
    found = re.search(rf"\[(\d+):\d+\].*--dport {port} |dport {port} counter packets (\d+)", text)
    assert found, f"the rule of port {port} is gone"
    return int(found.group(1) or found.group(2))


def come(world: World, port: int) -> int:
    """Packets to a port that have come to the node."""
    text = world.node.run("nft", "list", "table", "inet", "arrivals")
    found = re.search(rf"dport {port} counter packets (\d+)", text)
    assert found, text
    return int(found.group(1))


def written(world: World, port: str) -> bool:
    """Whether the commit with a policy about this port is done."""
    return port in world.chain("cali-pi-gnp/churn")


def other_back_end(world: World, backend: str) -> None:
    """Over to the other back end and home again."""
    other = "Disabled" if backend == NFTABLES else "Enabled"
    world.stop_felix(signal.SIGTERM)
    world.start_felix(FELIX_NFTABLESMODE=other)
    world.wait_ready()
    world.stop_felix(signal.SIGTERM)
    world.start_felix()
    world.wait_ready()


@pytest.mark.promise("ADV-9", "PAIN-20")
def test_a_foreign_rule_never_rests(somebody: World, backend: str) -> None:
    world, (a, b) = somebody, somebody.pods[:2]
    before = foreign(world)
    streams = [
        Stream(f"to {port}", a.space, world.outside, address, port)
        for port, address in {**PORTS, 7700: OUTSIDE}.items()
    ]
    with flowing(streams) as traffic:
        traffic.wait("to 7700")
        for number in range(ROUNDS):
            rule = {"action": "Allow", "destination": {"ports": [7000 + number]}, "protocol": "UDP"}
            spec = {"selector": "all()", "types": ["Ingress"], "ingress": [rule]}
            world.put("globalnetworkpolicies", "churn", "GlobalNetworkPolicy", spec)
            world.put_endpoint("b", b, labels={"round": str(number)})
            wait_for(partial(written, world, str(7000 + number)))
            assert foreign(world) == before, f"after commit {number}"
        world.put("hostendpoints", "h", "HostEndpoint",
                  {"node": NODE, "interfaceName": "eth0", "profiles": ["kns.default"]})  # fmt: skip
        wait_for(lambda: world.chain("cali-fh-eth0"))
        world.kernel.flush("cali-FORWARD")
        wait_for(lambda: "cidr-block" in world.chain("cali-FORWARD"))
        assert foreign(world) == before, "after a repair"
        world.delete("hostendpoints", "h")
        world.delete("globalnetworkpolicies", "churn")
        for number in (signal.SIGKILL, signal.SIGTERM):
            world.stop_felix(number)
            world.start_felix()
            world.wait_ready()
            assert foreign(world) == before, f"after signal {number}"
        other_back_end(world, backend)
        assert foreign(world) == before, "after the other back end and home again"
        traffic.wait("to 7700")
        wait_for(lambda: all(come(world, port) > 50 for port in PORTS))
    for port in PORTS:
        assert traffic.arrived[f"to {port}"] == 0, port
        # Nothing is sent any more; what has come is on its way through the rules for a moment.
        came = come(world, port)
        wait_for(lambda n=came, p=port: dropped(world, p) >= n, f"{came} to {port}")  # type: ignore[misc]
