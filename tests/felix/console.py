"""An operator on the node of a world: `calicoctl` as root, beside felix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from typing import Any

from tests.felix.launch import launched
from tests.felix.world import World
from tests.support.patience import HANG

FLOW = ("source", "destination", "protocol", "source_port", "destination_port")


def _command(world: World, arguments: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    program = (sys.executable, "-m", "calicoctl.main", *arguments)
    command = world.node.command(*launched(world.folder / "run", *program))
    environment = {
        "PATH": os.environ["PATH"],
        "DATASTORE_TYPE": "etcdv3",
        "ETCD_ENDPOINTS": world.etcd.endpoint,
    }
    return list(command), environment


def calicoctl(world: World, *arguments: str) -> str:
    """What a command prints; it must succeed."""
    done = attempt(world, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def attempt(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that may fail."""
    command, environment = _command(world, arguments)
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=HANG
    )


class Following:
    """A command that goes on printing JSON lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: Queue[str] = Queue()
        self._flows: set[tuple[object, ...]] = set()
        self._said: Queue[str] = Queue()
        for stream, queue in ((process.stdout, self._lines), (process.stderr, self._said)):
            Thread(target=self._read, args=(stream, queue), daemon=True).start()

    @staticmethod
    def _read(stream: Any, queue: Queue[str]) -> None:
        for line in stream:
            queue.put(line)

    def said(self, within: float = HANG) -> str:
        """The next line on stderr."""
        return self._said.get(timeout=within)

    def next(self, within: float = HANG) -> dict[str, Any]:
        """The next object."""
        found: dict[str, Any] = json.loads(self._lines.get(timeout=within))
        return found

    def next_flow(self) -> dict[str, Any]:
        """The next object of a flow that was not told of before: TCP repeats its first packet."""
        while True:
            found = self.next()
            flow = tuple(found[each] for each in FLOW)
            if flow not in self._flows:
                self._flows.add(flow)
                return found


@contextmanager
def following(world: World, *arguments: str) -> Iterator[Following]:
    """A command that is interrupted at the end."""
    command, environment = _command(world, arguments)
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Following(process)
    finally:
        process.terminate()
        process.wait(HANG)
