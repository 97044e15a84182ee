"""The datastore behind one interface: typed objects, guarded commits, list and watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcalico import apiconfig
from libcalico.errors import MuslinError

if TYPE_CHECKING:
    from libcalico.apiconfig import DatastoreConfig
    from libcalico.datastore.interface import Datastore


async def connect(config: DatastoreConfig) -> Datastore:
    """The datastore that `config` names. No traffic yet: the first call connects.

    Raises InvalidValue for a configuration that cannot work, MuslinError when a key or
    certificate file cannot be read. Call `close()` before the event loop ends.
    """
    config.check()
    if config.datastore_type == apiconfig.KUBERNETES:
        raise MuslinError(
            "the Kubernetes datastore is not served yet: set DATASTORE_TYPE=etcdv3 and "
            "ETCD_ENDPOINTS (or etcdEndpoints in calicoctl.cfg)"
        )
    # gRPC takes 70 ms to import: only who talks to etcd pays.
    from libcalico.datastore.etcd.store import EtcdDatastore

    return EtcdDatastore(config)
