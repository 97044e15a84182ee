"""Which addresses a service of type LoadBalancer is to have, and what that changes. Pure.

Source: docs/reference/data-model.md#addresses-of-load-balancers, #attributes-and-handles. Tested in
tests/controllers/test_service_addresses.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from controllers.mirror.objects import Service
from ipam.records.blocks import IPAddress
from ipam.records.pool_choice import is_meant
from ipam.records.pools import SERVICE, Pool, containing
from libcalico.errors import InvalidValue

CLASS = "calico"
POOLS = {4: "projectcalico.org/ipv4pools", 6: "projectcalico.org/ipv6pools"}
ADDRESSES = "projectcalico.org/loadBalancerIPs"
FAMILIES = {"IPv4": 4, "IPv6": 6}
REQUESTED_ONLY = "RequestedServicesOnly"


@dataclass(frozen=True, slots=True)
class DesiredAddresses:
    """One address of each family; `fixed` are those that were asked for by name."""

    families: tuple[int, ...]
    pools: Mapping[int, Sequence[str]]
    fixed: tuple[IPAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps: addresses to give back, to take by name, and families to choose for."""

    kept: tuple[IPAddress, ...] = ()
    release: tuple[IPAddress, ...] = ()
    take: tuple[IPAddress, ...] = ()
    choose: tuple[int, ...] = ()


def handle_of(service: str, namespace: str, uid: str) -> str:
    """The IPAM handle of a service (docs/reference/data-model.md#attributes-and-handles)."""
    digest = hashlib.sha256(f"{service}-{namespace}-{uid}".lower().encode()).digest()
    text = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return "lb-" + text.replace("-", "").replace("_", "")


def desired_addresses(service: Service, assign: str) -> DesiredAddresses | None:
    """The addresses that a service asks of us; None: it asks for none. Raises InvalidValue."""
    spec, notes = service.spec, service.metadata.annotations or {}
    asked = bool(spec.loadBalancerIP) or any(name in notes for name in (*POOLS.values(), ADDRESSES))
    chosen = spec.loadBalancerClass == CLASS or (
        not spec.loadBalancerClass and (asked or assign != REQUESTED_ONLY)
    )
    if spec.type != "LoadBalancer" or not chosen:
        return None
    families = tuple(FAMILIES[one] for one in spec.ipFamilies or ["IPv4"] if one in FAMILIES)
    pools = {family: _words(notes, name) for family, name in POOLS.items()}
    texts = _words(notes, ADDRESSES) or ([spec.loadBalancerIP] if spec.loadBalancerIP else [])
    fixed = []
    for text in texts:
        try:
            fixed.append(ip_address(text))
        except ValueError:
            raise InvalidValue(ADDRESSES, text, "must be an address") from None
    versions = [one.version for one in fixed]
    if len(set(versions)) < len(versions):
        raise InvalidValue(ADDRESSES, texts, "one address of each family at most")
    if strange := set(versions) - set(families):
        raise InvalidValue(ADDRESSES, texts, f"the service is not of family IPv{min(strange)}")
    return DesiredAddresses(families, pools, tuple(fixed))


def _words(notes: Mapping[str, str], name: str) -> list[str]:
    if name not in notes:
        return []
    try:
        words = json.loads(notes[name])
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(one, str) for one in words):
        raise InvalidValue(name, notes[name], 'must be a JSON list such as ["pool-1"]')
    return words


def steps(
    desired: DesiredAddresses | None, addresses: Iterable[IPAddress], pools: Sequence[Pool]
) -> Steps:
    """From what a service holds to what it is to hold, with as few changes as possible.

    `pools` are all there are; an address in none for this use is given back, or in one that is
    being removed and waits for its last address. A disabled one gives no new address.
    """
    holding = [pool for pool in pools if SERVICE in pool.allowed_uses and not pool.removed]
    giving = [pool for pool in holding if not pool.disabled]
    kept: dict[int, IPAddress] = {}
    release: list[IPAddress] = []
    named = {one.version: one for one in desired.fixed} if desired else {}
    for address in sorted(addresses, key=str):
        pool = containing(holding, ip_network(address))
        version = address.version
        asked = desired.pools.get(version) if desired else None
        fits = (
            desired is not None
            and pool is not None
            and version in desired.families
            and version not in kept
            and named.get(version, address) == address
            and (version in named or not asked or any(is_meant(pool, text) for text in asked))
        )
        if fits:
            kept[version] = address
        else:
            release.append(address)
    if desired is None or not giving:
        return Steps(tuple(kept.values()), tuple(release))
    missing = [family for family in desired.families if family not in kept]
    return Steps(
        tuple(kept.values()),
        tuple(release),
        tuple(named[family] for family in missing if family in named),
        tuple(family for family in missing if family not in named),
    )
