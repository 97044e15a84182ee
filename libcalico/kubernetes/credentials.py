"""Where the Kubernetes API is, and who we are to it.

Three ways: the service account that the kubelet mounts into a pod, a kubeconfig, and the
settings `K8S_API_ENDPOINT` and so on of Calico. Whatever lies in files is read again for every
request: tokens and certificates rotate, and an agent lives longer than they do. Secrets never
appear in `repr`.

What a kubeconfig asks for and this client does not do (programs that fetch credentials, proxies,
impersonation) is refused by its name, never left out: the request would go out as somebody else.
Tested in tests/libcalico/test_kubernetes_access.py and tests/apiserver/test_credentials.py.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from libcalico import parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.errors import InvalidValue
from libcalico.kubernetes.errors import NoAccess
from libcalico.process import paths

_REFUSED_USER = {
    "exec": "a program that fetches credentials is not run",
    "auth-provider": "Kubernetes itself has no such providers any more",
    "username": "the API has no passwords any more",
    "password": "the API has no passwords any more",
    "as": "impersonation is not done",
    "as-uid": "impersonation is not done",
    "as-groups": "impersonation is not done",
    "as-user-extra": "impersonation is not done",
}


@dataclass(frozen=True, slots=True)
class Access:
    """One way to the API, as of now. PEM texts and the token may be empty."""

    server: str
    ca: bytes = field(default=b"", repr=False)
    cert: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    server_name: str = ""
    """The name that the server's certificate must have, where it is not the address's."""
    insecure: bool = False
    """Asked for by name: the server is not verified."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        found = parsing.address(self.server, path=True)
        return found.host, found.port

    @property
    def secure(self) -> bool:
        """Whether it is TLS."""
        return self.server.startswith("https://")

    @property
    def base(self) -> str:
        """The path that stands before every path of the API; usually empty."""
        return parsing.address(self.server, path=True).path


Source = Callable[[], Access]
"""Gives the access as of now. Raises NoAccess."""


def find(
    config: DatastoreConfig, environ: Mapping[str, str], account: Path = paths.SERVICE_ACCOUNT
) -> Source:
    """The way that is configured: a kubeconfig, an endpoint, else the pod's service account.

    Single settings (`K8S_API_ENDPOINT`, `K8S_CA_FILE`, ...) win over what the kubeconfig says,
    as in Calico. Raises NoAccess for what can be known before the first request.
    """
    if config.kubeconfig_inline or config.kubeconfig:
        inner = Kubeconfig(config.kubeconfig, config.kubeconfig_inline, config.k8s_context)
    elif config.k8s_api_endpoint:
        inner = None
    else:
        return in_cluster(environ, account)

    def read() -> Access:
        return _settled(config, inner() if inner is not None else None)

    read()
    return read


