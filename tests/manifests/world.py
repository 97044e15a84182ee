"""A node of a cluster, as its manifest says: real API server, etcd, and all four processes.

Each process runs with the rights that the manifest gives its container (`container.py` beside this)
and the service account that it gives the pod; the API server writes an audit log of what they ask.
Everything is in one network namespace; the thread that makes the world is in it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.k8s.binaries import folder as binaries
from tests.manifests.container import PROGRAMS, Host, start
from tests.manifests.rendered import ROOT, Tree, by_name, container, pod
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG

NODE, ADDRESS = "node1", "10.99.7.1"
NAMESPACE = "kube-system"
PORTS = {"calico-node": 9099, "calico-bgp": 9097, "calico-cni": 9096}
AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: None
"""


HOST_RUN = """
mount -t tmpfs tmpfs /run
mkdir -p /run/calico
mount --bind "$0" /run/calico
exec "$@"
"""
"""The host, where the daemon's socket is at its own place."""


@dataclass
class World:
    """What a test has; `node` and `controllers` are the workloads of the manifest."""

    folder: Path
    space: Namespace
    manifest: str
    etcd: Etcd | None
    api: ApiServer
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = by_name(self.manifest)
        self.node = found["DaemonSet/calico-node"]
        self.controllers = found["Deployment/calico-kube-controllers"]
        config = found["ConfigMap/calico-config"]["data"]
        values = {f"calico-config/{name}": text for name, text in config.items()}
        if self.etcd is not None:
            values["calico-config/etcd_endpoints"] = self.etcd.endpoint
        values |= {"spec.nodeName": NODE, "metadata.namespace": NAMESPACE, "metadata.name": "one"}
        api = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.api.port),
        }
        for account in ("calico-node", "calico-kube-controllers"):
            mounted = self.folder / "accounts" / account
            self.api.mount_account(mounted, self.api.token(account, NAMESPACE))
            (mounted / "namespace").write_text(NAMESPACE)
            self.hosts[account] = Host(self.folder / "host", mounted, values, api)
        blank = self.folder / "host/volumes/etcd-certs"
        blank.mkdir(parents=True)
        for name in ("etcd-key", "etcd-cert", "etcd-ca"):
            (blank / name).touch()

    # -- processes -----------------------------------------------------------------------------

    def launch(self, name: str) -> None:
        """Start a container of the manifest."""
        workload = self._workload(name)
        host = self.hosts[workload["metadata"]["name"]]
        command = start(host, workload, container(workload, name))
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
            )

    def end(self, name: str) -> None:
        """SIGTERM, as a kubelet does."""
        process = self.running.pop(name)
        process.terminate()
        try:
            process.wait(HANG)
        finally:
            with_all = process.pid
            try:
                os.killpg(with_all, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def run_in(
        self, name: str, command: Sequence[str], *, input: str = "", extra: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with the mounts and rights of a container (`kubectl exec`)."""
        workload = self._workload(name)
        host = self.hosts[workload["metadata"]["name"]]
        host = Host(host.folder, host.account, host.values, {**host.extra, **extra})
        line = start(host, workload, container(workload, name), command)
        return subprocess.run(
            line, input=input, capture_output=True, text=True, cwd=ROOT, check=False, timeout=HANG
        )

    def plugin(self, environ: Mapping[str, str], descriptor: int) -> str:
        """What the installed plugin prints when a runtime on the host calls it."""
        host = self.folder / "host"
        plugin = host / "opt/cni/bin/calico"
        conflist = json.loads((host / "etc/cni/net.d/10-calico.conflist").read_text())
        outer = {key: conflist[key] for key in ("name", "cniVersion")}
        config = json.dumps(conflist["plugins"][0] | outer)
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", HOST_RUN,
             str(host / "var/run/calico"), str(plugin)],
            input=config, capture_output=True, text=True, check=False, timeout=HANG,
            env=dict(environ), pass_fds=[descriptor],
        )  # fmt: skip
        return done.stdout

    def _workload(self, name: str) -> Tree:
        names = [one["name"] for one in [*pod(self.node)["containers"],
                                         *pod(self.node)["initContainers"]]]  # fmt: skip
        return self.node if name in names else self.controllers

    def is_ready(self, name: str) -> bool:
        """Whether a container's readiness probe passes; one that ended is started again."""
        if self.running[name].poll() is not None:
            time.sleep(1)
            self.launch(name)
        return self.status(name) == 200

    def status(self, name: str, what: str = "readiness") -> int:
        """What a container's probe is answered; 0: nothing."""
        try:
            with urllib.request.urlopen(
                f"http://localhost:{PORTS[name]}/{what}", timeout=HANG
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def log(self, name: str) -> str:
        """What a container said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # -- the two stores ------------------------------------------------------------------------

    def calicoctl(self, *arguments: str, input: str = "") -> str:
        """Ask as an operator."""
        environ = {"PATH": os.environ["PATH"]}
        if self.etcd is not None:
            environ |= {"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": self.etcd.endpoint}
        else:
            environ |= {"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": str(self.kubeconfig)}
        for _ in range(5):
            done = subprocess.run(
                [str(PROGRAMS / "calicoctl"), *arguments],
                input=input, capture_output=True, text=True, env=environ, check=False, timeout=HANG,
            )  # fmt: skip
            if "no answer within" not in done.stdout + done.stderr:
                break
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    def kubectl(self, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
        """Ask as the administrator."""
        return kubectl(self.kubeconfig, *arguments, input=input)

    def audit(self) -> list[str]:
        """The audit log so far."""
        return (self.folder / "audit.log").read_text().splitlines()


def kubectl(kubeconfig: Path, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    """Kubernetes' own command line."""
    command = [str(binaries() / "kubectl"), "--kubeconfig", str(kubeconfig), *arguments]
    return subprocess.run(
        command, input=input, capture_output=True, text=True, check=False, timeout=HANG
    )


def write_kubeconfig(api: ApiServer, path: Path, token: str = "admin-token") -> None:
    """Of a user with a token."""
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        f"clusters: [{{name: k, cluster: {{server: '{api.url}',"
        f" certificate-authority: '{api.authority.cert}'}}}}]\n"
        f"users: [{{name: u, user: {{token: '{token}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    )


@contextmanager
def world(folder: Path, manifest: str, store: str) -> Iterator[World]:
    """A node until the end of the block; nothing runs on it yet, and the manifest is applied."""
    with ExitStack() as stack:
        space = stack.enter_context(network_namespace("manifest"))
        for line in (
            "link set lo up",
            "link add eth0 type veth peer name outside",
            f"address add {ADDRESS}/24 dev eth0",
            "link set eth0 up",
            "link set outside up",
            "route add default via 10.99.7.254",
        ):
            space.run("ip", *line.split())
        stack.enter_context(space.entered())
        etcd = None
        if store == "etcd":
            etcd = Etcd(folder / "etcd")
            stack.callback(etcd.stop)
            etcd.start()
        folder.mkdir(exist_ok=True)
        (folder / "audit.yaml").write_text(AUDIT)
        api = ApiServer(
            folder / "api",
            [
                f"--audit-policy-file={folder / 'audit.yaml'}",
                f"--audit-log-path={folder / 'audit.log'}",
            ],
        )
        stack.callback(api.stop)
        api.start()
        api.namespace(NAMESPACE)
        write_kubeconfig(api, folder / "kubeconfig")
        _apply(folder / "kubeconfig", manifest)
        made = World(folder, space, manifest, etcd, api)
        (folder / "host").mkdir(exist_ok=True)
        try:
            yield made
        finally:
            for name in list(made.running):
                made.end(name)


def _apply(kubeconfig: Path, manifest: str) -> None:
    """Until all is taken: kinds that it defines itself are known some time later."""
    deadline = time.monotonic() + HANG
    while True:
        done = kubectl(
            kubeconfig, "apply", "--server-side", "--validate=strict", "-f", "-", input=manifest
        )
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr
        time.sleep(1)
