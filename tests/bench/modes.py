"""`./run bench modes`: what each way between two nodes costs a pod, beside the nodes themselves.

Two lab nodes on one segment, with a pod each. In every round, for each mode, the pool is switched,
new pods are started (so they have the mode's MTU), and a TCP stream and one-byte requests go from
one pod to the other; and, as the peer in the same round, from node to node, which no mode touches.
Figures are medians of the rounds: throughput, and the latency of a request with its answer.

unencapsulated  ipipMode and vxlanMode Never
vxlan           vxlanMode Always; CrossSubnet is this between subnets, unencapsulated inside one
ipip            ipipMode Always; CrossSubnet likewise

Where this machine's kernel has no IP-in-IP, the same is measured in user-mode Linux, `guest`, with
all modes beside it: another kernel, twenty times slower, so only its ratios mean something.
Both nodes share this machine's processors, and their cable is a veth pair that carries segments of
64 KiB and computes no checksums: a real network's card and MTU matter more than any mode.
JSON: `results.{host,guest}.MODE`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from lab import cluster, pods
from lab.machine import FAST_PYTHON, Machine
from linux import ipip
from linux.netlink import Socket
from tests.bench import _ending
from tests.bench._felix_world import Json
from tests.bench._reporting import add_plot, plot
from tests.bench.felix import say, table
from tests.support import uml
from tests.support.netns import network_namespace
from tests.tunnels.scene import NEVER, Modes, Scene, scene

DRIVER = Path(__file__).with_name("_modes_driver.py")
RESULT = Path("/out/result.json")
PORT = 7001
MODES: dict[str, tuple[Modes, str]] = {
    "unencapsulated": (NEVER, "eth0"),
    "vxlan": (("Never", "Always"), "vxlan.calico"),
    "ipip": (("Always", "Never"), "tunl0"),
}
"""Name -> the pool's ipipMode and vxlanMode, and the device to the other node."""
PEER = "node to node"
GUEST_PATIENCE = 6.0 * uml.SLOWER


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int = 3
    seconds: float = 2.0
    requests: int = 5000


def host_has_ipip() -> bool:
    """Whether this machine's kernel makes tunl0."""
    with network_namespace("ipip") as space, space.entered(), Socket() as sock:
        return ipip.ensure(sock) is not None


def measure(made: Scene, names: Sequence[str], size: Size) -> Json:
    """Every mode and the peer, in rounds."""
    seen: dict[str, list[Json]] = {name: [] for name in (PEER, *names)}
    there = str(made.lab.host(made.names[1]).address.ip)
    for turn in range(size.rounds):
        for name in names:
            modes, device = MODES[name]
            made.set_mode(modes)
            made.comes_to(device, device)
            _fresh_pods(made)
            made.connected()
            source, target = (made.pods[node] for node in made.names)
            ends = made.machine(source.node), source.netns, made.machine(target.node), target.netns
            seen[name].append(_between(*ends, target.address, size) | {"pod_mtu": _mtu(made)})
            say(f"round {turn + 1}: {name} {seen[name][-1]}")
        here, other = (made.machine(node) for node in made.names)
        seen[PEER].append(_between(here, None, other, None, there, size))
        say(f"round {turn + 1}: {PEER} {seen[PEER][-1]}")
    found = {name: {key: median(r[key] for r in rows) for key in rows[0]}
             for name, rows in seen.items()}  # fmt: skip
    for name in names:
        ratio = found[name]["gbit_s"] / found[PEER]["gbit_s"]
        found[name]["of_peers_throughput"] = round(ratio, 2)
        found[name]["of_peers_latency"] = round(found[name]["p50_us"] / found[PEER]["p50_us"], 2)
    return found


def _fresh_pods(made: Scene) -> None:
    for pod in made.pods.values():
        pods.remove(made.lab, pod, timeout=made.patience * 6)
    made.pods.clear()
    made.start_pods()


def _mtu(made: Scene) -> int:
    pod = made.pods[made.names[0]]
    said = made.machine(pod.node).run(["ip", "-j", "link", "show", "eth0"], netns=pod.netns).stdout
    return int(json.loads(said)[0]["mtu"])


