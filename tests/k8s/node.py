"""A node: containerd, kubelet and kube-proxy in network, mount, UTS and process namespaces.

Its first process is tests/k8s/node_tree.py; killing it kills everything on the node, as a power cut
does. Its disk stays: a node that is started again finds its files, its images and the records of
its pods, and an empty /run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import proc
from tests import control_groups
from tests.k8s import images, node_programs, wires
from tests.k8s.control_plane import PODS
from tests.k8s.credentials import Credentials
from tests.k8s.daemons import Daemon
from tests.k8s.node_tree import READY
from tests.k8s.releases import CURRENT, Release
from tests.k8s.wires import Wires

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 180.0


@dataclass(frozen=True)
class Flavour:
    """What may differ from node to node."""

    proxy: str = "iptables"
    """kube-proxy's mode, or empty for none."""
    runtime: Path | None = None
    """Where another containerd, its shim and ctr are; Debian's by default."""
    plugins: str = node_programs.BIN_DIR
    """Where a kubelet of 1.20 is told that the plugins are; the runtime is told nothing."""


class Node:
    """One node, counted from 1."""

    def __init__(
        self,
        number: int,
        wires_: Wires,
        credentials: Credentials,
        disk: Path,
        logs: Path,
        flavour: Flavour,
        release: Release = CURRENT,
    ) -> None:
        self.number, self.name = number, f"node{number}"
        self.wires, self.credentials, self.flavour = wires_, credentials, flavour
        self.release = release
        self.address = wires.address(number)
        self.disk, self.logs = disk / self.name, logs
        self.cgroup = f"{wires_.name}-{self.name}"
        self.daemons: dict[str, Daemon] = {}
        self._first: subprocess.Popen[bytes] | None = None

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Switch it on: its namespaces, then its programs. Does not wait for the kubelet."""
        self.disk.mkdir(parents=True, exist_ok=True)
        (self.disk / READY).unlink(missing_ok=True)
        self.wires.plug(self.number)
        self._boot()
        self._configure()
        self.daemons = self._programs()
        self.daemons["containerd"].start()
        proc.wait_until(
            lambda: self.run(self._ctr(), "version", check=False).returncode == 0,
            f"containerd of {self.name} serves\n{self.daemons['containerd'].tail()}",
            timeout=PATIENCE,
        )

    def join(self) -> None:
        """Start the kubelet, and kube-proxy."""
        self.daemons["kubelet"].start()
        if self.flavour.proxy:
            self.daemons["kube-proxy"].start()

    def load(self, archives: Sequence[Path]) -> None:
        """Have images, from archives."""
        for archive in archives:
            # Archives may lie anywhere on this machine: the node sees what it is handed.
            command = self.inside(self._ctr(), "-n", "k8s.io", "images", "import", "-")
            with archive.open("rb") as content:
                done = subprocess.run(command, stdin=content, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr.decode()

    def stop(self) -> None:
        """A power cut: every process at once, and the network with them."""
        if self._first is not None:
            inner = self._inner()
            self._first.kill()
            self._first.wait()
            self._first = None
            # The kernel ends a first process once it has ended all others.
            what = f"the processes of {self.name} end"
            proc.wait_until(lambda: not any(map(proc.start_time, inner)), what, timeout=PATIENCE)
        for daemon in self.daemons.values():
            daemon.kill()
        self.wires.unplug(self.number)
        self._remove_groups()

    # -- inside --------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Its first process, as this machine counts."""
        assert self._first is not None, f"{self.name} is off"
        return self._inner()[0]

    def _inner(self) -> list[int]:
        assert self._first is not None
        at = Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children")
        return [int(pid) for pid in at.read_text().split()] if at.exists() else []

    def inside(self, *command: str) -> list[str]:
        """A command in all of the node's namespaces."""
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-n", "-p", "--", *command]

    def run(
        self, *command: str, check: bool = True, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the node, as root."""
        return proc.run(self.inside(*command), check=check, timeout=timeout)

    def read(self, path: str) -> str:
        """A file of the node; empty when there is none."""
        return self.run("cat", path, check=False).stdout

    def tail(self) -> str:
        """What its programs said last."""
        return "\n".join(f"-- {name}\n{one.tail(1500)}" for name, one in self.daemons.items())

    # -- parts ---------------------------------------------------------------------------------

    def _boot(self) -> None:
        tree = {
            "disk": str(self.disk),
            "name": self.name,
            "address": self.address,
            "cgroup": self.cgroup,
            "programs": [str(place) for place in self._folders()],
        }
        spaces = ("--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
        script = str(Path(__file__).with_name("node_tree.py"))
        first = ["unshare", *spaces, sys.executable, "-I", "-S", script, json.dumps(tree)]
        log = self.logs / f"{self.name}-first.log"
        with log.open("ab") as out:
            self._first = subprocess.Popen(
                self.wires.inside(self.wires.space(self.number), first),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

        def there() -> bool:
            assert self._first is not None
            assert self._first.poll() is None, log.read_text()
            return (self.disk / READY).exists()

        proc.wait_until(there, f"{self.name} starts", timeout=PATIENCE, every=0.02)

    def _folders(self) -> list[Path]:
        """What must be seen inside, wherever it is mounted from."""
        more = [self.flavour.runtime] if self.flavour.runtime else []
        return [self.release.folder(), self.credentials.folder, ROOT, *more]

    def _configure(self) -> None:
        (self.disk / "containerd.toml").write_text(node_programs.RUNTIME.format(image=images.PAUSE))
        kubelet = node_programs.kubelet(self.release, self.cgroup)
        (self.disk / "kubelet.json").write_text(json.dumps(kubelet))
        proxy = node_programs.proxy(
            self.flavour.proxy, self.name, str(self.credentials.config("proxy")), PODS
        )
        (self.disk / "proxy.json").write_text(json.dumps(proxy))

    def _programs(self) -> dict[str, Daemon]:
        at = self.disk
        folder = self.flavour.runtime
        ways = {"PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"} if folder else {}
        runtime = str(folder / "containerd") if folder else "containerd"
        words = {
            "containerd": [runtime, "-c", str(at / "containerd.toml")],
            "kubelet": [
                str(self.release.folder() / "kubelet"),
                f"--config={at / 'kubelet.json'}",
                f"--kubeconfig={self.credentials.config(self.name)}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                "--cert-dir=/var/lib/kubelet/pki",
                "--v=2",
                *node_programs.kubelet_flags(self.release, self.flavour.plugins),
            ],
            "kube-proxy": [
                str(self.release.folder() / "kube-proxy"),
                f"--config={at / 'proxy.json'}",
                "--v=2",
            ],
        }
        return {
            name: Daemon(
                self.logs / f"{self.name}-{name}.log",
                self.inside(*command),
                ways if name == "containerd" else {},
            )
            for name, command in words.items()
        }

    def _ctr(self) -> str:
        return str(self.flavour.runtime / "ctr") if self.flavour.runtime else "ctr"

    def _remove_groups(self) -> None:
        """Its control groups, once the kernel has seen the last process off."""
        proc.wait_until(
            lambda: control_groups.remove(self.cgroup),
            f"control groups of {self.name} are empty",
            timeout=PATIENCE,
        )
