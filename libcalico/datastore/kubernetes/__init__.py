"""The datastore on the Kubernetes API: Calico's custom resources, and Kubernetes' own objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from libcalico import parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.kubernetes.store import TOGETHER, KubernetesDatastore
from libcalico.errors import InvalidValue
from libcalico.kubernetes import access
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import NoAccess

GROUP = "crd.projectcalico.org/v1"
TIMEOUT = 10.0
"""Seconds: what an API that is busy may take for a page."""


def opened(config: DatastoreConfig, environ: Mapping[str, str]) -> KubernetesDatastore:
    """The datastore that a configuration names. No traffic yet: the first call connects.

    Raises NoAccess when nothing says where the API is, InvalidValue for another API group.
    """
    if config.api_group not in ("", GROUP):
        raise InvalidValue(config.name("api_group"), config.api_group, f"must be {GROUP}")
    try:
        source = way_to_api(config, environ)
    except NoAccess as problem:
        raise NoAccess(
            f"datastoreType kubernetes: {problem}; for etcd set DATASTORE_TYPE=etcdv3 and"
            " ETCD_ENDPOINTS (etcdEndpoints in calicoctl.cfg)"
        ) from None
    timeout = max(config.timeout, TIMEOUT)
    client = Client(source, timeout=timeout, idle=TOGETHER)
    return KubernetesDatastore(client, pod_cidr=_flag(config, "use_pod_cidr"))


def way_to_api(config: DatastoreConfig, environ: Mapping[str, str]) -> access.Source:
    """The address and credentials of the API. Raises NoAccess where none are configured."""
    return access.find(_with_home(config, environ), environ)


def client_of(config: DatastoreConfig, environ: Mapping[str, str]) -> Client:
    """A client of the API for questions beside the datastore's. Raises NoAccess where none is
    configured.
    """
    return Client(way_to_api(config, environ), timeout=max(config.timeout, TIMEOUT))


def _flag(config: DatastoreConfig, attribute: str) -> bool:
    text = getattr(config, attribute)
    return bool(text) and parsing.flag(config.name(attribute), text)


def _with_home(config: DatastoreConfig, environ: Mapping[str, str]) -> DatastoreConfig:
    """The configuration, with kubectl's default kubeconfig where nothing else is named
    (docs/reference/data-model.md#calicoctls-configuration).
    """
    named = config.kubeconfig or config.kubeconfig_inline or config.k8s_api_endpoint
    home = Path(environ.get("HOME") or "/nonexistent") / ".kube" / "config"
    if named or environ.get("KUBERNETES_SERVICE_HOST") or not home.is_file():
        return config
    return replace(config, kubeconfig=str(home))
