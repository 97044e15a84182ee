"""containerd on a node of the lab: started, killed, started again, and gone without a trace.

It runs in the node's own namespaces with its default socket and directories, so plugins find the
node's /run, /etc/cni/net.d and /opt/cni/bin. Only its images lie outside: an overlay does not
take another overlay for its upper half, and /var of a node is one.

Sandboxes outlive the runtime, and their processes are in namespaces of their own: they are found
by the control group that the client names for all of them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import proc
from lab.machine import Machine
from tests.cri import image
from tests.cri.client import Client, RuntimeFailed

SOCKET = "/run/containerd/containerd.sock"
LOG = "/var/log/containerd.log"
CGROUPS = Path("/sys/fs/cgroup")
CONFIG = """\
version = 2
root = "{root}"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.nri.v1.nri",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "/etc/cni/net.d"
    max_conf_num = 1
"""


def unusable() -> str:
    """Why no sandbox can run on this machine; empty when one can."""
    # Version 2 has one tree, version 1 a tree for each controller.
    roots = [CGROUPS / "cgroup.procs", *CGROUPS.glob("*/cgroup.procs")]
    if any(os.access(root, os.W_OK) for root in roots):
        return ""
    return f"no control group can be made below {CGROUPS}"


class Containerd:
    """One runtime; `programs` is where containerd, ctr and the shim lie, Debian's by default."""

    def __init__(
        self,
        machine: Machine,
        folder: Path,
        archive: Path,
        *,
        plugins: str,
        programs: Path | None = None,
    ) -> None:
        self.machine, self.archive, self.programs = machine, archive, programs
        self.cgroup = f"/muslin-cri-{os.getpid()}-{machine.record.pid}"
        self.config = folder / "containerd.toml"
        self.config.write_text(
            CONFIG.format(root=folder / "root", image=image.NAME, plugins=plugins)
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """A client of the runtime as it runs now."""
        assert self._client is not None, "it is not started"
        return self._client

    @property
    def running(self) -> bool:
        """Whether it serves, as far as it was neither killed nor died."""
        return (
            self._client is not None
            and self._process is not None
            and (self._process.poll() is None)
        )

    def start(self) -> None:
        """Start and wait until it serves CRI."""
        settings = None
        if self.programs is not None:
            settings = {"PATH": f"{self.programs}:{self.machine.environment()['PATH']}"}
        command = [self._program("containerd"), "-c", str(self.config)]
        self._process = self.machine.start(command, environment=settings, output=LOG)
        self._client = Client(self.machine.path(SOCKET), self.cgroup)
        proc.wait_until(self._serves, f"containerd serves\n{self.log()}", timeout=120, every=0.05)

    def ctr(self, *arguments: str, namespace: str = "k8s.io") -> None:
        """containerd's own command line."""
        self.machine.run([self._program("ctr"), "-n", namespace, *arguments], timeout=120)

    def begin(self, *arguments: str, namespace: str = "default") -> subprocess.Popen[bytes]:
        """The same, going on."""
        return self.machine.start([self._program("ctr"), "-n", namespace, *arguments])

    def containers(self, namespace: str) -> list[str]:
        """The names of what `ctr` itself has started."""
        command = [self._program("ctr"), "-n", namespace, "containers", "ls", "-q"]
        return self.machine.run(command, timeout=120).stdout.split()

    def end(self, name: str, namespace: str = "default") -> None:
        """End and forget one of those, in any state."""
        for words in (["tasks", "rm", "-f", name], ["containers", "rm", name]):
            command = [self._program("ctr"), "-n", namespace, *words]
            self.machine.run(command, timeout=120, check=False)

    def processes(self, sandbox: str) -> list[int]:
        """The processes of a sandbox."""
        listed = (folder / sandbox / "cgroup.procs" for folder in self._groups())
        return sorted(
            {int(pid) for one in listed if one.exists() for pid in one.read_text().split()}
        )

    def kill(self) -> None:
        """SIGKILL; sandboxes go on."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End every sandbox and the runtime; whatever state they are in."""
        if self._client is not None:
            with contextlib.suppress(RuntimeFailed):
                for sandbox in self._client.sandboxes():
                    with contextlib.suppress(RuntimeFailed):
                        self._client.end(sandbox)
        self.kill()
        proc.kill_all(self._left)
        for folder in self._groups():
            for inner in sorted(folder.rglob("*"), reverse=True):
                if inner.is_dir():
                    inner.rmdir()
            folder.rmdir()

    def log(self) -> str:
        """The end of what it wrote."""
        path = self.machine.path(LOG)
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def _program(self, name: str) -> str:
        return str(self.programs / name) if self.programs else name

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            self.client.call("Status", seconds=30)
        except RuntimeFailed:
            return False
        return True

    def _groups(self) -> list[Path]:
        """Our control group in each hierarchy, one in version 2."""
        name = self.cgroup.lstrip("/")
        found = [CGROUPS / name, *CGROUPS.glob(f"*/{name}")]
        return [folder for folder in found if folder.is_dir()]

    def _left(self) -> list[int]:
        """Processes of sandboxes, and shims, which carry the socket's place as an argument."""
        found = {
            int(pid)
            for folder in self._groups()
            for listed in folder.rglob("cgroup.procs")
            for pid in listed.read_text().split()
        }
        shims = (pid for pid in self.machine.pids() if "containerd-shim" in proc.command_of(pid))
        return [*found, *shims]


@contextmanager
def running(
    machine: Machine, folder: Path, archive: Path, *, plugins: str, programs: Path | None = None
) -> Iterator[Containerd]:
    """A runtime with the sandbox image, until the end of the block."""
    made = Containerd(machine, folder, archive, plugins=plugins, programs=programs)
    try:
        made.start()
        made.ctr("images", "import", str(archive))
        yield made
    finally:
        made.close()
