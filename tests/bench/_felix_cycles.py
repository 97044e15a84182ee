"""A policy of 10,000 rules comes and goes: what stays in felix's memory.

Part cycles of `./run bench felix`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench._felix_world import Bench, Json, RuleEar, loaded, soon

RULES = 10_000
GIVEN_BACK = 35.0
"""Seconds after which felix has given back what is free."""
NAME = "large"


def rules(count: int) -> list[Json]:
    """So many rules, no two alike. Pure."""
    return [
        {
            "action": "Allow",
            "protocol": "TCP",
            "source": {"nets": [f"10.{number >> 8}.{number & 255}.0/24"]},
            "destination": {"ports": [1 + number]},
        }
        for number in range(count)
    ]


def measure(folder: Path, backend: str, cycles: int) -> Json:
    """So many cycles, on a node with one endpoint."""
    with ExitStack() as stack:
        bench = stack.enter_context(loaded(folder, backend, 1, 1))
        stack.callback(bench.world.stop_felix)
        ear = RuleEar()
        bench.start()
        time.sleep(2)
        _, before = bench.process()
        sizes = [_cycle(bench, ear) for _ in range(cycles)]
        time.sleep(GIVEN_BACK)
        cpu, after = bench.process()
    return {
        "rules": RULES,
        "cycles": cycles,
        "before_rss_mib": round(before, 1),
        "first_rss_mib": round(sizes[0], 1),
        "most_rss_mib": round(max(sizes), 1),
        "last_rss_mib": round(sizes[-1], 1),
        "after_rss_mib": round(after, 1),
        "cpu_s": round(cpu, 1),
    }


def _cycle(bench: Bench, ear: RuleEar) -> float:
    """The policy is written, and deleted once the kernel has it; MiB when it is gone there."""
    chain = f"{'filter-' if bench.backend == 'nftables' else ''}cali-pi-gnp/{NAME}"
    begun = time.perf_counter()
    spec = {"order": 1, "selector": "all()", "types": ["Ingress"], "ingress": rules(RULES)}
    bench.store.object("globalnetworkpolicies", "GlobalNetworkPolicy", NAME, spec)
    ear.after(chain, begun)
    bench.store.delete("globalnetworkpolicies", NAME)
    gone = lambda: f"{chain} " not in bench.world.node.run("nft", "list", "chains", "ip")  # noqa: E731
    soon(gone, 0.2, f"{chain} is gone")
    return bench.process()[1]
