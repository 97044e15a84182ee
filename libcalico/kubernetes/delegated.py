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

import copy
import logging
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from libcalico.kubernetes.credentials import DELEGATED, Credential, Problem, Tree
from libcalico.kubernetes.exec_plugin import executed, without_secrets

_PROVIDERS = ("oidc", "gcp")
_PROVIDER_LOOKS = timedelta(minutes=1)


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
        name = next(name for name in DELEGATED if user.get(name))
        _check_package(name)
        if name == "exec":
            return executed(user["exec"], cluster, ca, folder)
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


def _loader(name: str, user: Tree, folder: Path) -> Any:
    """The package's loader for this user alone; it holds what the issuer renews."""
    from kubernetes.config.kube_config import KubeConfigLoader

    # They tell tokens to a log at level debug.
    for talkative in ("requests_oauthlib", "oauthlib"):
        logging.getLogger(talkative).setLevel(logging.INFO)
    kept = {key: copy.deepcopy(user[key]) for key in DELEGATED[1:] if user.get(key)}
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
        raise Problem(name, without_secrets(str(problem), {})) from None
    except (OSError, ValueError, LookupError, TypeError) as problem:
        said = f"{type(problem).__name__}: {problem}"
        raise Problem(name, without_secrets(said, {})) from None
    scheme, _, token = configuration.api_key.get("BearerToken", "").partition(" ")
    if not token:
        raise Problem(name, "gives no token; is its id-token whole?")
    looks = datetime.now(UTC) + _PROVIDER_LOOKS if name == "auth-provider" else None
    return Credential(token, scheme, expires=looks)
