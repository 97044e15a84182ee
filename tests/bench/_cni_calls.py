"""Plugin calls as a runtime makes them, started by posix_spawn so that the caller adds little.

Input and output are files in memory that are made before the clock starts. One thread starts
programs and collects them; a call's time runs from before its start to when its end is seen.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.runtime import Sandbox, environment, plugin_input
from libcalico.process import paths
from linux import netns

Json = dict[str, Any]
LABELS = {"app": "bench"}
PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


@dataclass(frozen=True)
class Kind:
    """One way to network a pod: its network, and the host (a namespace) whose pods it serves."""

    name: str
    network: Json
    host: int

    @property
    def plugin(self) -> Json:
        """The main plugin, without what is chained behind it."""
        plugin: Json = self.network["plugins"][0]
        return plugin


@dataclass
class Pod:
    """One sandbox and what its ADD answered."""

    sandbox: Sandbox
    result: Json | None = None


@dataclass
class Call:
    """One run of a plugin. `seconds` and `cpu` (seconds, its children included) once it ended."""

    kind: Kind
    command: str
    pod: Pod
    stdin: int = -1
    stdout: int = -1
    began: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """What the runtime does before it starts the program."""
        previous = self.pod.result if self.command == "DEL" else None
        config = plugin_input(self.kind.network, self.kind.plugin, self.pod.sandbox, previous)
        self.stdin, self.stdout = os.memfd_create("stdin"), os.memfd_create("stdout")
        os.write(self.stdin, json.dumps(config).encode())
        os.lseek(self.stdin, 0, os.SEEK_SET)
        sandbox = self.pod.sandbox
        self.environment = PATH | environment(self.command, sandbox, "eth0", sandbox.netns)

    def start(self) -> int:
        """Start it; its process id."""
        program = f"{paths.CNI_BIN}/{self.kind.plugin['type']}"
        actions = [
            (os.POSIX_SPAWN_DUP2, self.stdin, 0),
            (os.POSIX_SPAWN_DUP2, self.stdout, 1),
            (os.POSIX_SPAWN_DUP2, self.stdout, 2),
        ]
        self.began = time.perf_counter()
        return netns.run_in(
            self.kind.host,
            lambda: os.posix_spawn(program, [program], self.environment, file_actions=actions),
        )

    def ended(self, status: int, cpu: float) -> None:
        """Take its answer; raises SystemExit when it failed."""
        self.seconds, self.cpu = time.perf_counter() - self.began, cpu
        os.lseek(self.stdout, 0, os.SEEK_SET)
        text = os.read(self.stdout, 1 << 20).decode()
        os.close(self.stdin)
        os.close(self.stdout)
        if status:
            raise SystemExit(f"{self.kind.name}: {self.command} failed: {text}")
        if self.command == "ADD":
            self.pod.result = json.loads(text[text.index("{") :])


@dataclass(frozen=True)
class Batch:
    """Many calls of one kind: each one's milliseconds, wall and CPU seconds of all."""

    each: list[float]
    wall: float
    cpu: float


def run(calls: Sequence[Call], width: int) -> Batch:
    """Run the calls, at most `width` at a time."""
    for call in calls:
        call.prepare()
    waiting = list(reversed(calls))
    running: dict[int, Call] = {}
    ended: list[tuple[Call, int, float, float]] = []
    began = time.perf_counter()
    while waiting or running:
        while waiting and len(running) < width:
            call = waiting.pop()
            running[call.start()] = call
        pid, status, usage = os.wait4(-1, 0)
        call = running.pop(pid)
        ended.append((call, status, usage.ru_utime + usage.ru_stime, time.perf_counter()))
    wall = time.perf_counter() - began
    for call, status, cpu, at in ended:
        call.ended(status, cpu)
        call.seconds = at - call.began
    each = [call.seconds * 1000 for call in calls]
    return Batch(each, wall, sum(call.cpu for call in calls))


def pods(places: Sequence[str], names: Callable[[], str]) -> list[Pod]:
    """Fresh sandboxes, one in each of these namespaces."""
    return [
        Pod(Sandbox(secrets.token_hex(32), place, "bench", names(), "uid", LABELS))
        for place in places
    ]
