"""Values of the status keys: life signs of felix and of calico-node, and the endpoints' states.

Source: docs/reference/data-model.md#status-keys; `LifeSign` is ours alone. The bytes of a real
Calico are held in tests/libcalico/test_etcd_keys.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct


class FelixStatus(Struct, frozen=True, omit_defaults=False):
    """felix's life sign: when it was written (RFC 3339), uptime in seconds, first of this life.

    Go writes a whole number without a fraction: give such an uptime as `int`.
    """

    time: str = ""
    uptime: int | float = 0
    first_update: bool = False


class LifeSign(Struct, frozen=True, omit_defaults=False):
    """calico-node's life sign: which machine lives under a node's name.

    `bootID` is the kernel's, `network` the inode of the network namespace (nodes may share a
    kernel). `host` and `addresses` are for a reader alone. `interval`: seconds until it is written
    again, at the latest. `keptAlive`: seconds until its lease is kept alive again; 0 where each
    write has another lease.
    """

    time: str = ""
    bootID: str = ""
    network: int = 0
    host: str = ""
    addresses: list[str] = []
    interval: float = 0
    keptAlive: float = 0


class EndpointStatus(Struct, frozen=True, omit_defaults=False):
    """The state of an endpoint: up, down or error."""

    status: str = ""
