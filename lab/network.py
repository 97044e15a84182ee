"""Cables between machines: bridges in the routers, a veth pair for each cable, addresses, routes.

Both ends of a pair are born in their namespaces, so no link ever shows on the host (LAB-5).
A cable is pulled at the router's end: the node loses carrier and keeps its configuration, as with
a real switch port.

Invariant LAB-5: no link of a lab ever lies in the host's own namespace.
Tested in tests/lab/test_network.py.
"""

from __future__ import annotations

import time

from lab import proc
from lab.machine import Machine, netns_name
from lab.topology import ROUTER, ROUTER_HOST, Host, Plan, Segment, Switch

ROUTER_SYSCTLS = (
    "net.ipv4.ip_forward=1",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv6.conf.all.forwarding=1",
    "net.ipv6.conf.all.accept_dad=0",
    "net.ipv6.conf.default.accept_dad=0",
)
HOST_SYSCTLS = ("net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
TWO_CABLES_SYSCTLS = (
    # The hash of a flow includes its ports, and a cable without carrier is not used.
    "net.ipv4.fib_multipath_hash_policy=1",
    "net.ipv4.conf.all.ignore_routes_with_linkdown=1",
    "net.ipv4.conf.default.ignore_routes_with_linkdown=1",
)


def ip_batch(netns: str, lines: list[str]) -> None:
    """Run lines of ip(8) in a named network namespace, IPv4's in one process."""
    six = [line.removeprefix("-6 ") for line in lines if line.startswith("-6 ")]
    text = "\n".join(line for line in lines if not line.startswith("-6 ")) + "\n"
    proc.run(["ip", "-n", netns, "-batch", "-"], stdin=text.encode())
    for line in six:
        proc.run(["ip", "-n", netns, "-6", *line.split()])


def of_families(plan: Plan, lines: dict[int, list[str]]) -> list[str]:
    """The lines of the underlay's families. Pure."""
    return [line for version in plan.versions for line in lines[version]]


def router_lines(plan: Plan, lab: str, switch: Switch | None = None) -> list[str]:
    """The lines of ip(8) in a router's namespace; they make the machines' interfaces too. Pure."""
    mine = switch or plan.switches[0]
    lines = []
    for segment in mine.segments:
        bridge = segment.bridge
        lines.append(f"link add {bridge} type bridge forward_delay 0 mcast_snooping 0")
        lines += of_families(
            plan,
            {
                4: [f"addr add {segment.host(ROUTER_HOST)} dev {bridge}"],
                6: [f"addr add {segment.host6(ROUTER_HOST)} dev {bridge} nodad"],
            },
        )
        lines.append(f"link set {bridge} up")
    for host in plan.hosts:
        netns = netns_name(lab, host.name)
        for interface, segment in host.cables:
            if segment in mine.segments:
                lines += [
                    f"link add {host.port} type veth peer name {interface} netns {netns}",
                    f"link set {host.port} master {segment.bridge} up",
                ]
    return lines


def ways_to_racks(plan: Plan) -> list[str]:
    """The router's ways to the racks that other routers have; no pod's among them. Pure."""
    lines = []
    for tor, rack in zip(plan.tors, plan.racks if plan.tors else (), strict=True):
        lines += of_families(
            plan,
            {
                4: [f"route add {rack.host(0).network} via {tor.address.ip}"],
                6: [f"-6 route add {rack.host6(0).network} via {tor.address6.ip}"],
            },
        )
    return lines


def host_lines(host: Host, plan: Plan) -> list[str]:
    """The commands of ip(8) in a machine's own namespace. Pure."""
    lines: dict[int, list[str]] = {4: [], 6: []}
    hops: dict[int, str] = {4: "", 6: ""}
    for interface, segment in host.cables:
        lines[4].append(f"addr add {segment.host(host.number)} dev {interface}")
        lines[6].append(f"addr add {segment.host6(host.number)} dev {interface} nodad")
        for version in hops:
            to = segment.address(ROUTER_HOST, version)
            hops[version] += f" nexthop via {to} dev {interface}" if host.second else f" via {to}"
    if host.loopback is not None:
        lines[4].append(f"addr add {host.loopback} dev lo")
    up = [f"link set {interface} up" for interface, _ in host.cables]
    ways = {4: [f"route add default{hops[4]}"], 6: [f"-6 route add default{hops[6]}"]}
    return [*of_families(plan, lines), *up, *of_families(plan, ways)]


def cable(plan: Plan, lab: str, machines: dict[str, Machine]) -> None:
    """Connect everything; returns when every machine has its addresses and routes."""
    routers = {switch.name for switch in plan.switches}
    for name in routers:
        machines[name].run(["sysctl", "-qw", *ROUTER_SYSCTLS])
    for switch in plan.switches:
        ip_batch(netns_name(lab, switch.name), router_lines(plan, lab, switch))
    for host in plan.hosts:
        if host.name not in routers:
            more = TWO_CABLES_SYSCTLS if host.second else ()
            machines[host.name].run(["sysctl", "-qw", *HOST_SYSCTLS, *more])
        ip_batch(netns_name(lab, host.name), host_lines(host, plan))
    if plan.tors:
        ip_batch(netns_name(lab, ROUTER), ways_to_racks(plan))


def set_cable(lab: str, plan: Plan, host: Host, segment: Segment, *, up: bool) -> float:
    """Plug or pull a machine's cable; the moment it happened (time.monotonic)."""
    word = "up" if up else "down"
    netns = netns_name(lab, plan.switch_of(segment).name)
    proc.run(["ip", "-n", netns, "link", "set", host.port, word])
    return time.monotonic()
