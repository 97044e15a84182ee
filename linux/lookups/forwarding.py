"""How this host would send on a packet that comes in: route, or the kernel's refusal.

Other than `linux.routes.lookup` this asks as for a packet that arrives: with its source and its
interface, so that reverse path filters, rules and blackholes answer as they would for the packet.
Tested in tests/linux/test_forwarding.py.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from ipaddress import ip_address
from socket import AF_INET

from linux.netlink import wire as m
from linux.netlink.socket import Socket
from linux.route_messages import MESSAGE, RTA_DST, RTA_MARK, decode
from linux.route_values import Route
from linux.rtnl import RTM_GETROUTE, IPAddress, family_of

_RTA_SRC, _RTA_IIF, _RTA_OIF, _RTA_GATEWAY = 2, 3, 4, 5
_LOOKUP_TABLE, _FIB_MATCH = 0x1000, 0x2000


@dataclass(frozen=True, slots=True)
class Decision:
    """`route` with the prefix that matched; `error`: the errno of a refusal, 0 where there is none.

    `gateway` is the next hop that was chosen, None where the destination is on the link.
    """

    route: Route | None
    error: int = 0
    gateway: IPAddress | None = None
    oif: int = 0


def decide(
    sock: Socket, source: IPAddress | None, destination: IPAddress, *, iif: int = 0, mark: int = 0
) -> Decision:
    """What happens to a packet; without `iif` to one that the host itself sends.

    Refusals: ENETUNREACH, EHOSTUNREACH, EACCES (prohibit), EINVAL (blackhole), EXDEV (no reverse
    path).
    """
    chosen = _ask(sock, source, destination, iif, mark, 0)
    # Newer kernels say EINVAL also where only the source is refused (6.18; older ones: EXDEV).
    refused = chosen.error == errno.EINVAL and iif
    if refused and not _ask(sock, None, destination, 0, mark, 0).error:
        return Decision(None, errno.EXDEV)
    if chosen.error:
        return chosen
    flags = _FIB_MATCH | (_LOOKUP_TABLE if family_of(destination) == AF_INET else 0)
    matched = _ask(sock, source, destination, iif, mark, flags)
    return Decision(matched.route or chosen.route, 0, chosen.gateway, chosen.oif)


def _ask(
    sock: Socket, source: IPAddress | None, destination: IPAddress, iif: int, mark: int, flags: int
) -> Decision:
    full = destination.max_prefixlen
    length = full if source is not None else 0
    body = MESSAGE.pack(family_of(destination), full, length, 0, 0, 0, 0, 0, flags)
    body += m.attribute(RTA_DST, destination.packed)
    if source is not None:
        body += m.attribute(_RTA_SRC, source.packed)
    if iif:
        body += m.u32(_RTA_IIF, iif)
    if mark:
        body += m.u32(RTA_MARK, mark)
    result = sock.transact([m.message(RTM_GETROUTE, 0, body)])[0]
    if result.errno or not result.answers:
        return Decision(None, result.errno or errno.ENETUNREACH)
    answer = result.answers[0][1]
    attributes = m.parse_attributes(answer, MESSAGE.size)
    gateway, oif = attributes.get(_RTA_GATEWAY), attributes.get(_RTA_OIF, b"")
    return Decision(
        decode(answer), 0, ip_address(gateway) if gateway else None, m.as_uint(oif) if oif else 0
    )
