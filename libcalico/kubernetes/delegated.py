"""Credentials that the official Python client, the package `kubernetes`, gets for us.

A user of a kubeconfig with `exec` (EKS, GKE, AKS), `auth-provider` (`oidc`, `gcp`) or a name and a
password. The package runs the program or asks the identity provider; the calls stay our client's.
It is imported when such a user is met, for it costs 0.3 s of CPU and 22 MB.

Of the package `ExecProvider` is used, which raises, and not its loader, which logs why a program
failed and goes on without credentials. Its loader would ask an OIDC issuer without verifying it
where no CA is named: it gets the system's. Files are never written: a refresh token that the
issuer replaces is kept in memory. Errors repeat what a program said without what may be a secret.
Tested in tests/libcalico/test_kubernetes_delegated.py and tests/apiserver/test_kubeconfig.py.
"""

from __future__ import annotations

import base64
import copy
import logging
import re
import shutil
import ssl
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Tree = Mapping[str, Any]
_DELEGATED = ("exec", "auth-provider", "username", "password")
_PROVIDERS = ("oidc", "gcp")
_PROVIDER_LOOKS = timedelta(minutes=1)
_CLUSTER_INFO = (
    *("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "extensions"),
)
_MAY_BE_SECRET = re.compile(r"[A-Za-z0-9+/_=.-]{32,}")
_LONGEST = 300


class Problem(Exception):
    """Why there is no credential: the user's field, and what is wrong with it."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field, self.rule = field, rule


@dataclass(frozen=True, slots=True)
class Credential:
    """A token and a certificate with its key (PEM), any of them empty."""

    token: str = field(default="", repr=False)
    scheme: str = "Bearer"
    cert: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    expires: datetime | None = None
    """From then on it is asked for anew; None: when the API refuses it."""

    def is_over(self) -> bool:
        """Whether it has expired."""
        return self.expires is not None and self.expires <= datetime.now(UTC)


def is_needed(user: Tree) -> bool:
    """Whether a user needs the package for its credential."""
    return any(user.get(name) for name in _DELEGATED)


class Delegated:
    """The credential of one user, kept until it expires, is refused or the kubeconfig changes.

    Threads may share it: one fetches the credential, and the others wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: object = None
        self._held: Credential | None = None
        self._loader: Any = None

    def credential(self, user: Tree, cluster: Tree, ca: bytes, folder: Path) -> Credential:
        """The present credential; a call may block. Raises Problem.

        `ca` is the cluster's CA (PEM), `folder` that of the file that has the user.
        """
        with self._lock:
            asked = user, cluster, ca, folder
            if asked != self._asked:
                self._asked, self._held, self._loader = copy.deepcopy(asked), None, None
            if self._held is None or self._held.is_over():
                self._held = self._ask(user, cluster, ca, folder)
            return self._held

    def refused(self, token: str, cert: bytes) -> None:
        """Drop the credential if it is this one, which the API refused."""
        with self._lock:
            if self._held is not None and (token, cert) == (self._held.token, self._held.cert):
                self._held = None

    def _ask(self, user: Tree, cluster: Tree, ca: bytes, folder: Path) -> Credential:
        name = next(name for name in _DELEGATED if user.get(name))
        _check_package(name)
        if name == "exec":
            return _executed(user["exec"], cluster, ca, folder)
        if self._loader is None:
            self._loader = _loader(name, user, folder)
        return _loaded(name, self._loader)


def _check_package(name: str) -> None:
    try:
        import kubernetes.config  # noqa: F401
    except ImportError:
        raise Problem(
            name,
            "needs the Python package `kubernetes`, which is in the wheel's installation and"
            " neither in the images nor in calicoctl as one file; a token or a client certificate"
            " needs no package",
        ) from None


def _executed(spec: object, cluster: Tree, ca: bytes, folder: Path) -> Credential:
    from kubernetes.config import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    checked = _checked(spec)
    program = _program(checked, folder)
    info = {name: cluster[name] for name in _CLUSTER_INFO if name in cluster}
    if ca:
        info["certificate-authority-data"] = base64.b64encode(ca).decode()
    try:
        node = ConfigNode("exec", {**checked, "command": program})
        status = ExecProvider(node, None, ConfigNode("cluster", info)).run()
    except AttributeError:
        # On a terminal the package does not hold what the program said, and trips over that.
        raise Problem("exec", f"{program} failed; it said above why") from None
    except (ConfigException, ValueError, TypeError) as problem:
        said = _without_secrets(str(problem).removeprefix("exec: "), checked)
        raise Problem("exec", f"{program}: {said}") from None
    except OSError as problem:
        why = problem.strerror or "an error of the system"
        raise Problem("exec.command", f"{program} cannot be run: {why}") from None
    return _of_status(status, program)


def _checked(spec: object) -> Tree:
    """The field `exec`, checked as far as the package relies on it. Raises Problem."""
    if not isinstance(spec, Mapping):
        raise Problem("exec", "must be a map")
    for name in ("command", "apiVersion"):
        if not isinstance(spec.get(name), str) or not spec[name]:
            raise Problem(f"exec.{name}", "must be text")
    args, env = spec.get("args") or [], spec.get("env") or []
    if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
        raise Problem("exec.args", "must be a list of texts")
    if not isinstance(env, list) or not all(_is_variable(one) for one in env):
        raise Problem("exec.env", "must be a list of name and value, both text")
    if spec.get("interactiveMode") == "Always" and not (sys.stdin and sys.stdin.isatty()):
        rule = f"is Always, and there is no terminal on which {spec['command']} could ask"
        raise Problem("exec.interactiveMode", rule)
    return dict(spec)


def _is_variable(one: object) -> bool:
    return isinstance(one, Mapping) and all(
        isinstance(one.get(name), str) for name in ("name", "value")
    )


def _program(spec: Tree, folder: Path) -> str:
    """The program's path: beside the kubeconfig where the command has a slash, else in PATH."""
    command: str = spec["command"]
    at = str((folder / command).absolute()) if "/" in command else command
    if program := shutil.which(at):
        return program
    hint = " ".join(str(spec.get("installHint") or "").split())
    rule = f"no program {command!r} that can be run" + (f"; {hint}" if hint else "")
    raise Problem("exec.command", rule)


def _of_status(status: object, program: str) -> Credential:
    if not isinstance(status, Mapping):
        raise Problem("exec", f"{program} gave a status that is no map")
    words = {}
    for name in ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp"):
        words[name] = status.get(name) or ""
        if not isinstance(words[name], str):
            raise Problem("exec", f"{program} gave a status.{name} that is no text")
    token, cert, key, until = words.values()
    if not token and not (cert and key):
        raise Problem("exec", f"{program} gave neither a token nor a certificate with its key")
    return Credential(token, "Bearer", cert.encode(), key.encode(), _moment(until, program))


def _moment(text: str, program: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Problem(
            "exec", f"{program} gave a status.expirationTimestamp that is no time"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _loader(name: str, user: Tree, folder: Path) -> Any:
    """The package's loader for this user alone; it holds what the issuer renews."""
    from kubernetes.config.kube_config import KubeConfigLoader

    # They tell tokens to a log at level debug.
    for talkative in ("requests_oauthlib", "oauthlib"):
        logging.getLogger(talkative).setLevel(logging.INFO)
    kept = {key: copy.deepcopy(user[key]) for key in _DELEGATED[1:] if user.get(key)}
    if name == "auth-provider":
        _prepare_provider(kept["auth-provider"], folder)
    elif not all(isinstance(kept.get(key), str) for key in ("username", "password")):
        raise Problem("username", "a name and a password go together, both text")
    tree = {
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {}}],
        "users": [{"name": "x", "user": kept}],
    }
    return KubeConfigLoader(tree, "x")


def _prepare_provider(provider: object, folder: Path) -> None:
    if not isinstance(provider, dict) or provider.get("name") not in _PROVIDERS:
        raise Problem("auth-provider.name", f"must be one of {', '.join(_PROVIDERS)}")
    config = provider.setdefault("config", {})
    if not isinstance(config, dict):
        raise Problem("auth-provider.config", "must be a map")
    if provider["name"] == "oidc" and not config.get("idp-certificate-authority-data"):
        named = config.get("idp-certificate-authority")
        config["idp-certificate-authority"] = str(folder / named) if named else _system_cas()


def _system_cas() -> str:
    import certifi

    return ssl.get_default_verify_paths().cafile or str(certifi.where())


def _loaded(name: str, loader: Any) -> Credential:
    from kubernetes.client import Configuration, OpenApiException
    from kubernetes.config import ConfigException
    from oauthlib.oauth2 import OAuth2Error
    from urllib3.exceptions import HTTPError

    configuration = Configuration()
    try:
        loader.load_and_set(configuration)
    except AttributeError:
        rule = "gcp: the token is over, and without cmd-path nothing here renews it"
        raise Problem(name, rule) from None
    except (OpenApiException, OAuth2Error, HTTPError, ConfigException) as problem:
        raise Problem(name, _without_secrets(str(problem), {})) from None
    except (OSError, ValueError, LookupError, TypeError) as problem:
        said = f"{type(problem).__name__}: {problem}"
        raise Problem(name, _without_secrets(said, {})) from None
    scheme, _, token = configuration.api_key.get("BearerToken", "").partition(" ")
    if not token:
        raise Problem(name, "gives no token; is its id-token whole?")
    looks = datetime.now(UTC) + _PROVIDER_LOOKS if name == "auth-provider" else None
    return Credential(token, scheme, expires=looks)


def _without_secrets(text: str, spec: Tree) -> str:
    """One line of a program's output, without what may be a secret."""
    for one in spec.get("env") or ():
        if len(one["value"]) > 3:
            text = text.replace(one["value"], "...")
    return _MAY_BE_SECRET.sub("...", " ".join(text.split()))[:_LONGEST]
