"""A container of an unpacked image, as a runtime starts it: runc, with a root that is read-only."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CAPABILITIES = ("CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_MODULE")
WRITABLE = ("/tmp", "/run", "/var/lib/calico", "/var/log/calico")


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is started: an image's configuration and files, and how.

    `arguments` stand behind the entry point in place of the image's own; `mounts` maps paths
    inside to folders of this machine; `network` is a namespace's file.
    """

    config: Mapping[str, Any]
    root: Path
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    mounts: Mapping[str, Path] | None = None
    network: Path | None = None

    def specification(self) -> dict[str, Any]:
        """config.json of the OCI runtime specification."""
        said = self.config["config"]
        user, _, group = said["User"].partition(":")
        command = [*said["Entrypoint"], *(self.arguments or said["Cmd"])]
        extra = [f"{name}={value}" for name, value in (self.environment or {}).items()]
        held = list(CAPABILITIES) if user == "0" else []
        sets = ("bounding", "effective", "inheritable", "permitted")
        spaces = [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]
        network = {"type": "network"} | ({"path": str(self.network)} if self.network else {})
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": int(user), "gid": int(group)},
                "args": command,
                "env": [*said["Env"], *extra],
                "cwd": said.get("WorkingDir") or "/",
                "capabilities": dict.fromkeys(sets, held),
                "noNewPrivileges": True,
            },
            "root": {"path": str(self.root), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]},
                *(
                    {"destination": path, "type": "tmpfs", "source": "tmpfs"}
                    for path in WRITABLE
                    if (self.root / path[1:]).exists()
                ),
                *(
                    {"destination": path, "type": "bind", "source": str(here), "options": ["rbind"]}
                    for path, here in (self.mounts or {}).items()
                ),
            ],
            "linux": {"namespaces": [*spaces, network]},
        }


@dataclass(frozen=True, slots=True)
class Container:
    """A container that was started: `process` is runc's, in the foreground."""

    process: subprocess.Popen[bytes]
    runc: Sequence[str]
    name: str
    folder: Path

    @property
    def alive(self) -> bool:
        """Whether its first process runs, or is about to."""
        return self.process.poll() is None

    @property
    def pid(self) -> int:
        """Its first process, as this machine counts."""
        state = subprocess.run(
            [*self.runc, "state", self.name], capture_output=True, check=True, text=True
        )
        return int(json.loads(state.stdout)["pid"])

    def run(self, *command: str) -> int:
        """The status of a command inside; 255 while there is no inside."""
        done = subprocess.run(
            [*self.runc, "exec", self.name, *command], capture_output=True, check=False
        )
        return done.returncode

    def log(self) -> str:
        """What it said."""
        return (self.folder / "log").read_text(errors="replace")[-6000:]


@contextmanager
def started(bundle: Bundle, folder: Path) -> Iterator[Container]:
    """A running container, ended and removed afterwards."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(bundle.specification()))
    name = f"image{os.getpid()}-{folder.name}"
    runc = ["runc", f"--root={folder / 'runc'}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*runc, "run", f"--bundle={folder}", name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield Container(process, runc, name, folder)
    finally:
        if process.poll() is None:
            subprocess.run([*runc, "kill", name, "KILL"], capture_output=True, check=False)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        subprocess.run([*runc, "delete", "--force", name], capture_output=True, check=False)
