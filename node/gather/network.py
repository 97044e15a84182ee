"""Facts about addresses and routes, and the address that this machine would choose.

Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_interface
from pathlib import Path

from libcalico.errors import MuslinError
from linux import links, routes
from linux.netlink import Socket
from node.checks.datastore_facts import OtherNode
from node.checks.facts import Choice, HostRoute, NetLink, Network
from node.identity import autodetect, interfaces
from node.identity.autodetect import IPAddress
from node.settings.environment import AddressSetting, Settings


def read(settings: Settings | None, environ: Mapping[str, str], mtu_file: Path) -> Network:
    """The facts of this namespace. `settings` None: the environment is wrong, so none is chosen."""
    own_interfaces = tuple(interfaces.read())
    with Socket() as sock:
        kernel_links = links.dump(sock)
        kernel_routes = routes.dump(sock, table=routes.TABLE_MAIN)
    names = {link.index: link.name for link in kernel_links}
    return Network(
        interfaces=own_interfaces,
        links=tuple(
            NetLink(name=one.name, mtu=one.mtu, kind=one.kind, up=one.up) for one in kernel_links
        ),
        routes=tuple(
            HostRoute(dst=one.dst, interface=names.get(one.oif, ""), protocol=one.protocol)
            for one in kernel_routes
            if one.type == "unicast" and not one.dst.is_link_local and not one.dst.is_multicast
        ),
        address_settings={4: settings.ipv4, 6: settings.ipv6} if settings else {},
        backend=settings.backend if settings else "bird",
        router_id=environ.get("CALICO_ROUTER_ID", ""),
        pod_mtu=_mtu(mtu_file),
    )


def _mtu(file: Path) -> int | None:
    try:
        return int(file.read_text().strip()) or None
    except (OSError, ValueError):
        return None


def mtu_of_configuration(folder: Path) -> int | None:
    """The `mtu` of our plugin in the first configuration that has one above zero."""
    for file in sorted(folder.glob("*.conf*")):
        try:
            tree = json.loads(file.read_text())
            plugins = tree.get("plugins", [tree])
            sizes = [one.get("mtu") for one in plugins if one.get("type") == "calico"]
        except (OSError, ValueError, AttributeError):
            continue
        for size in sizes:
            if isinstance(size, int) and size > 0:
                return size
    return None


def choose(
    network: Network,
    own: OtherNode | None,
    others: Sequence[OtherNode],
    internal: Sequence[IPAddress] = (),
) -> dict[int, Choice]:
    """The choice of each family in use, and the source towards another node.

    `internal`: this node's InternalIPs in Kubernetes, as for start-up.
    """
    choices = {}
    for version, setting in network.address_settings.items():
        if setting.mode == "none" or network.backend == "none":
            continue
        stored = own and (own.ipv4 if version == 4 else own.ipv6)
        if not setting.mode:
            # Unset: IPv4 is detected once and then kept; IPv6 is not used.
            if stored:
                choices[version] = _described(
                    network, version, stored, "stored in the Node, and IP is not set", others
                )
                continue
            if version == 6:
                continue
        choices[version] = _choice(network, version, setting, others, internal)
    return choices


def _choice(
    network: Network,
    version: int,
    setting: AddressSetting,
    others: Sequence[OtherNode],
    internal: Sequence[IPAddress],
) -> Choice:
    try:
        choice = autodetect.choose(
            setting, version, network.interfaces, interfaces.source_towards, internal
        )
    except MuslinError as error:
        return Choice(error=str(error))
    if choice is None:
        return Choice(error=f"no IPv{version} address was found by {setting.method}")
    return _described(network, version, str(choice.address), choice.why, others)


def _described(
    network: Network, version: int, address: str, why: str, others: Sequence[OtherNode]
) -> Choice:
    ip = ip_interface(address).ip
    holder = next(
        (
            one.name
            for one in network.interfaces
            if any(candidate.ip == ip for candidate in one.addresses)
        ),
        "",
    )
    peer = next((text for one in others if (text := one.ipv4 if version == 4 else one.ipv6)), "")
    peer = str(ip_interface(peer).ip) if peer else ""
    source = interfaces.source_towards(peer, version) if peer else None
    return Choice(
        address=address,
        why=why,
        interface=holder,
        source_to_peers=str(source) if source else "",
        peer=peer,
    )
