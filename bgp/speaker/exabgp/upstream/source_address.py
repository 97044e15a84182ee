"""The option `any-source`: the kernel chooses the address that we dial a peer from.

Applied by `patches.apply`. Standard library and ExaBGP only. Tested in tests/bgp/test_sessions.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import socket
from collections.abc import Iterator

from exabgp.bgp import neighbor as neighbors
from exabgp.protocol.ip import IP
from exabgp.reactor import protocol
from exabgp.reactor.network.outgoing import Outgoing

from bgp.speaker.exabgp.neighbor_options import options
from bgp.speaker.exabgp.upstream.exabgp_types import Address, Afi, Neighbor, Session


def any_source() -> None:
    """The option `any-source`: the kernel chooses the address that we dial from.

    It is the next hop then, where ours is wanted: a router takes only one on its own network
    (RFC 4271 5.1.3).

    Upstream: it binds to `local-address` always.
    Fails without it: test_sessions.py, test_source_address.
    Remove when: the configuration can leave the choice to the kernel.
    """
    own = neighbors.Neighbor.ip_self

    def ip_self(self: Neighbor, afi: Afi) -> Address:
        peer = self["peer-address"]
        if afi == peer.afi and "any-source" in options(self) and (source := _source_to(peer.top())):
            address: Address = IP.create(source)
            return address
        theirs: Address = own(self, afi)
        return theirs

    neighbors.Neighbor.ip_self = ip_self

    class FromAnywhere(Outgoing):  # type: ignore[misc]
        local: str

        def _setup(self) -> object:
            local, self.local = self.local, ""
            try:
                return super()._setup()
            finally:
                self.local = local

    def connect(self: Session) -> Iterator[bool]:
        protocol.Outgoing = FromAnywhere if "any-source" in options(self.neighbor) else Outgoing
        yield from dial(self)

    dial = protocol.Protocol.connect
    protocol.Protocol.connect = connect


def _source_to(address: str) -> str:
    """The address that the kernel would dial this one from, now; empty: it knows no way."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 179))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def apply() -> None:
    """From now on."""
    any_source()
