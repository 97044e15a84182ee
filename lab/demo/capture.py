"""A packet capture on one interface of a machine, decoded afterwards by tcpdump's own filters.

As root of a user namespace with one id tcpdump can do neither: it insists on becoming its own
user. There the lab's recorder writes the file, and tcpdump reads it as a user who is not root.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import proc, stream
from lab.machine import Machine

LOG = "/run/capture.log"


@dataclass(frozen=True)
class Capture:
    """A finished or running capture in a file of the machine."""

    machine: Machine
    file: str

    def decode(self, expression: str) -> list[str]:
        """The captured packets that match a filter, one line each."""
        unprivileged = ["unshare", "--user", "--map-user=1"] if one_id() else []
        command = [*unprivileged, "tcpdump", "-nn", "-r", self.file, expression]
        return self.machine.run(command).stdout.splitlines()


def one_id() -> bool:
    """Whether this is a user namespace in which root is the only user."""
    table = Path("/proc/self/uid_map").read_text().split()
    return len(table) == 3 and table[2] == "1"


@contextlib.contextmanager
def capture(machine: Machine, interface: str) -> Iterator[Capture]:
    """Capture while the body runs."""
    file = f"/run/{interface}.pcap"
    if one_id():
        recorder = stream.begin(machine, None, "record", interface, file)
        try:
            yield Capture(machine, file)
        finally:
            recorder.finish()
        return
    machine.path(LOG).write_text("")
    command = [
        "tcpdump",
        "-nn",
        "-U",
        "--immediate-mode",
        "-Z",
        "root",
        "-i",
        interface,
        "-w",
        file,
    ]
    running = machine.start(command, output=LOG)
    log = machine.path(LOG)
    try:
        proc.wait_until(lambda: "listening on" in log.read_text(), "tcpdump", timeout=proc.PATIENCE)
        yield Capture(machine, file)
    finally:
        stop(running)


def stop(running: subprocess.Popen[bytes]) -> None:
    """End a program that reports on SIGINT."""
    running.send_signal(signal.SIGINT)
    try:
        running.wait(5)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
