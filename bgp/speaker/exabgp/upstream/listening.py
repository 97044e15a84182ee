"""One listening socket serves many peers, and none sets a limit or keeps a key for another.

Applied by `patches.apply`. Standard library and ExaBGP only. Tested in tests/bgp/test_keys.py and
test_sessions.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping

from exabgp.logger import log
from exabgp.protocol.family import AFI
from exabgp.protocol.ip import IP
from exabgp.reactor import listener, loop
from exabgp.reactor.network.error import MD5Error

from bgp.speaker.exabgp.keys import SAID as KEYLESS
from bgp.speaker.exabgp.neighbor_options import options
from bgp.speaker.exabgp.upstream.exabgp_types import (
    Address,
    Afi,
    Connection,
    Listener,
    Neighbor,
    Reactor,
)

MAX_TTL, DEFAULT_TTL = 255, -1  # -1: the kernel's own (`man 7 ip`, `man 7 ipv6`)


class _Sockets:
    """The desired listening sockets of all peers together.

    `keys`: of each family, the key of each peer. `anywhere`: the ports, each with its family, that
    are open on all addresses. `refused`: of each family, the peers whose key the kernel refused.
    `names`: ExaBGP's name of each peer, by its address.
    """

    def __init__(self) -> None:
        self.keys: dict[Afi, dict[str, tuple[str, bool]]] = {}
        self.anywhere: set[tuple[Afi, int]] = set()
        self.refused: dict[Afi, set[str]] = {}
        self.names: dict[str, str] = {}

    def configure(self, named: Mapping[str, Neighbor], served: Collection[Neighbor]) -> set[Afi]:
        """Take a configuration. Returns the families whose sockets may stay: of equal keys."""
        before, neighbors = dict(self.keys), named.values()
        self.names = {each["peer-address"].top(): name for name, each in named.items()}
        self.keys.update((family, _keys(neighbors, family)) for family in (AFI.ipv4, AFI.ipv6))
        same = {family for family in before if self.keys[family] == before[family]}
        for family in before.keys() - same:
            self.refused.pop(family, None)  # its sockets are made anew, or there are none
        self.anywhere.clear()
        self.anywhere.update(
            (each["peer-address"].afi, each["listen"])
            for each in served
            if "listen-any" in options(each)
        )
        return same

    def where(self, neighbor: Neighbor) -> Address:
        """The address to listen on for a peer."""
        family = neighbor["peer-address"].afi
        if (family, neighbor["listen"]) not in self.anywhere:
            return neighbor["md5-ip"]
        everywhere: Address = IP.create("0.0.0.0" if family == AFI.ipv4 else "::")
        return everywhere

    def all_refused(self) -> set[str]:
        """The peers whose key the kernel refused, of both families."""
        return set().union(*self.refused.values())


def keys_before_listening(sockets: _Sockets) -> None:
    """A socket has the keys (RFC 2385) of all peers before it listens.

    The kernel completes connections for it, also while this process does nothing. And the kernel
    has room for so many keys of a socket (`net.core.optmem_max`: about 150 of 20 KiB). A peer whose
    key it refuses is not let in by that socket, and is dialled still; the others are served.

    Upstream: keys are set one by one on a socket that already listens, none for its first peer; a
        key that is refused ends all listening.
    Fails without it: test_keys.py, test_at_start_keys_are_there_before_anybody_is_heard.
    Remove when: ExaBGP sets all keys before `listen`, and goes on without one.
    """
    make, set_key = listener.Listener._new_socket, listener.md5

    def make_with_keys(self: Listener, local: Address) -> socket.socket:
        opened: socket.socket = make(self, local)
        sockets.refused[local.afi] = set()
        for peer, (key, base64) in sockets.keys[local.afi].items():
            try:
                set_key(opened, peer, 0, key, base64)
            except MD5Error:
                sockets.refused[local.afi].add(peer)
        return opened

    def has_its_keys(*_: object) -> None:
        """ExaBGP's way, one peer at a time, is not needed."""

    listener.Listener._new_socket, listener.md5 = make_with_keys, has_its_keys


def least_ttl_of_a_connection() -> None:
    """The least TTL (RFC 5082) is set on the accepted connection (see also `handshake`).

    Upstream: the limit of one peer counts for the whole listening socket.
    Fails without it: test_sessions.py, test_hops.
    Remove when: ExaBGP sets it for each connection.
    """
    minimum = listener.set_accepted_ttl

    def accepted(connection: Connection, neighbor: Neighbor) -> None:
        minimum(connection, neighbor)
        if neighbor["incoming-ttl"] and connection.io is not None:
            listener.set_minimum_ttl(
                connection.io, connection.afi, connection.peer, neighbor["incoming-ttl"]
            )

    listener.set_accepted_ttl = accepted


