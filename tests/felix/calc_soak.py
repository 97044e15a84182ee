"""Endpoints of other nodes come and go in cycles, in this process: CYCLES ENDPOINTS; prints JSON.

Printed is the memory after each cycle, in KiB, and what the calculation still holds in the end.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

from felix.calc.graph import Calculator
from felix.store.ingest import EndpointRows
from libcalico.datastore.capabilities import name_of
from libcalico.datastore.interface import Row
from libcalico.model import codec
from tests.felix.policy_objects import ME, allow, namespace, pod, policy


def resident() -> int:
    """This process's memory, in KiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def rows(cycle: int, endpoints: int) -> list[Row]:
    """The endpoints of a cycle: no two cycles have a name, a label or an address in common."""
    found = []
    for number in range(endpoints):
        name = f"c{cycle}-{number}"
        address = f"10.{cycle}.{number >> 8}.{number & 255}"
        labels = {"app": "x", "pod-name": name, f"only-{cycle}": str(number % 50)}
        key, value = pod(name, address, labels, node="n2")
        found.append((name_of(key), codec.encode_value(key, value), 1 + number))
    return found


def main(cycles: int, endpoints: int) -> None:
    calc = Calculator(ME)
    sink = EndpointRows(calc, calc.update, lambda: None)
    peers = allow(source={"selector": "app == 'x'"})
    for key, value in (
        namespace("default"),
        pod("here", "10.255.0.1", {"app": "here"}),
        policy("p", selector="app == 'here'", ingress=[peers]),
    ):
        calc.update(key, value)
    calc.in_sync = True
    sizes = []
    for cycle in range(cycles):
        coming = rows(cycle, endpoints)
        sink.apply_rows(coming)
        calc.policy.flush()
        for name, _, _ in coming:
            sink.gone(name, endpoints + 1)
        calc.policy.flush()
        del coming
        gc.collect()
        sizes.append(resident())
    print(json.dumps({"sizes": sizes, "members": calc.policy.figures()["members"]}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
