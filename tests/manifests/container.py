"""Starts a container of a manifest, without a kubelet: what it may do is what the manifest says.

A mount namespace with a read-only root, /proc/sys read-only, the mounts that the manifest names
and no others; the capabilities it adds and no others; its variables. The host's paths lie below a
folder of the test. The network is that of the calling thread, as with `hostNetwork`.

Run as a program (`python -m tests.manifests.container SPEC`) it is the container's first step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.manifests.rendered import ROOT, Tree, environment, pod

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "etc", "proc", "sys", "dev")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PROGRAMS = Path(sys.executable).parent


@dataclass
class Host:
    """What the kubelet knows: the host's files, what a ConfigMap or a field says, Secrets."""

    folder: Path
    account: Path
    values: Mapping[str, str]
    extra: Mapping[str, str] = field(default_factory=dict)
    """Variables that every container gets (KUBERNETES_SERVICE_HOST ...)."""

    def path(self, name: str) -> Path:
        """A host path as it lies in the test's folder; the kernel's own are the kernel's."""
        if name.startswith(("/proc/", "/lib/")):
            return Path(name)
        return self.folder / name.lstrip("/")

    def spec(self, workload: Tree, one: Tree, command: Sequence[str] = ()) -> dict[str, Any]:
        """What the first step is told: mounts, identity, capabilities, variables, command."""
        volumes = {each["name"]: each for each in pod(workload)["volumes"]}
        mounts = [self._mount(volumes[each["name"]], each) for each in one["volumeMounts"]]
        mounts.append((str(self.account), ACCOUNT, True))
        found = {name: self.values.get(text, text) for name, text in environment(one).items()}
        identity = pod(workload).get("securityContext", {})
        return {
            "mounts": mounts,
            "uid": identity.get("runAsUser", 0),
            "capabilities": one["securityContext"]["capabilities"].get("add", []),
            "env": {**found, **self.extra, "PATH": f"{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"},
            "command": list(command) or [*one.get("command", []), *one.get("args", [])],
        }

    def _mount(self, volume: Tree, mount: Tree) -> tuple[str, str, bool]:
        if "hostPath" in volume:
            source = self.path(volume["hostPath"]["path"])
            if volume["hostPath"].get("type") == "FileOrCreate":
                source.parent.mkdir(parents=True, exist_ok=True)
                source.touch()
            elif not source.exists():
                source.mkdir(parents=True)
        else:
            source = self.folder / "volumes" / volume["name"]
            source.mkdir(parents=True, exist_ok=True)
            source.chmod(0o777)
        return str(source), mount["mountPath"], bool(mount.get("readOnly"))


def start(host: Host, workload: Tree, one: Tree, command: Sequence[str] = ()) -> list[str]:
    """The command line that runs the container, or another command in its place."""
    file = host.folder / f"{one['name']}-{len(os.listdir(host.folder))}.json"
    file.write_text(json.dumps(host.spec(workload, one, command)))
    file.chmod(0o644)
    return ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", __name__,
            str(file)]  # fmt: skip


def become(spec: Mapping[str, Any]) -> None:
    """Build the root, give away what the manifest does not add, and run the command."""
    root = Path("/mnt")
    _mount("-t", "tmpfs", "tmpfs", str(root))
    for name in SYSTEM:
        _root_entry(root, name)
    # The installation: an image has it.
    _bind(str(ROOT), root / str(ROOT).lstrip("/"), readonly=True)
    interpreter = Path(os.path.realpath(sys.executable))
    if not interpreter.is_relative_to("/usr"):
        prefix = interpreter.parent.parent
        _bind(str(prefix), root / str(prefix).lstrip("/"), readonly=True)
    # The repository may lie below one of them.
    (root / "run").mkdir(exist_ok=True)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "var").mkdir(exist_ok=True)
    (root / "var/run").symlink_to("/run")
    for source, target, readonly in spec["mounts"]:
        _bind(source, root / target.replace("/var/run/", "/run/").lstrip("/"), readonly=readonly)
    _mount("--bind", "/proc/sys", f"{root}/proc/sys")
    _mount("-o", "remount,bind,ro", f"{root}/proc/sys")
    _mount("-o", "remount,ro", str(root))
    os.chroot(root)
    os.chdir("/")
    kept = ",".join(["-all", *(f"+{name.lower()}" for name in spec["capabilities"])])
    given = ["setpriv", "--no-new-privs", "--bounding-set", kept, "--inh-caps", kept]
    if spec["uid"]:
        identity = str(spec["uid"])
        given += ["--reuid", identity, "--regid", identity, "--clear-groups"]
    os.execvpe("setpriv", [*given, "--", *spec["command"]], spec["env"])


def _root_entry(root: Path, name: str) -> None:
    at = Path("/") / name
    if at.is_symlink():
        (root / name).symlink_to(os.readlink(at))
    elif at.is_dir():
        _bind(str(at), root / name, readonly=False)
        if name not in ("proc", "sys", "dev"):
            _mount("-o", "remount,bind,ro", str(root / name))


def _bind(source: str, target: Path, *, readonly: bool) -> None:
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount("--rbind", source, str(target))
    if readonly:
        _mount("-o", "remount,bind,ro", str(target))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    become(json.loads(Path(sys.argv[1]).read_text()))
