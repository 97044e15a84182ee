"""The container of a pod: a responder process in its network namespace.

Tested in tests/lab/test_pods.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from lab import proc
from lab.errors import LabError
from lab.machine import FAST_PYTHON, Machine

RESPONDER = Path(__file__).with_name("responder.py")


def respond(machine: Machine, title: str, netns: str, ports: Sequence[str]) -> None:
    """Start a pod's responder and wait until it listens."""
    log = f"/var/log/pod-{title.replace('/', '-')}.log"
    machine.path(log).write_text("")
    machine.start([*FAST_PYTHON, str(RESPONDER), *ports], netns=netns, output=log)
    path = machine.path(log)
    what = f"pod {title}: responder on {', '.join(ports)}"
    proc.wait_until(
        lambda: "listening" in path.read_text(), what, timeout=proc.PATIENCE, every=0.01
    )


def check_port(port: str) -> None:
    """LabError unless it reads tcp:NUMBER or udp:NUMBER."""
    kind, _, number = port.partition(":")
    if kind not in ("tcp", "udp") or not number.isdigit() or not 0 < int(number) < 65536:
        raise LabError(f"port {port!r}: allowed are tcp:1 to tcp:65535 and udp:1 to udp:65535")


def kill_processes(machine: Machine, netns: str) -> None:
    """The runtime kills the containers before it asks for DEL."""
    try:
        inode = machine.path(netns).stat().st_ino
    except FileNotFoundError:
        return
    for pid in proc.members([inode], [], lambda _: False):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