def _between(
    here: Machine,
    here_netns: str | None,
    there: Machine,
    there_netns: str | None,
    address: str,
    size: Size,
) -> Json:
    """One round of one mode."""

    def drive(what: str, much: float) -> Any:
        command = [*FAST_PYTHON, str(DRIVER), what, address, str(PORT), str(much)]
        return json.loads(here.run(command, netns=here_netns, timeout=600).stdout)

    server = there.start([*FAST_PYTHON, str(DRIVER), "serve", str(PORT)], netns=there_netns)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line == b"ready\n", line
        counted: Json = drive("stream", size.seconds)
        taken: list[float] = sorted(drive("ask", size.requests))
    finally:
        server.kill()
        server.wait()
    return {
        "gbit_s": round(counted["bytes"] * 8 / counted["seconds"] / 1e9, 3),
        "p50_us": round(median(taken) * 1e6, 1),
        "p99_us": round(taken[int(len(taken) * 0.99)] * 1e6, 1),
    }


def on_host(names: Sequence[str], size: Size) -> Json:
    """This machine's kernel."""
    with scene(f"modes{os.getpid()}", nodes=2, peers=False) as made:
        return measure(made, names, size)


def in_guest(size: Size) -> Json:
    """User-mode Linux, all modes; boots it. SystemExit with its output when it failed."""
    with tempfile.TemporaryDirectory(prefix="modes") as folder:
        words = [sys.executable, "-m", "tests.bench.modes", "--inside"]
        words += ["--rounds", str(size.rounds), "--seconds", str(size.seconds)]
        words += ["--requests", str(size.requests)]
        guest = uml.run(words, Path(folder), timeout=900)
        try:
            found: Json = json.loads((Path(folder) / "result.json").read_text())
        except (OSError, ValueError):
            found = {"error": f"ended with {guest.code}"}
    if "error" in found:
        raise SystemExit(f"in the guest: {found['error']}\n{guest.output}")
    return found


def inside(size: Size) -> int:
    """What runs in the guest; the result is a file there."""
    cluster.READY_SECONDS = GUEST_PATIENCE
    legacy = {"FELIX_IPTABLESBACKEND": "Legacy", "FELIX_IPV6SUPPORT": "false"}
    settings = {**legacy, "CALICO_NETWORKING_BACKEND": "vxlan"}  # two processes fewer to start
    try:
        with scene("g", nodes=2, peers=False, patience=GUEST_PATIENCE, environment=settings) as m:
            RESULT.write_text(json.dumps(measure(m, list(MODES), size)))
    except BaseException:
        RESULT.write_text(json.dumps({"error": traceback.format_exc()}))
        return 1
    return 0


def everything(size: Size, guest: Size | None) -> Json:
    """The host's modes, and IP-in-IP wherever there is a kernel for it (`guest`: its size)."""
    if host_has_ipip():
        return {"host": on_host(list(MODES), size)}
    found: Json = {"host": on_host([name for name in MODES if name != "ipip"], size)}
    if guest is None or (why := uml.missing()):
        why = "left out by --no-guest" if guest is None else why
        return {**found, "guest": {"not measured": why}}
    say("this kernel has no IP-in-IP: a guest is booted")
    return {**found, "guest": in_guest(guest)}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench modes", description=__doc__)
    parser.add_argument("--json", action="store_true")
    add_plot(parser)
    parser.add_argument("--rounds", type=int, default=Size.rounds)
    parser.add_argument("--seconds", type=float, default=Size.seconds, help="of each stream")
    parser.add_argument("--requests", type=int, default=Size.requests, help="of each series")
    parser.add_argument(
        "--no-guest", action="store_true", help="no IP-in-IP where the host has none"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = Size(options.rounds, options.seconds, options.requests)
    if options.inside:
        return inside(size)
    _ending.in_order()
    guest = None if options.no_guest else replace(size, requests=max(1, size.requests // 10))
    result = everything(size, guest)
    plot("modes", {"results": result}, options)
    print(json.dumps({"results": result}, indent=1) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
