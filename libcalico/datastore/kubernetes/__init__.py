"""The datastore on the Kubernetes API: Calico's custom resources, and Kubernetes' own objects."""

from __future__ import annotations

from collections.abc import Mapping

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.kubernetes.store import TOGETHER, KubernetesDatastore
from libcalico.errors import InvalidValue
from libcalico.kubernetes import access
from libcalico.kubernetes.client import Client

GROUP = "crd.projectcalico.org/v1"
YES = ("true", "1", "t", "yes")


def opened(config: DatastoreConfig, environ: Mapping[str, str]) -> KubernetesDatastore:
    """The datastore that a configuration names. No traffic yet: the first call connects.

    Raises NoAccess when nothing says where the API is, InvalidValue for another API group.
    """
    if config.api_group not in ("", GROUP):
        raise InvalidValue("calicoAPIGroup", config.api_group, f"must be {GROUP}")
    client = Client(access.find(config, environ), timeout=config.timeout, idle=TOGETHER)
    return KubernetesDatastore(client, pod_cidr=config.use_pod_cidr.lower() in YES)
