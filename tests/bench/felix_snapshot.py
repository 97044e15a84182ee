"""`./run bench felix-snapshot`: from stored bytes in a real etcd to the last desired rule.

200 local of 25,000 endpoints and 1,000 policies (`--full`: 250,000 and 10,000), shapes of
policies with network sets, and one of policies that are all different. Every measurement is a
process of its own: felix's syncer, calculation and rule book of both families as they are, without
a kernel. In the same run the same keys are read in the same pages by a client that does not look
into them: the ratio holds on any machine. The collector is as felix has it: at rest while much is
made, which is then frozen.

JSON: `results.<shape>` = {seconds: {read, match, tell, sets}, cpu_s, total_s, total_cpu_s,
peak_rss_mib, kept_rss_mib, stall_ms, stall_cpu_ms, rules, members, raw: {seconds, ...},
ratio: total_s / raw, changes: {kind: {p50_ms, p99_ms, max_ms}, "at once": {kind: {ms, stall_ms,
members}}}}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from tests.bench._reporting import add_arguments, conclude
from tests.bench._snapshot_shape import Shape, objects
from tests.support.etcd import Etcd

ROOT = Path(__file__).parent.parent.parent
SMALL = (Shape("markers", 25_000, 1_000), Shape("sets", 1_000, 100), Shape("different", 1_000, 100))
FULL = (
    Shape("markers", 250_000, 10_000),
    Shape("sets", 10_000, 10_000),
    Shape("sets", 10_000, 1_000),
    Shape("different", 10_000, 10_000),
)
Json = dict[str, Any]


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


async def fill(server: Etcd, shape: Shape) -> None:
    """Write the shape, 128 keys in one transaction."""
    async with server.connect(timeout=60) as store:
        connection = store._connection  # type: ignore[attr-defined]
        request = pb.TxnRequest()
        for key, value in objects(shape):
            put = pb.PutRequest(key=key.encode(), value=value)
            request.success.add().request_put.CopyFrom(put)
            if len(request.success) == 128:
                await connection.write(request, guarded=False)
                request = pb.TxnRequest()
        if request.success:
            await connection.write(request, guarded=False)


def measure(way: str, server: Etcd, shape: Shape, rounds: int) -> Json:
    """One way, in a process of its own."""
    words = [way, server.endpoint, shape.kind, shape.endpoints, shape.policies, rounds]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench._snapshot_driver", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way}: {done.stderr}")
    result: Json = json.loads(done.stdout)
    return result


def run(shape: Shape, rounds: int) -> Json:
    """Everything of one shape."""
    with tempfile.TemporaryDirectory(prefix="muslin-bench-") as folder:
        server = Etcd(Path(folder) / "etcd", ["--quota-backend-bytes=4000000000"]).start()
        try:
            say(f"{shape.name}: writing")
            asyncio.run(fill(server, shape))
            say("reading the same keys undecoded")
            raw = measure("raw", server, shape, rounds)
            say("from the store to the last rule")
            result = measure("snapshot", server, shape, rounds)
            say("single changes")
            result |= measure("changes", server, shape, rounds)
        finally:
            server.stop()
    return report(result, raw)


def report(result: Json, raw: Json) -> Json:
    """With the peer's figures and the ratio. Pure."""
    return {**result, "raw": raw, "ratio": round(result["total_s"] / raw["seconds"], 2)}


def table(result: Json) -> str:
    """For people. Pure."""
    lines = [f"load of the machine {result['load']}"]
    for name, one in result["results"].items():
        lines += ["", f"{name}: {one['total_s']} s ({one['total_cpu_s']} s of CPU), "
                  f"{one['ratio']} x the {one['raw']['seconds']} s of reading undecoded",
                  f"  memory {one['peak_rss_mib']} MiB peak, {one['kept_rss_mib']} kept; "
                  f"{one['rules']} rules, {one['members']} members"]  # fmt: skip
        lines += [
            f"  {phase:8}{seconds:8} s  {one['cpu_s'][phase]:8} s CPU  "
            f"longest stall {one['stall_ms'][phase]} ms, {one['stall_cpu_ms'][phase]} of it CPU"
            for phase, seconds in one["seconds"].items()
        ]
        changes = dict(one["changes"])
        at_once = changes.pop("at once")
        lines += [
            f"  {kind:30} p50 {each['p50_ms']} p99 {each['p99_ms']} max {each['max_ms']} ms"
            for kind, each in changes.items()
        ]
        lines += [
            f"  {kind:30} {each['ms']} ms, {each['members']} members, "
            f"longest stall {each['stall_ms']} ms"
            for kind, each in at_once.items()
        ]
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench felix-snapshot", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--full", action="store_true", help="250,000 endpoints, 10,000 policies")
    parser.add_argument("--only", default="", help="one shape, such as 'sets 10000/1000'")
    parser.add_argument("--rounds", type=int, default=1000, help="single changes of each kind")
    options = parser.parse_args()
    shapes = [one for one in (FULL if options.full else SMALL) if options.only in ("", one.name)]
    results = {shape.name: run(shape, options.rounds) for shape in shapes}
    result = {"load": [round(one, 1) for one in os.getloadavg()], "results": results}
    conclude("felix-snapshot", result, options, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
