"""`./run bench netlink`: our packed netlink messages beside pyroute2, in a namespace of its own.

Each kind of work is done by both in turns, in one process: routes added one by one and in one
batch, routes listed, veth pairs whose peer is born in another namespace, members of an ipset.
CPU is that of the process with the kernel's part of it; `import_ms` and `import_mb` are what an
import of pyroute2 costs a program that has what our agents have.

JSON: `work.<kind>.<way>` = {cpu_us, wall_us} of one object; `import_ms`, `import_mb`, `load`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address, ip_network
from statistics import median
from typing import TypedDict

from linux import links, routes
from linux.ipset import IPSets
from linux.netlink import Socket
from linux.routes import NextHop, Route
from tests.bench._reporting import add_plot, plot
from tests.support.netns import Namespace, network_namespace

ROUTES, PAIRS, MEMBERS = 500, 10, 1000
SECOND = 4
"""Turns away from those of routes added one by one."""
GATEWAY = "10.99.0.2"
IMPORT = """\
import asyncio, json, logging, ssl, time
from pathlib import Path
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
before, began = resident(), time.process_time()
from pyroute2 import IPRoute
print(json.dumps([time.process_time() - began, resident() - before]))
"""

Work = Callable[[int], int]
"""Does one turn, by its number; returns how many objects."""


class Cost(TypedDict):
    """Microseconds for one object."""

    cpu_us: float
    wall_us: float


class Result(TypedDict):
    """See above."""

    work: dict[str, dict[str, Cost]]
    import_ms: float
    import_mb: float
    load: float


def targets(turn: int, way: int) -> list[str]:
    """Destinations that no other turn and way has. Pure."""
    nets = ip_network(f"10.{100 + way}.0.0/16").subnets(new_prefix=28)
    return [str(net) for net in nets][ROUTES * turn : ROUTES * (turn + 1)]


def ours(peer: Namespace, device: int) -> Iterator[tuple[str, Work]]:
    """Our way of each kind of work."""
    sock, sets = Socket(), IPSets()
    hop = NextHop(ip_address(GATEWAY), device)

    def messages(turn: int, way: int) -> list[bytes]:
        return [routes.replace(Route(ip_network(net), (hop,))) for net in targets(turn, way)]

    def one_by_one(turn: int) -> int:
        for message in messages(turn, 0):
            sock.request(message)
        return ROUTES

    def batch(turn: int) -> int:
        sock.carry_out(messages(turn, 1))
        return ROUTES

    def pairs(turn: int) -> int:
        for number in range(PAIRS):
            name = f"o{turn}.{number}"
            message = links.create_veth(
                name, mac=None, mtu=1500, peer_name=name, peer_mac=None, peer_netns_fd=peer.fd
            )
            links.made(sock, message, name)
        return PAIRS

    def members(turn: int) -> int:
        sets.create(f"ours{turn}", "hash:net", 4)
        sets.add(f"ours{turn}", [f"10.1.{n >> 8}.{n & 255}" for n in range(MEMBERS)])
        return MEMBERS

    yield "route added", one_by_one
    yield "route added, in a batch", batch
    yield "route listed", lambda _: len(routes.dump(sock))
    yield "veth pair", pairs
    yield "ipset member", members


def theirs(peer: Namespace, device: int) -> Iterator[tuple[str, Work]]:
    """pyroute2's way of each kind of work."""
    from pyroute2 import IPRoute
    from pyroute2.ipset import IPSet

    reader, sets = IPRoute(), IPSet()

    def one_by_one(turn: int) -> int:
        for net in targets(turn, 2):
            reader.route("replace", dst=net, gateway=GATEWAY, oif=device)
        return ROUTES

    def pairs(turn: int) -> int:
        for number in range(PAIRS):
            name = f"t{turn}.{number}"
            far = {"ifname": name, "net_ns_fd": peer.name}
            reader.link("add", ifname=name, kind="veth", mtu=1500, peer=far)
        return PAIRS

    def members(turn: int) -> int:
        sets.create(f"theirs{turn}", stype="hash:net")
        for n in range(MEMBERS):
            sets.add(f"theirs{turn}", f"10.1.{n >> 8}.{n & 255}", etype="net")
        return MEMBERS

    yield "route added", one_by_one
    # Its IPBatch tells nothing of what failed, which felix must know of each route.
    yield "route added, in a batch", lambda turn: one_by_one(turn + SECOND)
    yield "route listed", lambda _: len(list(reader.get_routes(family=2)))
    yield "veth pair", pairs
    yield "ipset member", members


def measure(rounds: int) -> dict[str, dict[str, Cost]]:
    """All kinds of work by both, in turns."""
    with network_namespace("bench") as here, network_namespace("peer") as peer, here.entered():
        here.run("ip", "link", "add", "d0", "up", "type", "bridge")
        here.run("ip", "addr", "add", "10.99.0.1/24", "dev", "d0")
        with Socket() as sock:
            device = links.by_name(links.dump(sock))["d0"].index
        ways = {"ours": dict(ours(peer, device)), "pyroute2": dict(theirs(peer, device))}
        spent: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for turn in range(rounds):
            for kind in ways["ours"]:
                for way, works in ways.items():
                    cpu, wall = time.process_time(), time.perf_counter()
                    count = works[kind](turn)
                    taken = time.process_time() - cpu, time.perf_counter() - wall
                    spent.setdefault((kind, way), []).append((taken[0] / count, taken[1] / count))
    return {
        kind: {
            way: {
                "cpu_us": round(median(cpu for cpu, _ in spent[kind, way]) * 1e6, 1),
                "wall_us": round(median(wall for _, wall in spent[kind, way]) * 1e6, 1),
            }
            for way in ways
        }
        for kind in ways["ours"]
    }


def run(rounds: int) -> Result:
    """Everything."""
    imports: list[list[float]] = []
    for _ in range(rounds):
        done = subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True)
        imports.append(json.loads(done.stdout))
    return {
        "work": measure(rounds),
        "import_ms": round(median(seconds for seconds, _ in imports) * 1000, 1),
        "import_mb": round(median(size for _, size in imports) / 1e6, 1),
        "load": os.getloadavg()[0],
    }


def table(result: Result) -> str:
    """For people. Pure."""
    lines = [f"{'':26}{'ours, CPU':>12}{'wall us':>10}{'pyroute2, CPU':>16}{'wall us':>10}"]
    for kind, costs in result["work"].items():
        own, other = costs["ours"], costs["pyroute2"]
        figures = f"{own['cpu_us']:12}{own['wall_us']:10}{other['cpu_us']:16}{other['wall_us']:10}"
        lines.append(f"{kind:26}{figures}")
    paid = f"import of pyroute2: {result['import_ms']} ms of CPU, {result['import_mb']} MB"
    return "\n".join([*lines, "", paid, f"load {result['load']:.1f}"])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench netlink", description=__doc__)
    parser.add_argument("--json", action="store_true")
    add_plot(parser)
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, SECOND + 1))
    options = parser.parse_args()
    result = run(options.rounds)
    plot("netlink", result, options)
    print(json.dumps(result, indent=1) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
