"""The processes in the pods, asked from outside; many at once.

A pod's process is started with nsenter in the pod's own network namespace. Tested with the
scenarios, and by tests/netpol/test_probe.py.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.netpol.matrix import Pair
from tests.support.patience import HANG

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-S", "-m", "tests.netpol.probe")
SERVED = tuple(f"{kind}:{port}" for kind in ("tcp", "udp", "sctp") for port in (80, 81))
PATIENCE = HANG


@dataclass(frozen=True)
class Prober:
    """A pod's process. `name` is namespace/pod, `address` where others find it."""

    name: str
    address: str
    process: subprocess.Popen[bytes]

    def ask(self, doors: Mapping[str, Mapping[str, int]], timeout: float) -> None:
        """Send a request: by door the addresses to probe, each at most so many times, `timeout`
        seconds a try."""
        request = {"timeout": timeout, "doors": {d: dict(t) for d, t in doors.items()}}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, dict[str, str]]:
        """What came of the oldest request."""
        found: dict[str, dict[str, str]] = json.loads(self.line())
        return found

    def line(self) -> bytes:
        """The next line that the process prints; AssertionError when none comes."""
        output = self.process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], PATIENCE)
        text = output.readline() if ready else b""
        if not text:
            raise AssertionError(f"the prober of {self.name} says nothing ({self.process.poll()=})")
        return text

    def end(self) -> None:
        """End the process and take its pipes down."""
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def start(
    command: Sequence[str], environment: Mapping[str, str], name: str, address: str
) -> Prober:
    """Start a pod's process by a command line that enters the pod; `ready` tells when it serves."""
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        bufsize=0,
    )
    return Prober(name, address, process)


def ready(probers: Iterable[Prober]) -> None:
    """Wait until all of them serve."""
    for prober in probers:
        line = prober.line()
        assert line == b"listening\n", f"{prober.name} says {line!r}"


def observe(
    probers: Sequence[Prober],
    door: str,
    tries: Mapping[Pair, int] | None = None,
    timeout: float = 0.3,
) -> dict[Pair, str]:
    """Every pod probes every other at once. `tries` per pair, 1 where it says nothing."""
    return observe_all(probers, {door: tries or {}}, timeout)[door]


def observe_all(
    probers: Sequence[Prober], tries: Mapping[str, Mapping[Pair, int]], timeout: float = 0.3
) -> dict[str, dict[Pair, str]]:
    """The same for several doors at once."""
    names = {prober.address: prober.name for prober in probers}
    for source in probers:
        source.ask(
            {
                door: {
                    address: several.get((source.name, name), 1)
                    for address, name in names.items()
                    if name != source.name
                }
                for door, several in tries.items()
            },
            timeout,
        )
    found: dict[str, dict[Pair, str]] = {door: {} for door in tries}
    for source in probers:
        for door, answers in source.answer().items():
            for address, answer in answers.items():
                found[door][source.name, names[address]] = answer
    return found
