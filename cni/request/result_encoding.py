"""The JSON of a CNI result, written in every version of the specification.

There are only three shapes: *flat* (0.1.0, 0.2.0: `ip4`, `ip6`), *typed* (0.3.0 to 0.4.0: `ips`
that say their `version`) and *plain* (1.0.0, 1.1.0). Encoding never writes a key that the target
version does not know (RES-18).

Pure. Source: docs/reference/cni.md#results. Tested in `tests/cni/test_result.py` with the golden
results of 8.3.
"""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec

from cni.request.errors import CNIError, Code
from cni.request.result import (
    DNS,
    FLAT,
    NEWEST,
    SUPPORTED_VERSIONS,
    TYPED,
    Interface,
    IPConfig,
    Result,
    Route,
)


class InterfaceDocument(TypedDict, total=False):
    """An entry of `interfaces` as JSON."""

    name: str
    mac: str
    mtu: int
    sandbox: str
    socketPath: str
    pciID: str


class IPDocument(TypedDict, total=False):
    """An entry of `ips` as JSON; `version` in the typed shape alone."""

    version: str
    interface: int
    address: str
    gateway: str


class RouteDocument(TypedDict, total=False):
    """An entry of `routes` as JSON."""

    dst: str
    gw: str
    mtu: int
    advmss: int
    priority: int
    table: int
    scope: int


class FamilyDocument(TypedDict, total=False):
    """`ip4` or `ip6` of the flat shape as JSON."""

    ip: str
    gateway: str
    routes: list[RouteDocument]


class ResultDocument(TypedDict, total=False):
    """A result as JSON, in any of the three shapes."""

    cniVersion: str
    interfaces: list[InterfaceDocument]
    ips: list[IPDocument]
    routes: list[RouteDocument]
    dns: dict[str, object]
    ip4: FamilyDocument
    ip6: FamilyDocument


FAMILY_KEYS: tuple[tuple[int, Literal["ip4", "ip6"]], ...] = ((4, "ip4"), (6, "ip6"))


def encode(result: Result, version: str) -> bytes:
    """Return the JSON of `result` in `version`, with a newline.

    An empty `version` (the request had none) gives the flat shape, labelled 0.2.0 (RES-01).
    Raises CNIError 7 for a version that we do not speak, or when the flat shape cannot hold
    the result because it has no address (CNV-07).
    """
    label = version or "0.2.0"
    if label in FLAT:
        body = _flat(result, label)
    elif label in TYPED:
        body = _typed(result, label)
    elif label in SUPPORTED_VERSIONS:
        body = _plain(result, label)
    else:
        raise CNIError(
            Code.INVALID_CONFIG, f"no converter for CNI result version {NEWEST} to {label}"
        )
    return msgspec.json.encode(body) + b"\n"


def as_document(result: Result, version: str) -> ResultDocument:
    """Return the decoded JSON of `encode`, for instance as `prevResult` of the next plugin."""
    document: ResultDocument = msgspec.json.decode(encode(result, version))
    return document


def _plain(result: Result, version: str) -> ResultDocument:
    extras = version == "1.1.0"
    body: ResultDocument = {"cniVersion": version}
    if result.interfaces:
        body["interfaces"] = [_interface(i, extras) for i in result.interfaces]
    if result.ips:
        body["ips"] = [_ip(ip) for ip in result.ips]
    if result.routes:
        body["routes"] = [_route(route, extras) for route in result.routes]
    if dns := _dns(result.dns):
        body["dns"] = dns
    return body


def _typed(result: Result, version: str) -> ResultDocument:
    body = _plain(result, version)
    if result.ips:
        body["ips"] = [{"version": str(ip.address.version), **_ip(ip)} for ip in result.ips]
    body.setdefault("dns", {})
    return body


def _flat(result: Result, version: str) -> ResultDocument:
    body: ResultDocument = {"cniVersion": version}
    for family, key in FAMILY_KEYS:
        first = next((ip for ip in result.ips if ip.address.version == family), None)
        if first is None:
            continue
        entry: FamilyDocument = {"ip": str(first.address)}
        if first.gateway is not None:
            entry["gateway"] = str(first.gateway)
        routes = [_route(r, extras=False) for r in result.routes if r.dst.version == family]
        if routes:
            entry["routes"] = routes
        body[key] = entry
    if len(body) == 1:
        raise CNIError(Code.INVALID_CONFIG, "cannot convert: no valid IP addresses")
    body["dns"] = _dns(result.dns)
    return body


def _interface(interface: Interface, extras: bool) -> InterfaceDocument:
    body: InterfaceDocument = {"name": interface.name}
    if interface.mac:
        body["mac"] = interface.mac.lower()
    if extras and interface.mtu:
        body["mtu"] = interface.mtu
    if interface.sandbox:
        body["sandbox"] = interface.sandbox
    if extras and interface.socketPath:
        body["socketPath"] = interface.socketPath
    if extras and interface.pciID:
        body["pciID"] = interface.pciID
    return body


def _ip(ip: IPConfig) -> IPDocument:
    body: IPDocument = {}
    if ip.interface is not None:
        body["interface"] = ip.interface
    body["address"] = str(ip.address)
    if ip.gateway is not None:
        body["gateway"] = str(ip.gateway)
    return body


def _route(route: Route, extras: bool) -> RouteDocument:
    body: RouteDocument = {"dst": str(route.dst)}
    if route.gw is not None:
        body["gw"] = str(route.gw)
    if not extras:
        return body
    if route.mtu:
        body["mtu"] = route.mtu
    if route.advmss:
        body["advmss"] = route.advmss
    if route.priority:
        body["priority"] = route.priority
    if route.table is not None:
        body["table"] = route.table
    if route.scope is not None:
        body["scope"] = route.scope
    return body


def _dns(dns: DNS) -> dict[str, object]:
    return {key: value for key, value in msgspec.structs.asdict(dns).items() if value}
