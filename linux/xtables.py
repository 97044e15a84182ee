"""Which parts of xtables the kernel has: rules of iptables need them, `iptables-nft`'s too.

A distribution may leave xtables and ip_set out while the programs still come with an image (RHEL
10): `iptables-nft -m set` then fails at its first rule. nft_compat answers which matches there
are, without a rule being made. Source: linux/netfilter/nf_tables_compat.h.
Tested in tests/linux/test_xtables.py.
"""

from __future__ import annotations

import errno
from socket import AF_INET

from linux.netlink import wire as m
from linux.netlink.socket import NETLINK_NETFILTER, Socket

_GET = 11 << 8
_NAME, _REVISION, _TYPE = 1, 2, 3
_MATCH = 0
_ABSENT = frozenset(
    # EINVAL: there is no nft_compat; the others: no such match, or none of this revision.
    {errno.EINVAL, errno.ENOENT, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.EPROTOTYPE}
)


def has_match(name: str, revision: int) -> bool:
    """Whether rules of iptables may use a match, such as ("set", 4), through nf_tables.

    Its module is loaded if there is one. Raises `KernelError` where that cannot be found out.
    """
    header = bytes((AF_INET, 0, 0, 0))
    body = header + m.text(_NAME, name)
    for kind, number in ((_REVISION, revision), (_TYPE, _MATCH)):
        body += m.attribute(kind, number.to_bytes(4, "big"))
    with Socket(family=NETLINK_NETFILTER) as socket:
        result = socket.transact([m.message(_GET, 0, body)])[0]
    if result.errno in _ABSENT:
        return False
    return result.check(f"look for the xtables match {name}").ok
