"""A systemd unit without systemd: its settings and commands, run in their order on a machine.

What is taken from the unit: EnvironmentFile, Environment, ExecStartPre, ExecStart, KillMode,
CapabilityBoundingSet, NoNewPrivileges, UMask and Type=notify. A start begins with
systemd's own clean environment (systemd.exec(5), "Environment variables in spawned processes").
"""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab import proc
from lab.machine import Machine
from tests.support.patience import patient

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
NOTIFY = "/run/notify.sock"


def settings(text: str) -> dict[str, list[str]]:
    """The settings of a unit's [Service] section, by name, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line
        elif line and line[0] not in "#;" and section == "[Service]":
            name, _, value = line.partition("=")
            found[name].append(value)
    return dict(found)


def variables(text: str) -> dict[str, str]:
    """The assignments of an environment file; the last of a name counts."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#;")
    return {name: value.strip("\"'") for name, _, value in pairs}


@dataclass
class Unit:
    """A unit that is started on a machine; what its commands say lies in `log`."""

    machine: Machine
    service: Mapping[str, list[str]]
    log: str = "/var/log/calico/unit.log"
    states: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    _socket: socket.socket | None = None

    def start(self, timeout: float = 60.0) -> None:
        """ExecStartPre, then ExecStart until it says READY=1."""
        for line in self.service.get("ExecStartPre", []):
            optional, words = line.startswith("-"), shlex.split(line.removeprefix("-"))
            done = subprocess.run(self._command(words), capture_output=True, check=False)
            assert optional or done.returncode == 0, f"{line}: {done.stderr.decode()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.machine.path(NOTIFY)))
        (start,) = self.service["ExecStart"]
        with self.machine.path(self.log).open("ab") as log:
            self.process = subprocess.Popen(
                self._command(shlex.split(start)), stdout=log, stderr=log, start_new_session=True
            )
        assert self.service["Type"] == ["notify"]
        self._await("READY=1", timeout)

    def _command(self, words: list[str]) -> list[str]:
        bounding = ",".join(
            f"+{name.removeprefix('CAP_').lower()}"
            for line in self.service["CapabilityBoundingSet"]
            for name in line.split()
        )
        limits = [f"--bounding-set=-all,{bounding}", f"--inh-caps=-all,{bounding}"]
        if self.service.get("NoNewPrivileges") == ["yes"]:
            limits.append("--no-new-privs")
        told = [f"{name}={value}" for name, value in self._environment().items()]
        mask = f'umask {self.service["UMask"][0]}; exec "$@"'
        command = ["env", "-i", *told, "setpriv", *limits, "sh", "-c", mask, "sh"]
        return self.machine.command([*command, *words])

    def _environment(self) -> dict[str, str]:
        found = {"PATH": PATH, "LANG": "C.UTF-8", "NOTIFY_SOCKET": NOTIFY}
        for mark, value in self.machine.environment().items():
            if mark.startswith("MUSLIN"):
                found[mark] = value
        for line in self.service.get("Environment", []):
            found |= variables("\n".join(shlex.split(line)))
        for path in self.service.get("EnvironmentFile", []):
            found |= variables(self.machine.path(path).read_text())
        return found

    def _await(self, state: str, timeout: float) -> None:
        assert self._socket is not None
        deadline = time.monotonic() + patient(timeout)
        while state not in self.states:
            self._socket.settimeout(max(0.1, deadline - time.monotonic()))
            self.states += self._socket.recv(4096).decode().splitlines()

    def stop(self) -> int:
        """As KillMode=mixed: SIGTERM to the main process alone."""
        assert self.process is not None
        assert self.service["KillMode"] == ["mixed"]
        (main,) = self.pids()
        self.machine.run(["kill", "-TERM", str(main)])
        status = self.process.wait(patient(float(self.service["TimeoutStopSec"][0])))
        self._await("STOPPING=1", 5.0)
        return status

    def pids(self) -> list[int]:
        """The main process; a child of it has its name until it runs a program of its own."""
        done = self.machine.run(["pgrep", "-x", "calico-node"], check=False).stdout.split()
        mine = {int(pid) for pid in done} & set(self.machine.pids())
        return [pid for pid in mine if proc.parent_of(pid) not in (None, *mine)]

    def close(self) -> None:
        """End what is left."""
        if self._socket is not None:
            self._socket.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def read(path: Path) -> dict[str, list[str]]:
    """The settings of a unit file."""
    return settings(path.read_text())
