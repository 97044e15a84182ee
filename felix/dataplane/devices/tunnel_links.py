"""What the view of the kernel says of a tunnel's links: addresses and the routes into them. Pure.

Tested in tests/felix/dataplane/test_tunnel_settings.py and, with a kernel, test_vxlan.py.
"""

from __future__ import annotations

from ipaddress import IPv4Interface, IPv6Interface

from felix.calc.nodes import IPAddress
from felix.dataplane.devices.view import KernelView
from linux.links import Link


def holder(view: KernelView, address: IPAddress) -> Link | None:
    """The link that has an address of this node."""
    for name, own in view.host_interfaces().items():
        if address in own:
            return view.link_named(name)
    return None


def addresses_of(view: KernelView, link: Link) -> list[IPv4Interface | IPv6Interface]:
    """The addresses of a link that are more than link-local."""
    return [
        address.interface
        for (index, _), address in view.addresses.items()
        if index == link.index and not address.interface.ip.is_link_local
    ]


def takes(view: KernelView, tunl0: Link) -> bool:
    """Whether IP-in-IP has not been given up here yet (`felix.dataplane.devices.tunnels`)."""
    ours = tunl0.inet("rp_filter") == 0 or bool(addresses_of(view, tunl0))
    return tunl0.up and ours


def used_by_routes(view: KernelView, index: int) -> bool:
    """Whether a route of ours leads into a link."""
    return any(hop.oif == index for route in view.own.values() for hop in route.next_hops)
