"""UPDATEs are not decoded in ExaBGP's process: the body goes to the agent as it came.

That is a fifth of the work of decoding, printing JSON and parsing it (`bgp.speaker.wire`). Errors
are handled by RFC 7606 as one pure function with tests, and no crafted message meets ExaBGP's
parsers.

Applied by `patches.apply`. Standard library and ExaBGP only. Tested in tests/bgp/test_hostile.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Callable

from exabgp.bgp.message import Message, Update
from exabgp.bgp.message.direction import Direction
from exabgp.bgp.message.update.attribute.attributes import Attributes
from exabgp.protocol.family import AFI, SAFI
from exabgp.reactor.api import processes

from bgp.speaker.exabgp.upstream.exabgp_types import (
    Negotiated,
    Neighbor,
    Processes,
    RawUpdate,
)


def raw_updates() -> None:
    """A received UPDATE becomes the line `update PEER FLAGS HEX` of the API process.

    FLAGS: `4` four-octet AS numbers, `a` and `A` several paths for an IPv4 and IPv6 prefix,
    `-` none of them.

    Upstream: an UPDATE is decoded, printed as JSON, and parsed by us again.
    Fails without it: test_sessions.py, test_attributes_in_and_several_paths.
    Remove when: ExaBGP can hand over the body alone, with what the OPENs agreed on.
    """
    whole = Update.unpack_message.__func__
    nothing = Attributes()

    def unpack(
        cls: Callable[[list[object], object], RawUpdate],
        data: bytes,
        direction: int,
        negotiated: Negotiated,
    ) -> object:
        if direction != Direction.IN:
            return whole(cls, data, direction, negotiated)
        update = cls([], nothing)
        flags = "4" * bool(negotiated.asn4)
        flags += "a" * bool(negotiated.addpath.receive(AFI.ipv4, SAFI.unicast))
        flags += "A" * bool(negotiated.addpath.receive(AFI.ipv6, SAFI.unicast))
        update.line = f"{flags or '-'} {bytes(data).hex()}"
        return update

    def tell(
        self: Processes, neighbor: Neighbor, direction: str, update: RawUpdate, *_: object
    ) -> None:
        line = f"update {neighbor['peer-address']} {update.line}"
        for process in self._notify(neighbor, f"{direction}-{Message.CODE.UPDATE.SHORT}"):
            self.write(process, line, neighbor)

    Update.unpack_message = classmethod(unpack)
    processes.Processes._dispatch[Message.CODE.UPDATE] = tell


def apply() -> None:
    """From now on."""
    raw_updates()