def in_cluster(environ: Mapping[str, str], account: Path = paths.SERVICE_ACCOUNT) -> Source:
    """The service account that the kubelet mounted. Raises NoAccess."""
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port:
        raise NoAccess(
            "no Kubernetes API: set KUBECONFIG or K8S_API_ENDPOINT, or run in a pod"
            " (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set)"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    def read() -> Access:
        token = _file(account / "token", "the service account's token")
        ca = _file(account / "ca.crt", "the service account's CA")
        return checked(Access(server, ca=ca, token=_token(token, str(account / "token"))))

    read()
    return read


class Kubeconfig:
    """A kubeconfig; `context` empty means its current one. Its file is parsed when it changes."""

    def __init__(self, path: str, inline: str = "", context: str = "") -> None:
        self._path, self._inline, self._context = path, inline, context
        self._label = "kubeconfigInline" if inline else path
        self._folder = Path(path).parent if path and not inline else Path()
        self._bytes, self._tree = b"", {}  # type: tuple[bytes, dict[str, Any]]

    def __call__(self) -> Access:
        """What it says now. Raises NoAccess naming field and file."""
        raw = self._inline.encode() or _file(Path(self._path), "the kubeconfig")
        if raw != self._bytes:
            self._tree, self._bytes = self._parse(raw), raw
        context = self._named("contexts", "context", self._context or self._current())
        cluster = self._named("clusters", "cluster", self._word(context, "context", "cluster"))
        user_name = self._word(context, "context", "user")
        user = self._named("users", "user", user_name) if user_name else {}
        if cluster.get("proxy-url"):
            raise self._bad("clusters[].cluster.proxy-url", "no proxy is used")
        for name, why in _REFUSED_USER.items():
            if user.get(name):
                raise self._bad(f"users[].user.{name}", why)
        token = self._word(user, "user", "token")
        if at := self._word(user, "user", "tokenFile"):
            # It rotates, the token beside it does not: client-go prefers the file too.
            token = _file(self._folder / at, f"tokenFile of {self._label}").decode(errors="replace")
        return checked(
            Access(
                self._word(cluster, "cluster", "server"),
                ca=self._pem(cluster, "certificate-authority"),
                cert=self._pem(user, "client-certificate"),
                key=self._pem(user, "client-key"),
                token=_token(token.encode(), self._label),
                server_name=self._word(cluster, "cluster", "tls-server-name"),
                insecure=self._flag(cluster, "cluster", "insecure-skip-tls-verify"),
            )
        )

    def _parse(self, raw: bytes) -> dict[str, Any]:
        try:
            tree = parsing.yaml_tree(raw)
        except ValueError as problem:
            raise NoAccess(f"{self._label} is not YAML: {problem}") from None
        if not isinstance(tree, dict):
            raise NoAccess(f"{self._label} is no kubeconfig")
        return tree

    def _current(self) -> str:
        name = self._word(self._tree, "", "current-context")
        if not name:
            raise self._bad("current-context", "is empty; set K8S_CURRENT_CONTEXT or mend the file")
        return name

    def _named(self, list_name: str, inner: str, name: str) -> dict[str, Any]:
        listed = self._tree.get(list_name) or ()
        if not isinstance(listed, list | tuple):
            raise self._bad(list_name, "must be a list")
        for one in listed:
            if isinstance(one, dict) and one.get("name") == name:
                value = one.get(inner)
                return value if isinstance(value, dict) else {}
        raise self._bad(list_name, f"holds none with the name {name!r}")

    def _word(self, tree: Mapping[str, Any], where: str, name: str) -> str:
        value = tree.get(name, "")
        if not isinstance(value, str):
            raise self._bad(f"{where}.{name}".strip("."), "must be text")
        return value

    def _flag(self, tree: Mapping[str, Any], where: str, name: str) -> bool:
        value = tree.get(name)
        if not isinstance(value, bool | None):
            # The text "false" is not false.
            raise self._bad(f"{where}.{name}", "must be true or false")
        return bool(value)

    def _pem(self, tree: Mapping[str, Any], name: str) -> bytes:
        """`NAME-data` in base64, else the file `NAME` beside the kubeconfig."""
        if data := self._word(tree, "", f"{name}-data"):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error:
                raise self._bad(f"{name}-data", "must be base64") from None
        at = self._word(tree, "", name)
        return _file(self._folder / at, f"{name} of {self._label}") if at else b""

    def _bad(self, name: str, rule: str) -> NoAccess:
        return NoAccess(f"{self._label}: {name}: {rule}")


def checked(access: Access) -> Access:
    """The same, if it can be used at all. Raises NoAccess."""
    try:
        parsing.url("the API's address", access.server, path=True)
    except InvalidValue as problem:
        raise NoAccess(str(problem)) from None
    if bool(access.cert) != bool(access.key):
        raise NoAccess("a client certificate and its key go together: one of them is missing")
    if not access.secure and (access.token or access.cert):
        raise NoAccess(f"{access.server}: credentials are sent over https only")
    return access


def _settled(config: DatastoreConfig, below: Access | None) -> Access:
    """Single settings over a kubeconfig, or alone."""
    below = below or Access("")
    ca, cert, key = below.ca, below.cert, below.key
    if config.k8s_ca_file:
        ca = _file(Path(config.k8s_ca_file), "K8S_CA_FILE")
    if config.k8s_cert_file or config.k8s_key_file:
        cert = _file(Path(config.k8s_cert_file), "K8S_CERT_FILE")
        key = _file(Path(config.k8s_key_file), "K8S_KEY_FILE")
    return checked(
        Access(
            config.k8s_api_endpoint or below.server,
            ca=ca,
            cert=cert,
            key=key,
            token=_token(config.k8s_token.encode(), "k8sAPIToken") or below.token,
            server_name=below.server_name,
            insecure=below.insecure or _insecure(config),
        )
    )


def _insecure(config: DatastoreConfig) -> bool:
    text = config.k8s_insecure
    return bool(text) and parsing.flag(config.name("k8s_insecure"), text)


def _token(raw: bytes, where: str) -> str:
    """A token as it goes into a header, where blanks and line ends have no place."""
    try:
        text = raw.decode("ascii").strip()
    except UnicodeDecodeError:
        text = "\0"
    if text and (not text.isprintable() or " " in text):
        raise NoAccess(f"{where} holds no token")
    return text


def _file(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise NoAccess(f"{what} cannot be read: {path}: {why}") from None
