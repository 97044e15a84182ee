"""A machine of the lab: a network, a mount and a UTS namespace, held open by one process.

Commands enter through nsenter(1); files are reached through /proc/HOLDER/root. The network
namespace also has a name on the host (`ip netns` shows LAB-node1), the host gets no link.
Tested in tests/lab/test_machine.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lab import proc
from lab.errors import LabError
from lab.state import MARK_ENV, NETNS, MachineRecord

HOLDER = Path(__file__).with_name("holder.py")
PROBE = Path(__file__).with_name("probe.py")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FAST_PYTHON = (sys.executable, "-I", "-S")


@dataclass(frozen=True)
class Machine:
    """A running machine. `lab` and `name` give the name of its network namespace on the host."""

    lab: str
    name: str
    record: MachineRecord

    @property
    def netns(self) -> str:
        """Name of the network namespace in the host's /run/netns."""
        return netns_name(self.lab, self.name)

    @property
    def root(self) -> Path:
        """The machine's file tree as the host sees it; valid while the holder lives."""
        if proc.start_time(self.record.pid) != self.record.started:
            raise LabError(f"machine {self.name} of lab {self.lab} is not running")
        return Path(f"/proc/{self.record.pid}/root")

    def path(self, inside: str | Path) -> Path:
        """A path inside as the host sees it (an absolute link would lead to the host's file)."""
        text = str(inside)
        if text == "/var/run" or text.startswith("/var/run/"):
            text = text.removeprefix("/var")
        return self.root / text.lstrip("/")

    def command(self, command: Sequence[str], *, netns: str | None = None) -> list[str]:
        """The command line that runs `command` here, or in a network namespace named here."""
        _ = self.root
        enter = ["nsenter", "-t", str(self.record.pid), "-m", "-u"]
        if netns is None:
            return [*enter, "-n", "--", *command]
        return [*enter, "--", "nsenter", f"--net={netns}", "--", *command]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a command: a PATH with this project's commands, and the lab's mark."""
        own = str(Path(sys.executable).parent)
        kept = {key: os.environ[key] for key in ("TERM", "LANG", "HOME") if key in os.environ}
        fixed = {"PATH": f"{own}:{SYSTEM_PATH}", MARK_ENV: self.lab, "ETCDCTL_API": "3"}
        return {**kept, **fixed, **self.record.environment, **(extra or {})}

    def run(
        self,
        command: Sequence[str],
        *,
        netns: str | None = None,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = proc.PATIENCE,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and return its output; LabError when it fails and `check`."""
        return proc.run(
            self.command(command, netns=netns),
            stdin=stdin,
            environment=self.environment(environment),
            check=check,
            timeout=timeout,
        )

    def start(
        self,
        command: Sequence[str],
        *,
        netns: str | None = None,
        environment: Mapping[str, str] | None = None,
        output: str | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process inside, in its own session; `output` is a file inside, None a pipe."""
        if output is None:
            return self._popen(command, netns, environment, subprocess.PIPE)
        with self.path(output).open("ab") as log:
            return self._popen(command, netns, environment, log)

    def _popen(
        self,
        command: Sequence[str],
        netns: str | None,
        environment: Mapping[str, str] | None,
        stdout: int | IO[bytes],
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(command, netns=netns),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            env=self.environment(environment),
            start_new_session=True,
        )

    def wait_http(
        self,
        port: int,
        path: str,
        *,
        timeout: float,
        server: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """Wait until GET http://127.0.0.1:port/path in the machine answers 2xx; else LabError.

        A server that has ended is not waited for.
        """
        limit = [str(port), path, f"{timeout:g}", *([str(server.pid)] if server else [])]
        done = self.run(
            [*FAST_PYTHON, str(PROBE), "http", *limit], check=False, timeout=timeout + 10
        )
        if done.returncode:
            said = (done.stdout + done.stderr).strip()
            raise LabError(f"{self.name}: {path} on port {port}: {said}")

    def pids(self) -> list[int]:
        """Processes of this machine, those in its pods included, the holder not."""
        inode = (NETNS / self.netns).stat().st_ino
        pids = proc.members([inode], [self.record.uts], lambda pid: marked(pid, self.lab))
        return [pid for pid in pids if pid != self.record.pid]


def marked(pid: int, lab: str) -> bool:
    """Whether a process was started by this lab, by its environment."""
    return proc.environment_of(pid).get(MARK_ENV) == lab


def netns_name(lab: str, machine: str) -> str:
    """Name of a machine's network namespace on the host."""
    return f"{lab}-{machine}"


def create(lab: str, name: str) -> MachineRecord:
    """Make the namespaces and the holder; returns when the file tree stands."""
    netns = netns_name(lab, name)
    proc.run(["ip", "netns", "add", netns])
    proc.run(["ip", "-n", netns, "link", "set", "lo", "up"])
    command = ["nsenter", f"--net={NETNS / netns}", "unshare", "--mount", "--uts"]
    holder = subprocess.Popen(
        [*command, *FAST_PYTHON, str(HOLDER), name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": SYSTEM_PATH, MARK_ENV: lab},
    )
    assert holder.stdout is not None
    assert holder.stderr is not None
    line = proc.first_line(holder, holder.stdout.fileno(), f"machine {name}: its file tree")
    if line != b"ready\n":
        said = holder.stderr.read().decode(errors="replace").strip()
        holder.wait()
        raise LabError(f"machine {name}: its namespaces cannot be made: {said[-400:]}")
    holder.stdout.close()
    holder.stderr.close()
    spaces, started = proc.namespaces(holder.pid), proc.start_time(holder.pid)
    if spaces is None or started is None:
        raise LabError(f"machine {name}: its holder ended at once")
    return MachineRecord(pid=holder.pid, started=started, uts=spaces.uts)
