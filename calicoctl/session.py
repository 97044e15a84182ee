"""From options to a datastore: configuration, connection, and the version gate.

Tested in `tests/calicoctl/test_commands.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec

from calicoctl import versions
from libcalico import apiconfig
from libcalico.datastore.blocking import BlockingDatastore
from libcalico.datastore.interface import Datastore
from libcalico.errors import DatastoreUnavailable, MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.process import paths, unlooped

_KUBERNETES_MEANT = ("DATASTORE_TYPE", "CALICO_DATASTORE_TYPE", "KUBERNETES_SERVICE_HOST")
"""Variables by which a Kubernetes API is meant though none is named."""
CLUSTER = ResourceKey("ClusterInformation", "default")


class Options(msgspec.Struct, frozen=True):
    """What every datastore command takes: `-c`, `--allow-version-mismatch`, `--context`."""

    config: str | None = None
    allow_version_mismatch: bool = False
    context: str = ""


@asynccontextmanager
async def datastore(
    options: Options, gate: bool = True, quiet: bool = False
) -> AsyncIterator[Datastore]:
    """The datastore of the operator's configuration, closed at the end.

    With `gate`, a cluster of another version is refused
    (docs/reference/data-model.md#calicoctls-commands). `quiet`: notices are not told. Raises
    `MuslinError` for a bad configuration and `DatastoreUnavailable` within the deadline.
    """
    config = configuration(options)
    for notice in () if quiet else config.notices:
        print(notice, file=sys.stderr)
    store: Datastore
    if unlooped.in_loop():
        from libcalico.datastore import connect

        store = await connect(config, quiet=True)
    else:
        store = BlockingDatastore(config)
    try:
        if gate and not options.allow_version_mismatch:
            await _check_version(store)
        yield store
    finally:
        await store.close()


def configuration(options: Options) -> apiconfig.DatastoreConfig:
    config = _with_default_kubeconfig(apiconfig.load(options.config, os.environ))
    if not options.context:
        return config
    if config.datastore_type == apiconfig.ETCD:
        raise MuslinError(
            f"--context {options.context}: the datastore is {apiconfig.ETCD}, which has no"
            " kubeconfig; leave --context out, or name a Kubernetes datastore"
        )
    return replace(config, k8s_context=options.context)


def _with_default_kubeconfig(config: apiconfig.DatastoreConfig) -> apiconfig.DatastoreConfig:
    """As kubectl: where nothing names a Kubernetes API, ~/.kube/config does.

    Raises `MuslinError` where nothing at all says which datastore is meant.
    """
    named = config.kubeconfig or config.kubeconfig_inline or config.k8s_api_endpoint
    if config.datastore_type != apiconfig.KUBERNETES or named:
        return config
    file = os.path.join(os.path.expanduser("~"), ".kube", "config")
    if os.path.exists(file):
        return replace(config, kubeconfig=file)
    asked = any(os.environ.get(name) for name in _KUBERNETES_MEANT)
    if config.by_environment and not asked:
        raise MuslinError(
            f"no datastore is configured: there is neither {paths.CALICOCTL_CONFIG} nor {file}, and"
            " the environment names none. For a Kubernetes cluster set KUBECONFIG; for etcd set"
            " DATASTORE_TYPE=etcdv3 and ETCD_ENDPOINTS; or name a file of settings with -c"
        )
    return config


async def cluster(store: Datastore) -> tuple[str, str]:
    """Version and type of the cluster; empty where the cluster does not say."""
    entry = await store.get(CLUSTER)
    if entry is None:
        return "", ""
    return str(entry.value.spec.calicoVersion), str(entry.value.spec.clusterType)


async def _check_version(store: Datastore) -> None:
    try:
        version, _ = await cluster(store)
    except DatastoreUnavailable:
        raise
    except MuslinError:
        # An object that cannot be read, or not by this user, says nothing about versions.
        return
    if version and comparable(version) != comparable(versions.CALICO):
        raise MuslinError(
            f"version mismatch.\nClient Version:   {versions.CALICO}\n"
            f"Cluster Version:  {version}\nUse --allow-version-mismatch to override"
        )


def comparable(version: str) -> str:
    """`v3.32.1-12-gabc` as `3.32.1`: what the version gate compares."""
    return version.removeprefix("v").partition("-")[0]
