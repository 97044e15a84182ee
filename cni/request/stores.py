"""The datastore as a network configuration names it, compared with the daemon's.

Calico's plugin opens the datastore that its configuration names. Ours asks the daemon, whose
connection is open already, so these keys are a claim: a configuration that names another store
would have pods recorded where its author does not look for them, and is refused with both names.
The key, certificate and CA files that it names must be usable, although the daemon's own are used.

Two lists of etcd endpoints name one store when they have a member in common.
Source: docs/reference/data-model.md#cni-configuration, conformance CAL-06, CAL-08. Tested in
tests/cni/test_stores.py.
"""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import msgspec

from cni.request.errors import CNIError, Code
from cni.request.kubernetes_access import HOST, on_host
from cni.request.reader import Document, Reader
from libcalico import parsing
from libcalico.apiconfig import ETCD, DatastoreConfig
from libcalico.errors import CertificateProblem

PORT = 2379
FILES = {"key_file": "etcd_key_file", "cert_file": "etcd_cert_file", "ca_file": "etcd_ca_cert_file"}
KEYS = frozenset(
    {
        "datastore_type",
        "etcd_endpoints",
        "etcd_authority",
        "etcd_discovery_srv",
        *FILES.values(),
    }
)


class NamedStore(msgspec.Struct, frozen=True):
    """What the configuration says. `endpoints` as they are written, by comma."""

    type: str = ""
    endpoints: str = ""
    discovery_srv: str = ""
    key_file: str = ""
    cert_file: str = ""
    ca_file: str = ""


NOTHING = NamedStore()


def named_store(read: Reader, document: Document) -> NamedStore:
    """The store that a configuration names; NOTHING when it names none, as ours does."""
    if KEYS.isdisjoint(document) or not any(document.get(key) for key in KEYS):
        return NOTHING
    endpoints = read.text(document, "etcd_endpoints")
    authority = read.text(document, "etcd_authority")
    srv = read.text(document, "etcd_discovery_srv")
    if authority and not endpoints and not srv:
        endpoints = f"{read.text(document, 'etcd_scheme') or 'http'}://{authority}"
    return NamedStore(
        read.text(document, "datastore_type"),
        endpoints,
        srv,
        **{name: read.text(document, key) for name, key in FILES.items()},
    )


class StoreCheck:
    """Compares with the daemon's own; None: it is not known, as in a test."""

    def __init__(self, ours: DatastoreConfig | None, host: Path = HOST) -> None:
        self._ours, self._host = ours, host
        self._good: tuple[object, ...] = ()

    def __call__(self, named: NamedStore) -> None:
        """Raise CNIError 7 for another store, naming both, and for files that are of no use."""
        if named is NOTHING:
            return
        if self._ours is not None:
            self._compare(named, self._ours)
        self._check_files(named)

    def _compare(self, named: NamedStore, ours: DatastoreConfig) -> None:
        kind = named.type or (ETCD if named.endpoints or named.discovery_srv else "")
        if kind and kind != ours.datastore_type:
            raise _other("datastore_type", kind, ours)
        if ours.datastore_type != ETCD:
            return
        if named.endpoints and ours.endpoints:
            members = named.endpoints.split(",")
            if not set(map(_member, members)) & set(map(_member, ours.endpoints)):
                given = ",".join(_without_credentials(member) for member in members)
                raise _other("etcd_endpoints", given, ours)
        elif named.discovery_srv and named.discovery_srv != ours.discovery_srv:
            raise _other("etcd_discovery_srv", named.discovery_srv, ours)

    def _check_files(self, named: NamedStore) -> None:
        seen: list[object] = []
        here: dict[str, str] = {}
        for name, key in FILES.items():
            path = getattr(named, name)
            if not path:
                continue
            file = on_host(path, self._host)
            try:
                status = file.stat()
            except OSError as problem:
                raise CNIError(
                    Code.INVALID_CONFIG, f"{key} cannot be read: {path}: {problem.strerror}"
                ) from None
            if not status.st_size:
                raise CNIError(Code.INVALID_CONFIG, f"{key} cannot be used: {path}: it is empty")
            seen.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
            here[name] = str(file)
        if not seen or tuple(seen) == self._good:
            return
        from libcalico.datastore.pem import settle

        try:
            settle(
                DatastoreConfig(
                    key_file=here.get("key_file", ""),
                    cert_file=here.get("cert_file", ""),
                    ca_file=here.get("ca_file", ""),
                )
            )
        except CertificateProblem as problem:
            raise CNIError(
                Code.INVALID_CONFIG, f"etcd files of the configuration: {problem}"
            ) from None
        self._good = tuple(seen)


def _other(key: str, value: str, ours: DatastoreConfig) -> CNIError:
    place = (
        ",".join(map(_without_credentials, ours.endpoints))
        or ours.discovery_srv
        or ours.k8s_api_endpoint
    )
    own = f"{ours.datastore_type} at {place}" if place else ours.datastore_type
    return CNIError(
        Code.INVALID_CONFIG,
        f"{key} names another datastore than this node's calico-cni uses: {value!r} is not {own}",
        "remove the key, or make both the same",
    )


def _without_credentials(endpoint: str) -> str:
    """An endpoint without what may stand before `@`."""
    scheme, separator, rest = endpoint.strip().rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _member(endpoint: str) -> tuple[str, int]:
    text = endpoint.strip()
    try:
        parsed = parsing.address(text if "://" in text else f"http://{text}", PORT)
        host, port = parsed.host.rstrip("."), parsed.port
    except ValueError:
        return text, 0
    if host == "localhost":
        return "loopback", port
    try:
        address = ip_address(host)
    except ValueError:
        return host, port
    return "loopback" if address.is_loopback else str(address), port
