"""Credentials on disk, for configurations that ask for them by a placeholder.

Our own plugin needs none: it asks the daemon. A template written for Calico may name a
kubeconfig, a token or etcd's files, and other programs on the node may read them where Calico
puts them. Then, and only then (INST-6), they are written there, 0600, and it is said aloud.

Everything is read before anything is written. Nothing here logs or raises a secret.
Source: docs/reference/data-model.md#install-cni, conformance INS-03, INS-08.
Tested in tests/cni_conformance/test_install.py and tests/cni_conformance/test_install_keeping.py.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cni.install.settings import Settings
from libcalico.errors import MuslinError

KUBECONFIG = "calico-kubeconfig"
TLS_FOLDER = "calico-tls"
TLS = {
    "ETCD_KEY_FILE": "etcd-key",
    "ETCD_CERT_FILE": "etcd-cert",
    "ETCD_CA_CERT_FILE": "etcd-ca",
}
ASKING = ("KUBECONFIG_FILEPATH", "SERVICEACCOUNT_TOKEN", *TLS)


class NoCredential(MuslinError):
    """The template asks for a credential that is not there."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a template asked for: values of placeholders, and files below the directory.

    `files` maps a name in the directory, or `calico-tls/NAME`, to its bytes; None removes a
    file whose secret is empty now.
    """

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes | None] = field(default_factory=dict, repr=False)
    mode: int = 0o600

    @property
    def written(self) -> list[str]:
        """Files that hold a credential after this."""
        return [name for name, content in self.files.items() if content is not None]


def gather(asked: Collection[str], settings: Settings) -> Credentials:
    """Read what the placeholders `asked` need. Raises NoCredential naming placeholder and file."""
    values: dict[str, str] = {}
    files: dict[str, bytes | None] = {}
    if "SERVICEACCOUNT_TOKEN" in asked:
        values["SERVICEACCOUNT_TOKEN"] = _token(settings, "__SERVICEACCOUNT_TOKEN__")
    if "KUBECONFIG_FILEPATH" in asked:
        values["KUBECONFIG_FILEPATH"] = str(settings.host_net_dir / KUBECONFIG)
        if (settings.account / "token").exists() or not (settings.net_dir / KUBECONFIG).is_file():
            files[KUBECONFIG] = _kubeconfig(settings)
    for name, file in TLS.items():
        if name in asked:
            content = _secret(Path(settings.values["TLS_ASSETS_DIR"]) / file)
            files[f"{TLS_FOLDER}/{file}"] = content or None
            values[name] = str(settings.host_net_dir / TLS_FOLDER / file) if content else ""
    return Credentials(values, files, int(settings.values["TEST_FILE_PERMISSION"], 8))


def inputs(settings: Settings) -> list[Path]:
    """The files that credentials are made from: when one changes, they are made again."""
    tls = Path(settings.values["TLS_ASSETS_DIR"])
    return [
        settings.account / "token",
        settings.account / "ca.crt",
        *(tls / f for f in TLS.values()),
    ]


def api_server(settings: Settings, why: str) -> str:
    """The API's address from the service's environment. Raises NoCredential."""
    host, port = (settings.values[f"KUBERNETES_SERVICE_{name}"] for name in ("HOST", "PORT"))
    if not host or not port:
        raise NoCredential(
            f"{why} needs KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which every pod has"
        )
    protocol = settings.values["KUBERNETES_SERVICE_PROTOCOL"]
    return f"{protocol}://{f'[{host}]' if ':' in host else host}:{port}"


def kubeconfig(server: str, ca: bytes, token: str, insecure: bool = False) -> bytes:
    """A kubeconfig with Calico's names of cluster, user and context. Pure."""
    cluster: dict[str, object] = {"server": server}
    if insecure:
        cluster["insecure-skip-tls-verify"] = True
    else:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": "calico", "user": {"token": token}}],
        "contexts": [{"name": "calico-context", "context": {"cluster": "local", "user": "calico"}}],
        "current-context": "calico-context",
    }
    # JSON is YAML, and every reader takes it.
    return msgspec.json.format(msgspec.json.encode(tree), indent=2) + b"\n"


def _kubeconfig(settings: Settings) -> bytes:
    why = "__KUBECONFIG_FILEPATH__"
    token, insecure = _token(settings, why), settings.flag("SKIP_TLS_VERIFY")
    server = api_server(settings, why)
    ca = b"" if insecure else _secret(settings.account / "ca.crt")
    if not ca and not insecure:
        raise NoCredential(f"{why} needs the API's CA, {settings.account / 'ca.crt'}: not there")
    return kubeconfig(server, ca, token, insecure)


def _token(settings: Settings, why: str) -> str:
    path = settings.account / "token"
    try:
        token = _secret(path).decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable():
        raise NoCredential(f"{why} needs a service account's token at {path}: there is none")
    return token


def _secret(path: Path) -> bytes:
    """A mounted file's bytes, empty where there is none. Mounts are links: they are followed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as problem:
        raise NoCredential(f"{path} cannot be read: {problem.strerror}") from None


def value_of(settings: Settings, name: str) -> Callable[[], str]:
    """The value of a variable that a template cannot do without. Raises NoCredential."""

    def read() -> str:
        if not settings.values[name]:
            raise NoCredential(f"the template names __{name}__, but {name} is not set")
        return settings.values[name]

    return read
