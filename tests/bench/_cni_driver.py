"""Runs inside a node of the lab: every shape with every kind, in turns; prints samples as JSON.

The reference plugins work in a namespace of their own beside the node, where no agent hears of
their links, so that felix's look at them costs them nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from lab.machine import Machine
from lab.runtime import Runtime
from lab.state import MachineRecord
from libcalico.process import paths
from linux import netns
from tests.bench._cni_calls import Batch, Call, Json, Kind, Pod, pods, run
from tests.bench._cni_costs import Serving, means, stages

BURST = 110
WIDTHS = (4, 16)
WARM_UP = 3
SETTLE = 0.3
HOST_LOCAL = {"type": "host-local"}


class Here(Machine):
    """The machine that this process is in already."""

    def path(self, inside: Any) -> Any:
        """Paths are as they are."""
        return type(paths.CNI_NET)(inside)


def reference(name: str, subnet: str, **main: Any) -> Json:
    """A network of one reference plugin with host-local. Pure."""
    ipam = {**HOST_LOCAL, "subnet": subnet, "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "1.0.0", "name": name, "plugins": [{**main, "ipam": ipam}]}


class Driver:
    """Namespaces for the pods, and the kinds that are compared."""

    def __init__(self, lab: str, serving: Serving) -> None:
        self._serving = serving
        self._mark = secrets.token_hex(4)
        self._numbers = itertools.count()
        self._made: list[str] = []
        home = netns.current()
        bare = netns.open_path(self._space())
        netns.run_in(bare, lambda: subprocess.run(["ip", "link", "set", "lo", "up"], check=True))
        ours = Runtime(Here(lab, "here", MachineRecord())).network()
        unwaited = json.loads(json.dumps(ours))
        unwaited["plugins"][0]["policy_setup_timeout_seconds"] = 0
        bridge = reference("bridge", "10.67.0.0/16", type="bridge", bridge="b0", isGateway=True)
        self.kinds = (
            Kind("muslin", ours, home),
            Kind("muslin_unwaited", unwaited, home),
            Kind("ptp", reference("ptp", "10.66.0.0/16", type="ptp"), bare),
            Kind("bridge", bridge, bare),
        )
        self.places = [self._space() for _ in range(BURST)]
        # Nodes are seldom empty: one pod stays all the time, so that the policies are in use.
        self._standing = pods([self._space()], lambda: "standing")
        run([Call(self.kinds[0], "ADD", pod) for pod in self._standing], 1)

    def _space(self) -> str:
        name = f"bench-{self._mark}-{len(self._made)}"
        self._made.append(name)
        return str(netns.create(name))

    def close(self) -> None:
        """Remove the pod that stood, and the namespaces."""
        run([Call(self.kinds[0], "DEL", pod) for pod in self._standing], 1)
        for name in self._made:
            netns.delete(name)

    def _pods(self, count: int) -> list[Pod]:
        return pods(self.places[:count], lambda: f"pod-{next(self._numbers)}")

    def serial(self, rounds: int) -> dict[str, Any]:
        """One ADD and one DEL of each kind in turn, the first kind another one in each round."""
        samples: dict[str, dict[str, list[float]]] = {
            kind.name: {"add_ms": [], "del_ms": []} for kind in self.kinds
        }
        before = stages()
        for number in range(-WARM_UP, rounds):
            if number == 0:
                before = stages()
            first = number % len(self.kinds)
            for kind in (*self.kinds[first:], *self.kinds[:first]):
                [pod] = self._pods(1)
                added = run([Call(kind, "ADD", pod)], 1).each
                deleted = run([Call(kind, "DEL", pod)], 1).each
                if number >= 0:
                    samples[kind.name]["add_ms"] += added
                    samples[kind.name]["del_ms"] += deleted
        return {"samples": samples, "stages_ms": means(before, stages())}

    def many(self, width: int, count: int, repeats: int) -> dict[str, Any]:
        """`count` ADDs, `width` at a time, then as many DELs; the kinds in turn, repeated."""
        found: dict[str, dict[str, list[Any]]] = {
            kind.name: {"add": [], "del": []} for kind in self.kinds
        }
        before = stages()
        for _ in range(repeats):
            for kind in self.kinds:
                fresh = self._pods(count)
                for command in ("ADD", "DEL"):
                    calls = [Call(kind, command, pod) for pod in fresh]
                    found[kind.name][command.lower()].append(self._costed(kind, calls, width))
        return {"batches": found, "stages_ms": means(before, stages())}

    def _costed(self, kind: Kind, calls: Sequence[Call], width: int) -> dict[str, Any]:
        before = self._serving.seconds()
        batch: Batch = run(calls, width)
        time.sleep(SETTLE)
        after = self._serving.seconds()
        cpu = {"plugin": batch.cpu}
        if kind.name.startswith("muslin"):
            cpu |= {name: after[name] - before[name] for name in after}
        each = {name: seconds * 1000 / len(calls) for name, seconds in cpu.items()}
        return {"each_ms": batch.each, "wall_s": batch.wall, "cpu_ms": each}


def main() -> None:
    """Every shape."""
    lab, rounds, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    driver = Driver(lab, Serving(map(int, sys.argv[4:])))
    try:
        result = {"serial": driver.serial(rounds), "one_by_one": driver.many(1, 50, 1)}
        for width in WIDTHS:
            result[f"parallel{width}"] = driver.many(width, 64, 1)
        result[f"burst{BURST}"] = driver.many(BURST, BURST, repeats)
    finally:
        driver.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
