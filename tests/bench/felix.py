"""`./run bench felix`: what felix costs at 110 endpoints and 100 policies, on both back ends.

Each figure stands beside a peer of the same run that felix has no part in: the same change, load
or routes written by hand with the kernel's own tools. So the ratios hold on any machine, however
busy it is. Figures (`--part`):

change   one rule of one policy changes: from the write to etcd to the kernel's commit; peer: one
         `iptables-restore --noflush` or `nft -f` that does the same to a chain in the same tables
mixed    rules, set members and labels in turn, while 20 other changes a second run
restart  SIGKILL, then from the start to ready, and what was written (nothing); peer: a Python that
         imports felix, then the programs that list the rules, one after another
idle     CPU and resident memory with this load; peer: a Python that sleeps
routes   65,536 routes of nodes, cold; then a restart with the same ones; peer: `ip -batch`
external 8,192 routes of external peers, by which others may be resolved; the same
cycles   a policy of 10,000 rules comes and goes, ten times (--full: 30): memory, also after a rest
packets  pod to pod with 0, 100 and 1,000 policies; peer: the same rules written by hand
         (tests/bench/_felix_packets.py)

Counts are reduced; --full takes 1,000 mixed changes, 100 others, 1,000 policies, 60 s of idling.
JSON: `results.BACKEND.PART`, seconds unless the name says otherwise. The garbage collector is as
felix has it: it freezes what the snapshot made.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from libcalico.local.framing import connect_unix
from libcalico.local.node_api import Hello, Paths, PathsBegin, PathsEnd
from libcalico.local.node_api import Path as BgpPath
from tests.bench import _felix_cycles, _felix_packets
from tests.bench._felix_world import Bench, Json, RuleEar, Store, loaded, soon
from tests.bench._reporting import add_arguments, conclude
from tests.felix.in_kernel import BACKENDS, NFTABLES

ENDPOINTS, POLICIES, ROUTES = 110, 100, 65_536
PARTS = ("change", "mixed", "restart", "idle", "routes", "external", "cycles", "packets")
OTHERS_A_SECOND = 20
READS = {
    "nft": [
        f"{program}-nft-save -t {name}"
        for program in ("iptables", "ip6tables")
        for name in ("raw", "mangle", "nat", "filter")
    ],
    NFTABLES: ["nft list table ip calico", "nft list table ip6 calico"],
}


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def figures(samples: Sequence[float]) -> Json:
    """What is told of a series of seconds, in milliseconds. Pure."""
    ordered = sorted(samples)
    return {
        "p50_ms": round(median(ordered) * 1000, 2),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000, 2),
        "max_ms": round(ordered[-1] * 1000, 2),
        "n": len(ordered),
    }


def by_hand(bench: Bench, ear: RuleEar, rounds: int) -> list[float]:
    """One rule of one chain, by the kernel's own tool, in the tables that felix filled."""
    native = bench.backend == NFTABLES

    def write(number: int, port: int) -> None:
        if native:
            rule = f"tcp dport {port} counter accept"
            text = (
                "add table ip hand\n"
                f"add chain ip hand hand{number}\n"
                f"flush chain ip hand hand{number}\n"
                f"add rule ip hand hand{number} {rule}\n"
            )
            bench.world.node.run("nft", "-f", "-", input=text)
            return
        rule = f"-A hand{number} -p tcp -m multiport --dports {port} -j ACCEPT"
        text = f"*filter\n:hand{number} - [0:0]\n{rule}\nCOMMIT\n"
        bench.world.node.run("iptables-nft-restore", "--noflush", input=text)

    samples = []
    for turn in range(-1, rounds):
        begun = time.perf_counter()
        write(turn % 10, 1000 + turn)
        samples.append(ear.after(f"hand{turn % 10}", begun) - begun)
        time.sleep(0.05)
    return samples[1:]


def change(bench: Bench, ear: RuleEar, rounds: int) -> Json:
    """One change of a rule at a time."""
    samples = []
    for turn in range(-2, rounds):
        samples.append(bench.change_rule(ear, (turn * 37) % bench.policies))
        # What is not wanted any more is taken away half a second later; not in the next sample.
        time.sleep(0.1)
    ours, peer = figures(samples[2:]), figures(by_hand(bench, ear, rounds))
    ratio = round(ours["p50_ms"] / peer["p50_ms"], 2)
    return {**ours, "by_hand": peer, "p50_ratio": ratio}


