"""The HostEndpoint resource (docs/reference/data-model.md#hostendpoint): an interface of a node,
seen by policy.

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from libcalico.model.base import numorstring
from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject


class EndpointPort(Struct, frozen=True, kw_only=True):
    """A name for a port, for the rules of policy."""

    name: str = always("")
    protocol: int | str = always("TCP")
    port: int = always(0)

    def __post_init__(self) -> None:
        if isinstance(self.protocol, str) and self.protocol.isdigit():
            force_setattr(self, "protocol", numorstring.protocol(self.protocol))


class HostEndpointSpec(Struct, frozen=True):
    """Where it is: a node and an interface (`*`: all), or the addresses to find it by."""

    node: str = ""
    interfaceName: str = ""
    expectedIPs: list[str] = []
    profiles: list[str] = []
    ports: list[EndpointPort] = []


class HostEndpoint(APIObject, frozen=True, kw_only=True):
    """An interface of a node."""

    kind: str = always("HostEndpoint")
    spec: HostEndpointSpec = always(HostEndpointSpec())
