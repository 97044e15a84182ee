"""The datastore behind one interface: typed objects, guarded commits, list and watch."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from libcalico import apiconfig, parsing
from libcalico.process import paths

if TYPE_CHECKING:
    from libcalico.apiconfig import DatastoreConfig
    from libcalico.datastore.interface import Datastore

UNHURRIED = 0.01
"""Seconds by which events may be late for a process that follows what seldom changes."""


async def connect(
    config: DatastoreConfig, *, quiet: bool = False, gather: float = 0.0
) -> Datastore:
    """The datastore that `config` names. No traffic yet: the first call connects.

    `gather`: seconds by which its watches may be late where that is cheaper (`Deferring`).
    Logs the notices of the configuration, unless `quiet`: then the caller shows them.
    Raises InvalidValue for a configuration that cannot work, CertificateProblem when a key or
    certificate file is of no use. Call `close()` before the event loop ends.
    """
    if not quiet and config.notices:
        import logging

        for notice in config.notices:
            logging.getLogger(__name__).warning("%s", notice)
    config.check()
    if config.datastore_type == apiconfig.KUBERNETES:
        from libcalico.datastore.kubernetes import opened

        return opened(config, os.environ)
    # gRPC takes 70 ms to import: only a process that talks to etcd pays.
    from libcalico.datastore.etcd.store import EtcdDatastore

    return EtcdDatastore(config, gather, _node_name(os.environ) if config.proxies else "")


def _node_name(environ: Mapping[str, str]) -> str:
    """The name by which this node's processes choose the same proxy: any that is its own."""
    stored = parsing.text_of(paths.NODENAME).strip()
    return environ.get("NODENAME") or stored or socket.gethostname().lower()
