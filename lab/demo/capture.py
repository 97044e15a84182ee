"""A packet capture on one interface of a machine, decoded afterwards by tcpdump's own filters."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from lab import proc
from lab.machine import Machine

LOG = "/run/capture.log"


@dataclass(frozen=True)
class Capture:
    """A finished or running capture in a file of the machine."""

    machine: Machine
    file: str

    def decode(self, expression: str) -> list[str]:
        """The captured packets that match a filter, one line each."""
        command = ["tcpdump", "-nn", "-r", self.file, expression]
        return self.machine.run(command).stdout.splitlines()


@contextlib.contextmanager
def capture(machine: Machine, interface: str) -> Iterator[Capture]:
    """Capture while the body runs."""
    file = f"/run/{interface}.pcap"
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
        proc.wait_until(lambda: "listening on" in log.read_text(), "tcpdump", timeout=10)
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
