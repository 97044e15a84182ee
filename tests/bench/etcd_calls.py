"""`./run bench etcd_calls`: what one call to etcd costs, by three ways of speaking HTTP/2.

`grpc` is grpc.aio with generated stubs, `h2` the package h2 (`_http2_library.py`), `own` the frames
of `libcalico/datastore/etcd/http2.py`. A real etcd holds nodes and endpoints. One process makes the
calls of all ways in turns, one call at a time: a Range of one key, a guarded Txn as an ADD's, and
the events of a watch, which a child writes. CPU is that of the whole process, threads included; it
says more than wall time on a machine that does other work. Then short programs, each in processes
of its own: what `calicoctl get nodes` costs, and one Range by each way with its imports.

JSON: `calls.<kind>.<way>` = {cpu_us, p50_us, p99_us, n}, `programs.<name>` = {cpu_ms, n}, `load`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import NotRequired, TypedDict

from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from tests.bench import _etcd_ways as ways
from tests.bench._reporting import add_plot, plot
from tests.bench.datastore import ROOT, endpoint, say
from tests.support.etcd import Etcd

KEY, VALUE = endpoint(1)
NODES = 50
SCRIPT = str(Path(sys.executable).parent / "calicoctl")
PROGRAMS = ("python", "asyncio", *ways.WAYS, "calicoctl get nodes")


class Cost(TypedDict):
    """Microseconds of one call; of events CPU alone, for their writer sets the pace."""

    cpu_us: float
    p50_us: NotRequired[float]
    p99_us: NotRequired[float]
    n: int


class Result(TypedDict):
    """See above."""

    calls: dict[str, dict[str, Cost]]
    programs: dict[str, dict[str, float]]
    load: float


def range_request() -> bytes:
    """One key."""
    return bytes(pb.RangeRequest(key=KEY.encode()).SerializeToString())


def txn_request() -> bytes:
    """What an ADD writes, in size and shape: three puts, each with a guard that holds."""
    request = pb.TxnRequest()
    for number in range(3):
        key = f"{KEY}.{number}".encode()
        request.compare.add(key=key + b".absent", target=pb.Compare.VERSION, version=0)
        request.success.add().request_put.CopyFrom(pb.PutRequest(key=key, value=VALUE))
    return bytes(request.SerializeToString())


async def measure_calls(port: int, rounds: int, calls: int) -> dict[str, dict[str, Cost]]:
    """Range and Txn by every way, in turns."""
    kinds = {"range": (ways.RANGE, range_request()), "txn": (ways.TXN, txn_request())}
    clients = [make(port) for make in ways.WAYS.values()]
    for client in clients:
        await client.connect()
    cpu = {(kind, one.name): list[float]() for kind in kinds for one in clients}
    wall = {(kind, one.name): list[float]() for kind in kinds for one in clients}
    for turn in range(rounds + 1):
        for kind, (path, request) in kinds.items():
            for client in clients:
                began, walls = time.process_time(), list[float]()
                for _ in range(calls):
                    start = time.perf_counter()
                    await client.unary(path, request)
                    walls.append(time.perf_counter() - start)
                if turn:  # the first one warms up
                    cpu[kind, client.name].append((time.process_time() - began) / calls)
                    wall[kind, client.name] += walls
    for client in clients:
        await client.close()
    return {
        kind: {
            one.name: cost(cpu[kind, one.name], wall[kind, one.name]) for one in clients
        }
        for kind in kinds
    }  # fmt: skip


def cost(cpu: list[float], wall: list[float]) -> Cost:
    """The median of the rounds' CPU, and how long calls took. Pure."""
    return {
        "cpu_us": round(median(cpu) * 1e6, 1),
        "p50_us": round(median(wall) * 1e6, 1),
        "p99_us": round(quantiles(wall, n=100)[98] * 1e6, 1),
        "n": len(wall),
    }


async def measure_events(port: int, rounds: int, events: int) -> dict[str, Cost]:
    """A watch's events by every way, in turns: a child writes one every two milliseconds."""
    cpu: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for make in ways.WAYS.values():
            client = make(port)
            await client.connect()
            next_event = await client.watch(KEY.encode())
            writer = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.bench._etcd_ways", "write", str(port), KEY,
                str(events), cwd=ROOT,
            )  # fmt: skip
            first = len((await next_event()).events)
            began, left = time.process_time(), events - first
            while left > 0:
                # Beside other work etcd may put two events into one answer.
                left -= len((await next_event()).events)
            spent = (time.process_time() - began) / (events - first)
            await writer.wait()
            await client.close()
            if turn:
                cpu.setdefault(client.name, []).append(spent)
    return {
        name: {"cpu_us": round(median(spent) * 1e6, 1), "n": len(spent) * events}
        for name, spent in cpu.items()
    }