def mixed(bench: Bench, ear: RuleEar, count: int) -> Json:
    """Changes of three kinds in turn, beside others that nobody measures."""
    ended, others = threading.Event(), Store(bench.world.etcd.endpoint)
    made, half = [0], bench.policies // 2

    def noise() -> None:
        beside = Bench(bench.world, bench.backend, bench.endpoints, bench.policies)
        beside.store = others
        while not ended.wait(1 / OTHERS_A_SECOND):
            number = made[0] = made[0] + 1
            policy = half + number % (bench.policies - half)
            if number % 2:
                beside.put_policy(policy, 2000 + number % 30000)
            else:
                beside.put_set(policy, [f"203.0.{number % 250}.9/32"])

    chance = random.Random(7)
    samples: dict[str, list[float]] = {"rule": [], "set_member": [], "label": []}
    thread = threading.Thread(target=noise)
    thread.start()
    began = time.perf_counter()
    try:
        for turn in range(count):
            number = chance.randrange(half)
            match turn % 3:
                case 0:
                    samples["rule"].append(bench.change_rule(ear, number))
                case 1:
                    samples["set_member"].append(bench.change_set(number))
                case _:
                    endpoint = chance.randrange(bench.endpoints)
                    samples["label"].append(bench.change_label(number, endpoint))
    finally:
        ended.set()
        thread.join()
    seconds = time.perf_counter() - began
    every = [sample for kind in samples.values() for sample in kind]
    kinds = {kind: figures(found) for kind, found in samples.items()}
    return {**figures(every), "kinds": kinds, "others_per_s": round(made[0] / seconds, 1)}


def restart(bench: Bench, ear: RuleEar, rounds: int) -> Json:
    """Killed and started again: until ready, and what was written."""
    samples, imports, reads = [], [], []
    written: Json = {}
    commits = 0
    # Changes of an earlier part come to rest.
    time.sleep(3)
    for _ in range(rounds):
        bench.world.stop_felix(signal.SIGKILL)
        time.sleep(0.3)
        before = ear.commits
        samples.append(bench.start())
        time.sleep(1)
        commits += ear.commits - before
        for name, number in bench.writes().items():
            written[name] = written.get(name, 0) + number
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import felix.agent"], check=True)
        imports.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        for command in READS[bench.backend]:
            bench.world.node.run(*command.split())
        reads.append(time.perf_counter() - begun)
    ours, peer = figures(samples), median(imports) + median(reads)
    return {
        **ours,
        "written": written,
        "kernel_commits": commits,
        "imports_alone": figures(imports),
        "rules_read_alone": figures(reads),
        "p50_ratio": round(ours["p50_ms"] / 1000 / peer, 2),
    }


def idle(bench: Bench, seconds: float) -> Json:
    """CPU and memory while nothing happens."""
    time.sleep(3)
    before, _ = bench.process()
    sleeper = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds + 60})"])
    time.sleep(seconds)
    after, resident = bench.process()
    status = Path(f"/proc/{sleeper.pid}/status").read_text().split("VmRSS:")[1].split()[0]
    sleeper.kill()
    sleeper.wait()
    return {
        "cpu_percent": round((after - before) / seconds * 100, 2),
        "rss_mib": round(resident, 1),
        "bare_python_rss_mib": round(int(status) / 1024, 1),
        "seconds": seconds,
    }


def prefixes(count: int) -> list[str]:
    """So many networks of 64 addresses. Pure."""
    return [f"100.{64 + (n >> 10)}.{n >> 2 & 255}.{(n & 3) << 6}/26" for n in range(count)]


async def announce(bench: Bench, wanted: Sequence[str], origin: str) -> float:
    """Tell felix a whole snapshot as bgp would; seconds until it has been dealt with.

    The last is a path to something new: what was sent before it has been dealt with by then.
    """
    marker = f"100.200.0.{random.randrange(1, 255)}/32"
    bgp = await connect_unix(bench.world.socket, Hello("bgp"))
    try:
        begun = time.perf_counter()
        await bgp.send(PathsBegin())
        for at in range(0, len(wanted), 1000):
            part = [BgpPath(each, ["10.99.7.2"], origin) for each in wanted[at : at + 1000]]
            await bgp.send(Paths(updated=part))
        await bgp.send(PathsEnd())
        await bgp.send(Paths(updated=[BgpPath(marker, ["10.99.7.2"], origin)]))
        look = asyncio.to_thread(soon, lambda: bench.world.route(marker), 0.05, "the last route")
        await look
        found = bench.metrics()["felix_route_table_num_routes"]
        if found < len(wanted) + bench.endpoints:
            raise SystemExit(f"{found:g} routes, though the last is there")
        return time.perf_counter() - begun
    finally:
        await bgp.close()