def sockets_for_all(sockets: _Sockets) -> None:
    """The sockets are made for all peers together.

    - When a key comes, changes or goes, the socket is made anew: what waited in it for the process
      was let in under other keys.
    - Where a peer has TTL security, handshakes are answered with the greatest TTL: such a peer
      drops the SYN-ACK of a socket that leaves it at the kernel's 64.
    - The option `listen-any` listens on all addresses. Peers of the same port share that socket:
      none can be bound to an address beside it. Who may come to which address is not changed
      (`arrivals`).

    Upstream: a key is never removed; handshakes are answered with the kernel's TTL; no option
        listens on all addresses.
    Fails without it: test_keys.py, test_on_a_reload_what_came_under_other_keys_is_closed.
    Remove when: ExaBGP makes its sockets for all peers together.
    """

    def for_neighbors(self: Reactor) -> bool:
        neighbors = self.configuration.neighbors
        served = [each for each in neighbors.values() if each["listen"]]
        refused_before = sockets.all_refused()
        same = sockets.configure(neighbors, served)
        # Closed first: an address cannot be bound beside the wildcard of the same port.
        self.listener.close_unwanted(
            {
                (sockets.where(each).top(), each["listen"])
                for each in served
                if each["peer-address"].afi in same
            }
        )
        good = True
        for each in served:
            good &= self.listener.listen_on(
                *(sockets.where(each), each["peer-address"], each["listen"]),
                *(each["md5-password"], each["md5-base64"], None),
            )
        secured = {
            (sockets.where(each).top(), each["listen"]) for each in served if each["outgoing-ttl"]
        }
        for opened, (address, port, _, _) in self.listener._sockets.items():
            _set_ttl(opened, MAX_TTL if (address, port) in secured else DEFAULT_TTL)
        refused = sockets.all_refused()
        if refused != refused_before:
            message = f"{KEYLESS.decode()}{' '.join(sorted(refused))}"
            log.critical(lambda: message, "network")
        return good

    loop.Reactor._listen_for_neighbors = for_neighbors


def arrivals(sockets: _Sockets) -> None:
    """A connection is the peer's that it comes from: found by its address, beside however many.

    It comes to the peer's own address or, with the option `listen-any`, to any. One of a peer
    whose key the kernel refused is closed: the socket has no key to hold it to.

    Upstream: each connection is compared with every peer, for which addresses are made anew; and
        it is no peer's that comes to another address.
    Fails without it: test_keys.py,
        test_a_key_that_the_kernel_has_no_room_for_costs_its_peer_alone.
    Remove when: ExaBGP finds a peer by its address, and the configuration can listen on all
        addresses for one peer.
    """

    def new_connections(self: Listener) -> Iterator[None]:
        yield None
        reactor = self._reactor
        if not self.serving:
            return
        for connection in self._connected():
            if connection.local in sockets.refused.get(connection.afi, ()):
                connection.close()
                continue
            key = sockets.names.get(connection.local, "")
            peer = reactor._peers.get(key)
            if peer is not None and _is_for(peer.neighbor, connection):
                connection.peer = peer.neighbor["local-address"].top()
                listener.set_accepted_ttl(connection, peer.neighbor)
                reactor.handle_connection(key, connection)
                continue
            refusal = connection.notification(6, 3, "no session configured for the peer")
            reactor.asynchronous.schedule(connection.local, "sending notification (6,3)", refusal)

    listener.Listener.new_connections = new_connections


def _is_for(neighbor: Neighbor, connection: Connection) -> bool:
    return connection.peer == neighbor["local-address"].top() or "listen-any" in options(neighbor)


def _keys(neighbors: Collection[Neighbor], family: Afi) -> dict[str, tuple[str, bool]]:
    """The key of each peer that has one: at every port and address, for peers are told apart by
    their addresses alone."""
    return {
        each["peer-address"].top(): (each["md5-password"], each["md5-base64"])
        for each in neighbors
        if each["md5-password"] and each["peer-address"].afi == family
    }


def _set_ttl(opened: socket.socket, hops: int) -> None:
    """The TTL that the socket sends with; connections it accepts begin with it."""
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
    else:
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)


def apply() -> None:
    """From now on."""
    sockets = _Sockets()
    keys_before_listening(sockets)
    least_ttl_of_a_connection()
    sockets_for_all(sockets)
    arrivals(sockets)
