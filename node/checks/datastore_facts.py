"""The facts about the datastore that the checks read: endpoints, certificates, nodes, pools.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from libcalico.model.keys import IPNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate in a file, or the one that an endpoint serves."""

    source: str
    subject: str = ""
    issuer: str = ""
    not_before: datetime | None = None
    not_after: datetime | None = None
    names: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One etcd endpoint: the result of connecting to it, and its clock."""

    url: str
    host: str
    error: str = ""
    certificate: Certificate | None = None
    verify_error: str = ""
    clock: datetime | None = None
    asked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherNode:
    """A Node of the datastore: name, and addresses with their masks."""

    name: str
    ipv4: str = ""
    ipv6: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool. One that is `disabled` may still hold pods, or just mark a network."""

    name: str
    cidr: IPNetwork
    encapsulation: str = ""
    cross_subnet: bool = False
    disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The datastore; `configured` False: no endpoint is set, so it was not asked."""

    configured: bool = False
    config_error: str = ""
    error: str | None = None
    """Empty if it answered, else the error; None if it was not asked."""
    milliseconds: float = 0.0
    endpoints: tuple[Endpoint, ...] = ()
    files: tuple[Certificate, ...] = ()
    file_errors: tuple[str, ...] = ()
    key_modes: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[OtherNode, ...] = ()
    pools: tuple[Pool, ...] = ()
    service_ranges: tuple[IPNetwork, ...] = ()
    locked: bool = False

    @property
    def allocating(self) -> tuple[Pool, ...]:
        """The pools that give pods their addresses, so that an overlap with them hurts."""
        return tuple(pool for pool in self.pools if not pool.disabled)