async def forget(bench: Bench) -> None:
    """Tell felix an empty snapshot; returns once no path has a route."""
    bgp = await connect_unix(bench.world.socket, Hello("bgp"))
    try:
        await bgp.send(PathsBegin())
        await bgp.send(PathsEnd())
        left = bench.endpoints + 10
        few = lambda: bench.metrics()["felix_route_table_num_routes"] <= left  # noqa: E731
        await asyncio.to_thread(soon, few, 0.1, "no route is left")
    finally:
        await bgp.close()


def routes(bench: Bench, count: int, origin: str = "node") -> Json:
    """A full table, cold; then felix starts anew and hears the same."""
    wanted = prefixes(count)
    pool = {"cidr": "100.0.0.0/8", "ipipMode": "Never", "vxlanMode": "Never"}
    bench.store.object("ippools", "IPPool", "large", pool)
    lines = "\n".join(f"route add {each} via 10.99.7.2 table 4242" for each in wanted)
    begun = time.perf_counter()
    bench.world.node.run("ip", "-batch", "-", input=lines)
    peer = time.perf_counter() - begun
    bench.world.node.run("ip", "route", "flush", "table", "4242")
    before, _ = bench.process()
    cold = asyncio.run(announce(bench, wanted, origin))
    busy, _ = bench.process()
    bench.world.stop_felix(signal.SIGKILL)
    start = bench.start()
    started, _ = bench.process()
    resync = asyncio.run(announce(bench, wanted, origin))
    # One or two for the marker, whose old one goes.
    written = bench.writes()["muslin_felix_route_writes"]
    after, resident = bench.process()
    # The next part begins with an empty table.
    asyncio.run(forget(bench))
    return {
        "n": count,
        "origin": origin,
        "cold_s": round(cold, 2),
        "cold_cpu_s": round(busy - before, 2),
        "by_hand_s": round(peer, 2),
        "cold_ratio": round(cold / peer, 2),
        "start_s": round(start, 2),
        "resync_s": round(resync, 2),
        "resync_cpu_s": round(after - started, 2),
        "resync_writes_beside_markers": max(0, written - 2),
        "rss_mib": round(resident, 1),
    }


def measure(folder: Path, backend: str, parts: Sequence[str], full: bool) -> Json:
    """All parts on one back end."""
    result: Json = {}
    alone = [part for part in parts if part not in ("cycles", "packets")]
    if alone:
        with loaded(folder / backend, backend, ENDPOINTS, POLICIES) as bench:
            ear = RuleEar()
            say(f"{backend}: {ENDPOINTS} endpoints and {POLICIES} policies")
            result["first_start_s"] = round(bench.start(), 2)
            time.sleep(2)
            bench.learn_sets()
            steps: dict[str, Callable[[], Json]] = {
                "change": lambda: change(bench, ear, 100 if full else 20),
                "mixed": lambda: mixed(bench, ear, 1000 if full else 60),
                "restart": lambda: restart(bench, ear, 5 if full else 2),
                "idle": lambda: idle(bench, 60 if full else 10),
                "routes": lambda: routes(bench, ROUTES if full else ROUTES // 8),
                "external": lambda: routes(bench, ROUTES // 8, "external"),
            }
            for part in alone:
                say(f"{backend}: {part}")
                result[part] = steps[part]()
    if "cycles" in parts:
        say(f"{backend}: cycles")
        rounds = 30 if full else 10
        result["cycles"] = _felix_cycles.measure(folder / f"{backend}-cycles", backend, rounds)
    if "packets" in parts:
        say(f"{backend}: packets")
        sizes = (0, 100, 1000) if full else (0, 100)
        result["packets"] = _felix_packets.measure(folder / f"{backend}-packets", backend, sizes)
    return result


def table(value: Any, indent: int = 0) -> str:
    """For people. Pure."""
    lines = []
    for name, each in value.items():
        if isinstance(each, dict):
            flat = all(not isinstance(inner, dict) for inner in each.values())
            if flat and indent:
                words = "  ".join(f"{k} {v}" for k, v in each.items())
                lines.append(f"{' ' * indent}{name:16} {words}")
            else:
                lines += [f"{' ' * indent}{name}", table(each, indent + 2)]
        else:
            lines.append(f"{' ' * indent}{name:16} {each}")
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench felix", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--backend", action="append", choices=BACKENDS)
    parser.add_argument("--part", action="append", choices=PARTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {
            backend: measure(Path(folder), backend, options.part or PARTS, options.full)
            for backend in options.backend or BACKENDS
        }
    conclude("felix", {"results": result}, options, lambda found: table(found["results"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
