"""The CNI result in one internal form: the shape of 1.1.0 with typed addresses.

`cni.request.result_encoding` writes it in every version of the specification, and
`cni.request.result_decoding` reads it.

Pure. Source: docs/reference/cni.md#results. Tested in `tests/cni/test_result.py`.
"""

from __future__ import annotations

import ipaddress

import msgspec

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
