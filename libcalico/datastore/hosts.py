"""Which addresses the datastore has: those of its endpoints and proxies as they are configured.

A Service that stands for the Kubernetes API counts by its own address, not by those behind it.
Tested in tests/libcalico/test_datastore_hosts.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address

from libcalico import apiconfig, parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.kubernetes.errors import NoAccess

Address = IPv4Address | IPv6Address

RESOLVE_SECONDS, RETRY_SECONDS = 600.0, 30.0
"""Seconds until names are resolved again; where one of them was not resolved."""


def hosts(config: DatastoreConfig, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of the endpoints, names or addresses; none where no endpoint is configured."""
    if config.datastore_type != apiconfig.KUBERNETES:
        endpoints = (*config.endpoints, *config.proxies)
        names = (parsing.address(endpoint, path=True).host for endpoint in endpoints)
        try:
            return tuple(dict.fromkeys(names))
        except ValueError:
            return ()
    from libcalico.datastore.kubernetes import way_to_api

    try:
        host, _ = way_to_api(config, environ)().address
    except (NoAccess, ValueError):
        return ()
    return (host,) if host else ()


async def addresses(names: Iterable[str]) -> AsyncIterator[frozenset[Address]]:
    """The addresses of these hosts, resolved again and again; once, where all are addresses."""
    literal, named = set(), []
    for name in names:
        try:
            literal.add(ip_address(name))
        except ValueError:
            named.append(name)
    while True:
        answers = await asyncio.gather(*map(_resolved, named))
        yield frozenset(literal.union(*answers))
        if not named:
            return
        await asyncio.sleep(RESOLVE_SECONDS if all(answers) else RETRY_SECONDS)


async def _resolved(name: str) -> set[Address]:
    addresses: set[Address] = set()
    with contextlib.suppress(OSError):
        for *_, place in await asyncio.get_running_loop().getaddrinfo(name, None):
            with contextlib.suppress(ValueError):
                addresses.add(ip_address(str(place[0])))
    return addresses