async def measure(port: int, rounds: int, calls: int) -> dict[str, dict[str, Cost]]:
    """Calls and events: in one event loop, as grpc.aio wants it."""
    costs = await measure_calls(port, rounds, calls)
    say("events")
    return {**costs, "event": await measure_events(port, min(rounds, 5), calls)}


def program(name: str, port: int) -> list[str]:
    """The command line of a short program. Pure."""
    if name == "python":
        return [sys.executable, "-c", ""]
    if name == "calicoctl get nodes":
        return [SCRIPT, "get", "nodes"]
    return [sys.executable, "-m", "tests.bench._etcd_ways", name, str(port)]


def measure_programs(port: int, rounds: int) -> dict[str, dict[str, float]]:
    """CPU of short programs, in turns."""
    environment = {
        "PATH": os.environ["PATH"],
        "DATASTORE_TYPE": "etcdv3",
        "ETCD_ENDPOINTS": f"http://127.0.0.1:{port}",
    }
    spent: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds):
        for name in PROGRAMS:
            child = subprocess.Popen(
                program(name, port), cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
            )
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                raise RuntimeError(f"{name} ended with {child.returncode}")
            spent[name].append(usage.ru_utime + usage.ru_stime)
    return {
        name: {"cpu_ms": round(median(times) * 1000, 1), "n": len(times)}
        for name, times in spent.items()
    }


def fill(server: Etcd) -> None:
    """Nodes for `get nodes`, one endpoint for Range."""
    nodes = "/calico/resources/v3/projectcalico.org/nodes"
    puts = {KEY: VALUE.decode()}
    for number in range(NODES):
        name = f"node-{number}"
        spec = {"bgp": {"ipv4Address": f"10.0.0.{number}/24"}}
        metadata = {"name": name, "uid": f"567705fe-39d6-465b-a579-{number:012x}"}
        node = {"kind": "Node", "apiVersion": "projectcalico.org/v3"}
        puts[f"{nodes}/{name}"] = json.dumps({**node, "metadata": metadata, "spec": spec})
    lines = "\n".join(f"put {key} {json.dumps(value)}" for key, value in puts.items())
    subprocess.run(
        ["etcdctl", f"--endpoints={server.endpoint}", "txn"],
        env={"PATH": os.environ["PATH"], "ETCDCTL_API": "3"},
        input=f"\n{lines}\n\n\n",
        text=True,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def table(result: Result) -> str:
    """For people. Pure."""
    lines = [f"{'':26}{'CPU us':>8}{'p50 us':>8}{'p99 us':>8}"]
    for kind, costs in result["calls"].items():
        for way, one in costs.items():
            walls = f"{one.get('p50_us', ''):>8}{one.get('p99_us', ''):>8}"
            lines.append(f"{kind + ', ' + way:26}{one['cpu_us']:8}{walls}")
    lines += ["", f"{'':26}{'CPU ms':>8}"]
    lines += [f"{name:26}{one['cpu_ms']:8}" for name, one in result["programs"].items()]
    return "\n".join([*lines, "", f"load {result['load']:.1f}"])


def run(rounds: int, calls: int) -> Result:
    """Everything."""
    with tempfile.TemporaryDirectory(prefix="muslin-bench-") as folder:
        server = Etcd(Path(folder) / "etcd").start()
        try:
            fill(server)
            say("calls")
            costs = asyncio.run(measure(server.port, rounds, calls))
            say("programs")
            programs = measure_programs(server.port, 2 * rounds)
        finally:
            server.stop()
    return {"calls": costs, "programs": programs, "load": os.getloadavg()[0]}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench etcd_calls", description=__doc__)
    parser.add_argument("--json", action="store_true")
    add_plot(parser)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=300)
    options = parser.parse_args()
    result = run(options.rounds, options.calls)
    plot("etcd-calls", result, options)
    print(json.dumps(result, indent=1) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
