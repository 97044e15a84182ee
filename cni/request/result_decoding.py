"""A CNI result read from JSON, in any version of the specification.

Decoding forgives missing keys, `null` lists and unknown keys (CNV-11), because delegates and
runtimes re-serialise what they pass on.

Pure. Source: docs/reference/cni.md#results. Tested in `tests/cni/test_result.py` with round trips
of random results.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

import msgspec

from cni.request.errors import CNIError, Code
from cni.request.result import (
    DNS,
    FLAT,
    NEWEST,
    SUPPORTED_VERSIONS,
    Address,
    Interface,
    Interface4or6,
    IPConfig,
    Result,
    Route,
)
from libcalico.errors import NO_DOCUMENT


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
