"""A veth pair that a killed daemon made and did not mark any more.

The kernel takes no alias with a new link, so between the two a SIGKILL leaves a link without the
proof of ownership (CNI-14). The proof is then the whole picture, which nothing else paints: the
name that this pod's host interface has, a veth with our host MAC and no alias, and its other end
is the interface asked for, in this very namespace, never brought up. Making and marking do not
yield to the event loop, so code on the loop never sees a pair that is just being made.

Tested in tests/cni/test_faults.py (`after-made`) and tests/cni/test_orphan_veths.py.
"""

from __future__ import annotations

from linux import links
from linux.netlink import Socket, open_in_netns

HOST_MAC = "ee:ee:ee:ee:ee:ee"


def is_orphan(outer: links.Link, inner: links.Link, host_interface: str) -> bool:
    """Whether a pair is what the interrupted making of this one left. Pure."""
    return (
        (outer.name, outer.kind, outer.mac, outer.alias) == (host_interface, "veth", HOST_MAC, "")
        and outer.peer_index == inner.index
        and not inner.up
    )


def remove(host: Socket, pod: Socket, host_interface: str, ifname: str) -> bool:
    """Remove a half made pair, if this is one. Blocks for some 20 ms then; raises KernelError."""
    inner = links.get(pod, ifname)
    outer = links.get(host, inner.peer_index) if inner and inner.peer_index else None
    if inner is None or outer is None or not is_orphan(outer, inner, host_interface):
        return False
    host.transact([links.delete(outer.index)])[0].check(f"remove {host_interface}")
    return True


def remove_in(host: Socket, netns_fd: int, host_interface: str, ifname: str) -> bool:
    """The same for a namespace that only its descriptor names."""
    with open_in_netns(netns_fd) as pod:
        return remove(host, pod, host_interface, ifname)
