"""The address of the Kubernetes API, and our credentials there.

Three ways: the service account that the kubelet mounts into a pod, a kubeconfig, and the
settings `K8S_API_ENDPOINT` and so on of Calico. What lies in files is read again for every
request: tokens and certificates rotate, and an agent lives longer than they do.
Tested in tests/libcalico/test_kubernetes_access.py and tests/apiserver/test_credentials.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from libcalico import parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.kubernetes.credentials import (
    Access,
    Renewing,
    Source,
    checked,
    content_of,
    refuse,
    token_of,
)
from libcalico.kubernetes.errors import NoAccess
from libcalico.kubernetes.kubeconfig import Kubeconfig
from libcalico.process import paths

__all__ = [
    "Access",
    "Kubeconfig",
    "Renewing",
    "Source",
    "checked",
    "find",
    "in_cluster",
    "refuse",
]


def find(
    config: DatastoreConfig, environ: Mapping[str, str], account: Path = paths.SERVICE_ACCOUNT
) -> Source:
    """The configured access: a kubeconfig, an endpoint, else the pod's service account.

    Single settings (`K8S_API_ENDPOINT`, `K8S_CA_FILE`, ...) win over the kubeconfig, as in Calico.
    Raises NoAccess for what can be known before the first request.
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
    return Renewing(read, inner.refused) if inner is not None else read


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
        token = content_of(account / "token", "the service account's token")
        ca = content_of(account / "ca.crt", "the service account's CA")
        return checked(Access(server, ca=ca, token=token_of(token, str(account / "token"))))

    read()
    return read


def _settled(config: DatastoreConfig, below: Access | None) -> Access:
    """The single settings over a kubeconfig's, or alone."""
    below = below or Access("")
    ca, cert, key = below.ca, below.cert, below.key
    if config.k8s_ca_file:
        ca = content_of(Path(config.k8s_ca_file), "K8S_CA_FILE")
    if config.k8s_cert_file or config.k8s_key_file:
        cert = content_of(Path(config.k8s_cert_file), "K8S_CERT_FILE")
        key = content_of(Path(config.k8s_key_file), "K8S_KEY_FILE")
    own = token_of(config.k8s_token.encode(), "k8sAPIToken")
    return checked(
        replace(
            below,
            server=config.k8s_api_endpoint or below.server,
            ca=ca,
            cert=cert,
            key=key,
            token=own or below.token,
            scheme="Bearer" if own else below.scheme,
            insecure=below.insecure or _insecure(config),
        )
    )


def _insecure(config: DatastoreConfig) -> bool:
    text = config.k8s_insecure
    return bool(text) and parsing.flag(config.name("k8s_insecure"), text)
