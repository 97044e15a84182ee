"""IP-in-IP devices, and whether this kernel has them at all.

The kernel's module makes `tunl0` in every namespace when it is loaded, unless
`net.core.fb_tunnels_only_for_init_net` says otherwise (kernel documentation, sysctl/net); so
a request for it may find it made meanwhile. It unwraps all that comes and wraps towards the next
hop.
Tested in tests/linux/test_ipip.py, with a kernel that has it in tests/uml.
"""

from __future__ import annotations

from errno import EAFNOSUPPORT, EEXIST, ENODEV, EOPNOTSUPP

from linux import links
from linux.errors import KernelError
from linux.link_values import Link
from linux.netlink.socket import Socket

KIND = "ipip"
DEVICE = "tunl0"
LACKING = frozenset({EOPNOTSUPP, EAFNOSUPPORT, ENODEV})
"""Errors by which a kernel says that it has no such kind of device."""


def ensure(sock: Socket) -> Link | None:
    """`tunl0` of the socket's namespace, made if it is not there; None: the kernel lacks IPIP.

    Raises `KernelError` for any other refusal.
    """
    link = links.get(sock, DEVICE)
    if link is not None:
        return link
    (result,) = sock.transact([links.create(DEVICE, KIND)])
    if result.errno in LACKING:
        return None
    if result.errno != EEXIST:
        result.check(f"make {DEVICE}")
    link = links.get(sock, DEVICE)
    if link is None:
        raise KernelError(ENODEV, f"make {DEVICE}", "it vanished at once")
    return link
