"""The Kubernetes API as a network configuration names it: kubeconfig, address, credentials.

The first generation of Calico's configuration carried all of it (`policy.k8s_api_root`,
`policy.k8s_auth_token`, `kubernetes.kubeconfig`), and installations still do. What is named
there is what pods are asked of, before what the daemon itself was given. Single keys of `policy`
win over the kubeconfig, and `kubernetes.k8s_api_root` over both, as in Calico.

Files are those of the host; a daemon in a container finds them below `/host`. They are read
again for every request, so credentials may rotate. Secrets never appear in `repr`.
Source: docs/reference/data-model.md#cni-configuration, conformance CAL-06, CAL-08. Tested in
tests/cni/test_kubernetes_access.py and, with a real API server, in tests/apiserver/test_pods.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from cni.request.errors import CNIError, Code
from cni.request.reader import Document, Reader
from libcalico.kubernetes.access import Access, Kubeconfig, Renewing, Source, checked
from libcalico.kubernetes.errors import NoAccess

HOST = Path("/host")
"""Where a container of ours has the host's files."""

API_PATH = "/api/v1"


@dataclass(frozen=True, slots=True)
class NamedAccess:
    """What the configuration says, as it says it. Equal ones share one cache of pods."""

    kubeconfig: str = ""
    server: str = ""
    token: str = field(default="", repr=False)
    cert: str = ""
    key: str = ""
    ca: str = ""

    @property
    def label(self) -> str:
        """The access as a log may name it."""
        return self.server or self.kubeconfig

    def source(self, host: Path = HOST) -> Source:
        """A function that reads the access anew; it raises NoAccess naming key and file."""
        below = Kubeconfig(str(on_host(self.kubeconfig, host))) if self.kubeconfig else None

        def read() -> Access:
            fallback = below() if below is not None else Access("")
            return checked(
                replace(
                    fallback,
                    server=self.server or fallback.server,
                    ca=_file(self.ca, "policy.k8s_certificate_authority", host) or fallback.ca,
                    cert=_file(self.cert, "policy.k8s_client_certificate", host) or fallback.cert,
                    key=_file(self.key, "policy.k8s_client_key", host) or fallback.key,
                    token=self.token or fallback.token,
                    scheme="Bearer" if self.token else fallback.scheme,
                )
            )

        return Renewing(read, below.refused) if below is not None else read


NOTHING = NamedAccess()


def named_access(read: Reader, policy: Document, kubernetes: Document) -> NamedAccess:
    """The access that the members `policy` and `kubernetes` name; NOTHING if they name none."""
    if not kubernetes and len(policy) <= 1:
        return NOTHING  # by far the most: `policy` holds its type, or nothing
    root = read.text(kubernetes, "k8s_api_root", "kubernetes.k8s_api_root")
    root = root or read.text(policy, "k8s_api_root", "policy.k8s_api_root")
    token = read.text(policy, "k8s_auth_token", "policy.k8s_auth_token")
    if not (token.isascii() and token.isprintable()) or " " in token:
        read.refuse("policy.k8s_auth_token", "a token of letters, digits, dots and dashes")
        token = ""
    return NamedAccess(
        kubeconfig=read.text(kubernetes, "kubeconfig", "kubernetes.kubeconfig"),
        server=root.rstrip("/").removesuffix(API_PATH),
        token=token,
        cert=read.text(policy, "k8s_client_certificate", "policy.k8s_client_certificate"),
        key=read.text(policy, "k8s_client_key", "policy.k8s_client_key"),
        ca=read.text(policy, "k8s_certificate_authority", "policy.k8s_certificate_authority"),
    )


def on_host(path: str, host: Path = HOST) -> Path:
    """A path of the host as it is seen from here: as given, else below `host`."""
    given = Path(path)
    mounted = host / path.lstrip("/")
    return mounted if not given.exists() and mounted.exists() else given


def as_cni_error(error: NoAccess) -> CNIError:
    """What the runtime is told of an access that cannot be used."""
    return CNIError(Code.INVALID_CONFIG, f"the Kubernetes API cannot be asked: {error}")


def _file(path: str, key: str, host: Path) -> bytes:
    if not path:
        return b""
    try:
        return on_host(path, host).read_bytes()
    except OSError as problem:
        raise NoAccess(f"{key} cannot be read: {path}: {problem.strerror}") from None
