"""`./run bench flows`: what flow logs cost, beside a node without them.

Two nodes in one run, each with a felix, a client and a server; one makes flows. The client begins
1,000 connections a second, by turns on one node and on the other, so that both meet the same
machine. Told of each: felix's CPU as a share of one core, and the time to connect, p50 and p99. Of
flow logs: connections begun and flows' connections (what is told of and what is lost).

Goals: 10 % of one core; p50 at most 5 % slower, p99 at most 10 %.

JSON: `sides.without|with` = {cpu_percent, connect_ms: {p50, p99, n}, failed}, `slower` = {p50, p99}
as ratios, `flows` = {begun, told, lost}.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

from tests.bench._reporting import add_plot, plot
from tests.felix.in_kernel import mode
from tests.felix.world import Pod, World, make_world
from tests.support.patience import wait_for

Json = dict[str, Any]
PORT, RATE = 8080, 1000
LOAD = ("-m", "tests.bench._flows_load")
ROOT = Path(__file__).parent.parent.parent
ON = {"FELIX_FLOWLOGSLOCALREPORTER": "Enabled", "FELIX_FLOWLOGSFLUSHINTERVAL": "15"}
POLICY = {
    "selector": "role == 'server'",
    "types": ["Ingress"],
    "ingress": [{"action": "Allow", "protocol": "TCP", "destination": {"ports": [PORT]}}],
}


@dataclass
class Side:
    """A node with its pods, and what was measured on it."""

    world: World
    client: Pod
    server: Pod
    took: list[float] = field(default_factory=list)
    failed: int = 0
    cpu: float = 0.0
    lasted: float = 0.0

    def felix_cpu(self) -> float:
        """Seconds of CPU that felix had so far."""
        assert self.world.process is not None
        words = Path(f"/proc/{self.world.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def turn(self, rate: float, seconds: float) -> None:
        """Begin connections for a while."""
        before = self.felix_cpu()
        command = [sys.executable, *LOAD, "client", self.server.address, str(PORT)]
        done = subprocess.run(
            self.client.space.command(*command, str(rate), str(seconds)),
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        raw: Json = json.loads(done.stdout)
        self.took += raw["took"]
        self.failed += raw["failed"]
        self.lasted += raw["lasted"]
        self.cpu += self.felix_cpu() - before

    def figures(self) -> Json:
        """What is told of this side."""
        return {
            "cpu_percent": round(100 * self.cpu / self.lasted, 2),
            "connect_ms": percentiles(self.took),
            "failed": self.failed,
        }


def percentiles(seconds: list[float]) -> Json:
    """p50 and p99 in milliseconds. Pure."""
    cuts = quantiles(seconds, n=100)
    return {"p50": round(cuts[49] * 1e3, 4), "p99": round(cuts[98] * 1e3, 4), "n": len(seconds)}


def slower(without: Json, with_: Json) -> Json:
    """How much longer connecting takes, as ratios. Pure."""
    one, other = without["connect_ms"], with_["connect_ms"]
    return {name: round(other[name] / one[name], 3) for name in ("p50", "p99")}


def side(stack: ExitStack, folder: Path, backend: str, **environment: str) -> Side:
    """A node that is ready."""
    folder.mkdir()
    world = stack.enter_context(make_world(folder))
    world.environment |= {**mode(backend), **environment}
    world.etcd.start()
    world.write_cluster()
    pods = []
    for number, name in enumerate(("client", "server"), 1):
        pod = world.wire(f"cali{name}", f"10.65.0.{number}", f"fd65::{number}")
        world.put_endpoint(name, pod, labels={"role": name})
        pods.append(pod)
    world.put("globalnetworkpolicies", "server", "GlobalNetworkPolicy", POLICY)
    world.start_felix()
    world.wait_ready()
    client, server = pods
    made = Side(world, client, server)
    command = [sys.executable, *LOAD, "server", made.server.address, str(PORT)]
    listener = subprocess.Popen(
        made.server.space.command(*command), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    stack.callback(listener.kill)
    assert listener.stdout is not None
    listener.stdout.readline()
    wait_for(lambda: made.client.reaches(made.server.address) or True)
    return made


def told(world: World) -> Json:
    """Connections that flows tell of, one reporter's, and what was lost."""
    file = world.folder / "run/var-lib/calico/flows/flows.log"
    lines = file.read_text().splitlines() if file.exists() else []
    flows = [json.loads(line) for line in lines]
    mine = [f for f in flows if f["reporter"] == "Dst" and f["dest_port"] == PORT]
    page = world.get("/metrics", 19091)[1]
    lost = {
        line.split('"')[1]: float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith("muslin_felix_flows_lost_total{")
    }
    return {"told": sum(f["num_connections_started"] for f in mine), "lost": lost}


def measure(backend: str, rate: float, seconds: float, turns: int) -> Json:
    """Both nodes, in turns."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        without = side(stack, Path(folder) / "without", backend)
        with_ = side(stack, Path(folder) / "with", backend, **ON)
        for one in (without, with_):
            one.turn(rate / 10, 2)
            one.took, one.failed, one.cpu, one.lasted = [], 0, 0.0, 0.0
        for _ in range(turns):
            for one in (without, with_):
                one.turn(rate, seconds)
        begun = len(with_.took)
        wait_for(lambda: told(with_.world)["told"] >= begun * 0.9, "the interval ends", limit=90)
        sides = {"without": without.figures(), "with": with_.figures()}
        flows = {"begun": begun, **told(with_.world)}
    return {"sides": sides, "slower": slower(sides["without"], sides["with"]), "flows": flows}


def table(result: Json) -> str:
    """For people. Pure."""
    lines = [f"{'':24}{'without':>12}{'with':>12}{'ratio':>8}"]
    one, other = result["sides"]["without"], result["sides"]["with"]
    lines.append(f"{'felix, % of a core':24}{one['cpu_percent']:12}{other['cpu_percent']:12}")
    for name in ("p50", "p99"):
        values = (each["connect_ms"][name] for each in (one, other))
        shown = "".join(f"{value:12}" for value in values)
        lines.append(f"{f'to connect, {name} ms':24}{shown}{result['slower'][name]:8}")
    flows = result["flows"]
    lines.append(
        f"connections begun {flows['begun']}, told of {flows['told']}, lost {flows['lost']}"
    )
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench flows", description=__doc__)
    parser.add_argument("--json", action="store_true")
    add_plot(parser)
    parser.add_argument("--backend", default="nftables", choices=("nft", "legacy", "nftables"))
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    result = measure(options.backend, options.rate, options.seconds, options.turns)
    plot("flows", result, options)
    print(json.dumps(result, indent=1) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
