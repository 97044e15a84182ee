"""`./run bench flow_memory`: memory and time of the aggregator's core with a million flows an hour.

Two worlds: nodes that report the same connections again and again (20,000 keys), and the worst
one, in which every flow has a key of its own. Memory is what the process has more than before, in
pages that it uses; time is CPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

from flows.aggregate.store import Steps, Store, answer_of
from flows.query import Filter, FlowQuery, StatisticsQuery, Text
from flows.record import (
    INTERVAL,
    Action,
    Counts,
    End,
    EndKind,
    Flow,
    Hit,
    Key,
    PolicyKind,
    Reporter,
    Service,
    Trace,
)

FLOWS, NODES, BEGIN = 1_000_000, 5_000, 1_800_000_000
PAGE = 4096


def resident() -> int:
    """Bytes that the process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def world(keys: int) -> Iterator[tuple[Flow, str, int]]:
    """A million flows in the order of an hour, with sender and time, of so many keys."""
    for number in range(FLOWS):
        start = BEGIN + number * 3600 // FLOWS // INTERVAL * INTERVAL
        yield flow(number % keys, start), f"node-{number % NODES}", start + INTERVAL


def flow(number: int, start: int) -> Flow:
    """A flow as from the wire: each string is an object of its own."""
    app, peer = number % 997, number // 997
    policy = Hit(
        PolicyKind.KUBERNETES_NETWORK_POLICY, "default", f"team-{app % 50}", f"allow-{app}",
        Action.ALLOW, 0, app % 7,
    )  # fmt: skip
    key = Key(
        End(EndKind.WORKLOAD, f"app-{app}-7d4b9-*", f"team-{app % 50}"),
        End(EndKind.WORKLOAD, f"peer-{peer}-*", f"team-{peer % 50}"),
        8000 + number % 3,
        "tcp",
        Reporter.SOURCE,
        Action.ALLOW,
        Service(f"svc-{peer}", f"team-{peer % 50}", "http", 80),
        Trace((policy,), (policy,)),
    )
    labels = (f"app=app-{app}", f"pod-template-hash=7d4b{app}"), (f"app=peer-{peer}",)
    return Flow(key, start, start + INTERVAL, Counts(10, 9, 5000, 4000, 1, 1, 1), *labels)


def measured(keys: int) -> dict[str, float]:
    """Memory of a full hour, and CPU seconds of what is asked of it."""
    gc.disable()
    store, before, began = Store(BEGIN), resident(), time.process_time()
    for one, sender, now in world(keys):
        store.receive(one, sender, now)
    taken = time.process_time() - began
    memory = resident() - before
    assert store.ring.rows == FLOWS - store.ring.cut, "a flow is missing"
    name = Filter(source_names=(Text("app-7-", fuzzy=True),))
    asked: dict[str, Callable[[], Steps[object]]] = {
        "list": lambda: store.list(FlowQuery(page_size=100)),
        "list filtered": lambda: store.list(FlowQuery(page_size=100, filter=name)),
        "statistics": lambda: store.statistics(StatisticsQuery(time_series=True)),
    }
    result = {
        "keys": store.ring.keys,
        "rows": store.ring.rows,
        "MB": round(memory / 1e6),
        "receive us of CPU a flow": round(taken / FLOWS * 1e6, 1),
    }
    for label, query in asked.items():
        began = time.process_time()
        answer_of(query())
        result[f"{label}, s of CPU"] = round(time.process_time() - began, 2)
    return result


def main() -> None:
    """Measure each world in a process of its own, and print."""
    parser = argparse.ArgumentParser(prog="./run bench flow_memory", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    # A million flows of an hour: with fewer keys than flows the rows are of the same keys.
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        results = pool.map(measured, (20_000, FLOWS), chunksize=1)
    if chosen.json:
        print(json.dumps(results))
        return
    for one in results:
        print(", ".join(f"{name} {value}" for name, value in one.items()))


if __name__ == "__main__":
    main()
