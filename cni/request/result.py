"""The CNI result: one internal form, written and read in every version of the specification.

Inside, a result has the shape of 1.1.0 with typed addresses. Outside there are only three
shapes: *flat* (0.1.0, 0.2.0: `ip4`, `ip6`), *typed* (0.3.0 to 0.4.0: `ips` that say their
`version`) and *plain* (1.0.0, 1.1.0). Encoding never writes a key that the target version
does not know (RES-18); decoding forgives missing keys, `null` lists and unknown keys (CNV-11)
because delegates and runtimes re-serialise what they pass on.

Pure. Source: docs/reference/cni.md#results. Tested in `tests/cni/test_result.py` with the golden
results of 8.3 and round trips of random results.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

import msgspec

from cni.request.errors import CNIError, Code
from libcalico.errors import NO_DOCUMENT

SUPPORTED_VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
NEWEST = SUPPORTED_VERSIONS[-1]
FLAT = frozenset({"0.1.0", "0.2.0"})
TYPED = frozenset({"0.3.0", "0.3.1", "0.4.0"})

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface4or6 = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class Interface(msgspec.Struct, frozen=True):
    """A link that the plugin made; `sandbox` is empty on the host. MTU in bytes, 0 unset."""

    name: str
    mac: str = ""
    mtu: int = 0
    sandbox: str = ""
    socketPath: str = ""
    pciID: str = ""


class IPConfig(msgspec.Struct, frozen=True):
    """An address with its prefix length; `interface` is the 0-based index of its link."""

    address: Interface4or6
    gateway: Address | None = None
    interface: int | None = None


class Route(msgspec.Struct, frozen=True):
    """A route of the container. Unset is 0 in `mtu`, `advmss`, `priority`, None elsewhere."""

    dst: Interface4or6
    gw: Address | None = None
    mtu: int = 0
    advmss: int = 0
    priority: int = 0
    table: int | None = None
    scope: int | None = None


class DNS(msgspec.Struct, frozen=True):
    """Resolver settings, with the key names of a result (never those of the capability)."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class Result(msgspec.Struct, frozen=True):
    """What an ADD achieved, in the shape of version 1.1.0."""

    interfaces: tuple[Interface, ...] = ()
    ips: tuple[IPConfig, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: DNS = DNS()


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


def decode(document: Mapping[str, object] | bytes | str, default_version: str = "") -> Result:
    """Return the result that a plugin printed or a runtime handed over as `prevResult`.

    It is read by its own `cniVersion`, or by `default_version` when it has none (CNV-14,
    PRV-03). Raises CNIError 6 naming the key that cannot be read.
    """
    if isinstance(document, bytes | str):
        try:
            document = msgspec.json.decode(document)
        except NO_DOCUMENT as error:
            raise _unreadable("the document", str(error)) from error
    if not isinstance(document, Mapping):
        raise _unreadable("the document", "it is not an object")
    version = _text(document, "cniVersion") or default_version or "0.1.0"
    if version not in SUPPORTED_VERSIONS:
        raise CNIError(
            Code.DECODING_FAILURE, f"no converter for CNI result version {version} to {NEWEST}"
        )
    return _read_flat(document) if version in FLAT else _read_listed(document)


# Writing


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


# Reading


def _read_flat(document: Mapping[str, object]) -> Result:
    ips: list[IPConfig] = []
    routes: list[Route] = []
    for key in ("ip4", "ip6"):
        entry = _object(document, key)
        if entry:
            ips.append(IPConfig(_cidr(entry, "ip", key), _address(entry, "gateway", key), None))
            routes += [_read_route(r, f"{key}.routes") for r in _list(entry, "routes")]
    return Result((), tuple(ips), tuple(routes), _read_dns(document))


def _read_listed(document: Mapping[str, object]) -> Result:
    return Result(
        tuple(_read_interface(i) for i in _list(document, "interfaces")),
        tuple(_read_ip(ip) for ip in _list(document, "ips")),
        tuple(_read_route(route, "routes") for route in _list(document, "routes")),
        _read_dns(document),
    )


def _read_interface(entry: Mapping[str, object]) -> Interface:
    return Interface(
        name=_text(entry, "name"),
        mac=_text(entry, "mac").lower(),
        mtu=_number(entry, "mtu") or 0,
        sandbox=_text(entry, "sandbox"),
        socketPath=_text(entry, "socketPath"),
        pciID=_text(entry, "pciID"),
    )


def _read_ip(entry: Mapping[str, object]) -> IPConfig:
    return IPConfig(
        _cidr(entry, "address", "ips"),
        _address(entry, "gateway", "ips"),
        _number(entry, "interface"),
    )


def _read_route(entry: Mapping[str, object], where: str) -> Route:
    return Route(
        dst=_cidr(entry, "dst", where),
        gw=_address(entry, "gw", where),
        mtu=_number(entry, "mtu") or 0,
        advmss=_number(entry, "advmss") or 0,
        priority=_number(entry, "priority") or 0,
        table=_number(entry, "table"),
        scope=_number(entry, "scope"),
    )


def _read_dns(document: Mapping[str, object]) -> DNS:
    entry = _object(document, "dns")
    return DNS(
        nameservers=_texts(entry, "nameservers"),
        domain=_text(entry, "domain"),
        search=_texts(entry, "search"),
        options=_texts(entry, "options"),
    )


def _unreadable(where: str, why: str) -> CNIError:
    return CNIError(Code.DECODING_FAILURE, f"could not parse a CNI result: {where}: {why}")


def _object(document: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = document.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _unreadable(key, "it is not an object")
    return value


def _list(document: Mapping[str, object], key: str) -> Sequence[Mapping[str, object]]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise _unreadable(key, "it is not a list of objects")
    return value


def _text(document: Mapping[str, object], key: str) -> str:
    value = document.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _unreadable(key, "it is not a string")
    return value


def _texts(document: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _unreadable(key, "it is not a list of strings")
    return tuple(value)


def _number(document: Mapping[str, object], key: str) -> int | None:
    value = document.get(key)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _unreadable(key, "it is not an integer")
    return value


def _address(document: Mapping[str, object], key: str, where: str) -> Address | None:
    text = _text(document, key)
    if not text:
        return None
    try:
        return _unmapped(ipaddress.ip_address(text))
    except ValueError as error:
        raise _unreadable(f"{where}.{key}", f"{text!r} is not an IP address") from error


def _unmapped(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _cidr(document: Mapping[str, object], key: str, where: str) -> Interface4or6:
    text = _text(document, key)
    try:
        if "/" not in text:
            raise ValueError("no prefix length")
        interface = ipaddress.ip_interface(text)
    except ValueError as error:
        rule = f"{text!r} is not an address with a prefix length"
        raise _unreadable(f"{where}.{key}", rule) from error
    mapped = interface.ip.ipv4_mapped if isinstance(interface, ipaddress.IPv6Interface) else None
    if mapped is None or interface.network.prefixlen < 96:
        return interface
    return ipaddress.IPv4Interface((mapped, interface.network.prefixlen - 96))
