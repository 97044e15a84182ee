"""A real kube-apiserver on an etcd of its own: TLS, tokens, certificates, RBAC, service accounts.

Ready in about four seconds. Nothing else of Kubernetes runs: no controller makes tokens or
slices, no scheduler, so what a test writes is all there is. The programs are those of
`./run k8s binaries`; `tests.k8s.binaries.missing` says whether they are there.

`admin` may do everything; other users are made with `account` (a service account with rules of
its own) or are certificates of `authority`.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from libcalico.kubernetes.access import Access, Source
from libcalico.kubernetes.client import Client
from tests.k8s.binaries import folder as binaries
from tests.support import stopping
from tests.support.certificates import Authority
from tests.support.etcd import Etcd, free_ports
from tests.support.patience import HANG, patient, wait_for

START_DEADLINE = 240.0
ADMIN = "admin-token"
SERVICE_RANGE = "10.96.0.0/16"
JSON = "application/json"


class ApiServer:
    """One server; `url` stays the same over restarts. It is where it is started from."""

    def __init__(self, at: Path, extra: Sequence[str] = (), port: int = 0) -> None:
        self.folder = at
        self._extra = list(extra)
        at.mkdir(parents=True, exist_ok=True)
        self.etcd = Etcd(at / "etcd")
        self.etcd.program = str(binaries() / "etcd")
        self.port = port or free_ports(1)[0]
        self.url = f"https://127.0.0.1:{self.port}"
        self.authority = Authority(at, "ca")
        self._serving = self.authority.issue(
            "apiserver", names=("IP:127.0.0.1", "DNS:kubernetes.default.svc"), usage="serverAuth"
        )
        self._keys()
        self._process: subprocess.Popen[bytes] | None = None

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> ApiServer:
        """Start both, and wait until the API is ready."""
        if not self.etcd.running:
            self.etcd.start()
        self.launch()
        self.wait()
        return self

    def launch(self) -> None:
        """Start the API server without waiting."""
        with (self.folder / "apiserver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(binaries() / "kube-apiserver"), *self._flags()],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"]},
            )

    def wait(self) -> None:
        """Until it is ready."""
        deadline = time.monotonic() + patient(START_DEADLINE)
        while time.monotonic() < deadline and self.running:
            try:
                if self.call("GET", "/readyz", raw=True) == b"ok":
                    # Its own controller makes it, which being ready does not wait for.
                    self.call("GET", "/api/v1/namespaces/default")
                    return
            except (OSError, http.client.HTTPException, ApiRefused):
                pass
            time.sleep(0.05)
        raise RuntimeError(f"kube-apiserver did not start:\n{self.log()[-3000:]}")

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: it takes a minute for SIGTERM. Its etcd goes on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End both."""
        self.resume()
        self.kill()
        self.etcd.stop()

    def restart(self) -> None:
        """Kill the API server and start it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        assert self._process is not None
        stopping.pause(self._process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        """What it logged."""
        return (self.folder / "apiserver.log").read_text(errors="replace")

    def forget_history(self) -> None:
        """Compact etcd: watches from earlier revisions, and pages of earlier lists, end in 410."""
        self.etcd.compact()

    # -- access --------------------------------------------------------------------------------

    @property
    def ca(self) -> bytes:
        """The certificate of the authority that signed the server's."""
        return self.authority.cert.read_bytes()

    def access(self, token: str = ADMIN) -> Access:
        """Access by token."""
        return Access(self.url, ca=self.ca, token=token)

    def source(self, token: str = ADMIN) -> Source:
        """Access by a token that does not change."""
        access = self.access(token)
        return lambda: access

    def client(self, token: str = ADMIN, **options: Any) -> Client:
        """A client of ours."""
        return Client(self.source(token), **options)

    def account(self, name: str, rules: Sequence[Mapping[str, Any]], space: str = "default") -> str:
        """A service account with these RBAC rules in the whole cluster; returns a token.

        The server judges by copies of accounts and rules, so it is asked until these are there.
        """
        self.ensure(f"/api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": name}})
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        unique = f"{space}-{name}"
        role = {"metadata": {"name": unique}, "rules": list(rules)}
        self.ensure(f"{rbac}/clusterroles", role)
        subject = {"kind": "ServiceAccount", "name": name, "namespace": space}
        reference = {"kind": "ClusterRole", "name": unique, "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": unique}, "subjects": [subject], "roleRef": reference}
        self.ensure(f"{rbac}/clusterrolebindings", binding)
        token = self.token(name, space)
        wanted = [_compared(rule) for rule in rules if "resources" in rule]
        wait_for(lambda: all(one in self._rules(token, space) for one in wanted), wanted)
        return token

    def _rules(self, token: str, space: str) -> list[dict[str, set[str]]]:
        """What the server's copies let the owner of a token do; nothing while it knows none."""
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        try:
            told = self.call("POST", path, {"spec": {"namespace": space}}, token=token)
        except ApiRefused as refused:
            if refused.status not in (401, 403):
                raise
            return []
        return [_compared(rule) for rule in told["status"]["resourceRules"]]

    def token(self, name: str, space: str = "default") -> str:
        """A fresh token of a service account (TokenRequest)."""
        path = f"/api/v1/namespaces/{space}/serviceaccounts/{name}/token"
        answer = self.call("POST", path, {"spec": {"expirationSeconds": 3600}})
        token: str = answer["status"]["token"]
        return token

    def mount_account(self, at: Path, token: str) -> None:
        """A service account's folder as the kubelet mounts it; a new token replaces the old."""
        at.mkdir(parents=True, exist_ok=True)
        for name, content in (("token", token.encode()), ("ca.crt", self.ca)):
            fresh = at / f".{name}"
            fresh.write_bytes(content)
            fresh.rename(at / name)

    # -- objects -------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content: str = JSON,
        raw: bool = False,
        token: str = ADMIN,
    ) -> Any:
        """Ask, as admin by default, with Python's own HTTP client. Raises ApiRefused, OSError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", content)
        try:
            with urllib.request.urlopen(request, timeout=HANG, context=self._context()) as answer:
                found = answer.read()
        except urllib.error.HTTPError as error:
            raise ApiRefused(error.code, error.read().decode(errors="replace")) from None
        return found if raw else json.loads(found)

    def ensure(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object, or write it over the one that is there."""
        try:
            answer: dict[str, Any] = self.call("POST", path, body)
        except ApiRefused as refused:
            if refused.status != 409:
                raise
            name = body["metadata"]["name"]
            answer = self.call(
                "PATCH", f"{path}/{name}", body, content="application/merge-patch+json"
            )
        return answer

    def delete(self, path: str) -> None:
        """Delete an object; that there is none is no error."""
        try:
            self.call("DELETE", path)
        except ApiRefused as refused:
            if refused.status != 404:
                raise

    def namespace(self, name: str) -> None:
        """Have a namespace."""
        self.ensure("/api/v1/namespaces", {"metadata": {"name": name}})

    def slice(
        self,
        name: str,
        service: str,
        addresses: Sequence[str],
        ports: Sequence[int | tuple[str, int]] = (),
        *,
        space: str = "default",
        node: str = "",
        ready: bool = True,
    ) -> None:
        """Have an EndpointSlice; a port is a number (TCP) or a protocol and a number."""
        pairs = [("TCP", port) if isinstance(port, int) else port for port in ports]
        more = {"nodeName": node} if node else {}
        # A merge patch replaces lists, so what is not in this call is gone.
        self.ensure(
            f"/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices",
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv6" if any(":" in each for each in addresses) else "IPv4",
                "endpoints": [
                    {"addresses": [each], "conditions": {"ready": ready}, **more}
                    for each in addresses
                ],
                "ports": [
                    {"name": f"p{number}", "protocol": protocol, "port": number}
                    for protocol, number in pairs
                ],
            },
        )

    def delete_slice(self, name: str, space: str = "default") -> None:
        """Delete an EndpointSlice."""
        self.delete(f"/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices/{name}")

    # -- how it is started ---------------------------------------------------------------------

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.cert))

    def _keys(self) -> None:
        (self.folder / "tokens.csv").write_text(f"{ADMIN},admin,1,system:masters\n")
        for command in ("genrsa -out sa.key 2048", "rsa -in sa.key -pubout -out sa.pub"):
            subprocess.run(
                ["openssl", *command.split()], cwd=self.folder, check=True, capture_output=True
            )

    def _flags(self) -> list[str]:
        at = self.folder
        return [
            f"--etcd-servers={self.etcd.endpoint}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={at / 'certs'}",
            f"--tls-cert-file={self._serving.cert}",
            f"--tls-private-key-file={self._serving.key}",
            f"--client-ca-file={self.authority.cert}",
            f"--token-auth-file={at / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            # Without the controller that makes them pods could not be created otherwise.
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={at / 'sa.key'}",
            f"--service-account-key-file={at / 'sa.pub'}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            "--shutdown-delay-duration=0s",
            *self._extra,
        ]


class ApiRefused(Exception):
    """The API answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


def _compared(rule: Mapping[str, Any]) -> dict[str, set[str]]:
    """A rule of RBAC, with its words in any order."""
    parts = ("verbs", "apiGroups", "resources", "resourceNames")
    return {part: set(rule.get(part) or ()) for part in parts}


def kubeconfig(api: ApiServer) -> str:
    """As kubectl writes one."""
    return (
        "apiVersion: v1\nclusters:\n- cluster:\n"
        f"    certificate-authority-data: {base64.b64encode(api.ca).decode()}\n"
        f"    server: {api.url}\n  name: c\ncontexts:\n- context:\n    cluster: c\n    user: u\n"
        "  name: x\ncurrent-context: x\nkind: Config\npreferences: {}\nusers:\n- name: u\n"
        f"  user:\n    token: {ADMIN}\n"
    )
