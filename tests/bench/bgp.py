"""`./run bench bgp`: what routing costs, from etcd to the kernel, beside BIRD in the same run.

claim      a block is claimed in etcd: until its route is in the kernel of another node (bgp on
           both, felix there) and of a router with BIRD
table      routes of a router, from its first UPDATE to the last in the node's kernel by way of
           bgp, node.sock and felix; memory of each; peer: BIRD in the node's place
mesh       nodes with bgp and ExaBGP as full mesh, started at once: until each knows the blocks of
           all; peer: the same with BIRD
reflector  bgp reflects between clients that run BIRD; peer: BIRD reflects between the same
flood      a router offers more routes than the limit of one peer: memory of bgp until the cut, and
           half a minute later

Counts are reduced: 10,000 routes, 10 nodes, 10 clients; --full takes 50,000 routes too, 500 clients,
and as many nodes up to 100 as memory holds (said on standard error); --nodes and --clients say it
themselves. What is not done after --patience seconds is ended and told as far as it came
(`unfinished`). The machine's other work is in every figure: ratios mean more than seconds. SIGINT
and SIGTERM leave nothing behind. JSON: `results.PART`.
"""  # noqa: E501

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from tests.bench import _bgp_flood, _bgp_many, _bgp_table, _ending
from tests.bench._felix_world import Json
from tests.bench._reporting import add_arguments, conclude
from tests.bench.felix import say, table

PARTS = ("claim", "table", "mesh", "reflector", "flood")


def measure(parts: Sequence[str], full: bool, nodes: int, clients: int, patience: float) -> Json:
    """The parts asked for, one after another."""
    sizes = (10_000, 50_000) if full else (10_000,)
    steps: dict[str, Callable[[], Json]] = {
        "claim": lambda: _bgp_table.claim(100 if full else 20),
        "table": lambda: {f"{size}": _bgp_table.learn(size) for size in sizes},
        "mesh": lambda: _bgp_many.mesh(_bgp_many.nodes_that_fit(nodes), patience),
        "reflector": lambda: _bgp_many.reflector(clients, patience),
        "flood": lambda: _bgp_flood.flood(210_000),
    }
    results: Json = {}
    for part in parts:
        say(part)
        begun = time.perf_counter()
        results[part] = steps[part]()
        say(f"{part}: {time.perf_counter() - begun:.0f} s in all")
    return results


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench bgp", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--nodes", type=int, help="of the mesh, 2 to 200")
    parser.add_argument("--clients", type=int, help="of the reflector, 2 to 10000")
    parser.add_argument("--patience", type=float, default=200.0, help="seconds for each series")
    options = parser.parse_args()
    nodes = options.nodes or (100 if options.full else 10)
    clients = options.clients or (500 if options.full else 10)
    if not (2 <= nodes <= 200 and 2 <= clients <= 10_000):
        parser.error("--nodes must be 2 to 200, --clients 2 to 10000")
    _ending.in_order()
    parts = options.part or PARTS
    result = measure(parts, options.full, nodes, clients, options.patience)
    conclude("bgp", {"results": result}, options, lambda found: table(found["results"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
