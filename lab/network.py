"""Cables between machines: bridges in the router, one veth pair per machine, addresses, routes.

Both ends of a pair are born in their namespaces, so no link ever shows on the host (LAB-5).
A cable is pulled at the router's end: the node loses carrier and keeps its configuration, as with
a real switch port. Tested in tests/lab/test_network.py.
"""

from __future__ import annotations

import time

from lab import proc
from lab.machine import Machine, netns_name
from lab.topology import ROUTER, ROUTER_HOST, Host, Plan

ROUTER_SYSCTLS = (
    "net.ipv4.ip_forward=1",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv6.conf.all.forwarding=1",
    "net.ipv6.conf.all.accept_dad=0",
    "net.ipv6.conf.default.accept_dad=0",
)
HOST_SYSCTLS = ("net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")


def ip_batch(netns: str, lines: list[str]) -> None:
    """Run lines of ip(8) in one process in a named network namespace."""
    text = "\n".join(lines) + "\n"
    proc.run(["ip", "-n", netns, "-batch", "-"], stdin=text.encode())


def router_lines(plan: Plan, lab: str) -> list[str]:
    """What ip(8) does in the router's namespace; makes the machines' eth0 too. Pure."""
    lines = []
    for segment in plan.segments:
        bridge = segment.bridge
        lines += [
            f"link add {bridge} type bridge forward_delay 0 mcast_snooping 0",
            f"addr add {segment.host(ROUTER_HOST)} dev {bridge}",
            f"addr add {segment.host6(ROUTER_HOST)} dev {bridge} nodad",
            f"link set {bridge} up",
        ]
    for host in plan.hosts:
        netns = netns_name(lab, host.name)
        lines += [
            f"link add {host.port} type veth peer name eth0 netns {netns}",
            f"link set {host.port} master {host.segment.bridge} up",
        ]
    return lines


def host_lines(host: Host) -> list[str]:
    """What ip(8) does in a machine's own namespace. Pure."""
    return [
        f"addr add {host.address} dev eth0",
        f"addr add {host.address6} dev eth0 nodad",
        "link set eth0 up",
        f"route add default via {host.segment.gateway}",
        f"-6 route add default via {host.segment.host6(ROUTER_HOST).ip}",
    ]


def cable(plan: Plan, lab: str, machines: dict[str, Machine]) -> None:
    """Connect everything; returns when every machine has its addresses and routes."""
    machines[ROUTER].run(["sysctl", "-qw", *ROUTER_SYSCTLS])
    ip_batch(netns_name(lab, ROUTER), router_lines(plan, lab))
    for host in plan.hosts:
        machines[host.name].run(["sysctl", "-qw", *HOST_SYSCTLS])
        ip_batch(
            netns_name(lab, host.name),
            [line for line in host_lines(host) if not line.startswith("-6")],
        )
        six = [line.removeprefix("-6 ") for line in host_lines(host) if line.startswith("-6")]
        for line in six:
            proc.run(["ip", "-n", netns_name(lab, host.name), "-6", *line.split()])


def set_cable(lab: str, host: Host, *, up: bool) -> float:
    """Plug or pull a machine's cable; the moment it happened (time.monotonic)."""
    word = "up" if up else "down"
    proc.run(["ip", "-n", netns_name(lab, ROUTER), "link", "set", host.port, word])
    return time.monotonic()
