"""Policy rules as profiles and policies share them (docs/reference/data-model.md#networkpolicy).

Since v3.32 an empty `source` or `destination` is not written; before, `{}` was. Both
read as the same empty `EntityRule`. Decoding makes ports and protocols canonical. Text that is no
port, no protocol or no action stays: `validate.problems` names it, and the enforcing code sees
that there was one.
Tested in tests/libcalico/test_policy_model.py and tests/libcalico/test_validate_policy.py.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from libcalico.model.base import numorstring
from libcalico.model.base.base import Struct, always


class ServiceMatch(Struct, frozen=True):
    """The endpoints of a Kubernetes Service."""

    name: str = ""
    namespace: str = ""


class ServiceAccountMatch(Struct, frozen=True):
    """Endpoints by their service account."""

    names: list[str] = []
    selector: str = ""


class EntityRule(Struct, frozen=True):
    """One side of a connection."""

    nets: list[str] = []
    selector: str = ""
    namespaceSelector: str = ""
    services: ServiceMatch | None = None
    ports: list[int | str] = []
    notNets: list[str] = []
    notSelector: str = ""
    notPorts: list[int | str] = []
    serviceAccounts: ServiceAccountMatch | None = None

    def __post_init__(self) -> None:
        if self.ports:
            force_setattr(self, "ports", [_port(port) for port in self.ports])
        if self.notPorts:
            force_setattr(self, "notPorts", [_port(port) for port in self.notPorts])


def _port(value: int | str) -> int | str:
    try:
        return numorstring.port(value)
    except ValueError:
        return value


ANY = EntityRule()


class ICMPFields(Struct, frozen=True):
    """ICMP type and code."""

    type: int | None = None
    code: int | None = None


class HTTPPath(Struct, frozen=True):
    """A path that is equal to `exact` or begins with `prefix`; one of the two."""

    exact: str = ""
    prefix: str = ""


class HTTPMatch(Struct, frozen=True):
    """Methods and paths of HTTP."""

    methods: list[str] = []
    paths: list[HTTPPath] = []


class RuleMetadata(Struct, frozen=True):
    """Annotations of a rule, for people and logs."""

    annotations: dict[str, str] = {}


class Rule(Struct, frozen=True, kw_only=True):
    """Allow, Deny, Log or Pass the packets that match every set field."""

    action: str = always("")
    ipVersion: int | None = None
    protocol: int | str | None = None
    icmp: ICMPFields | None = None
    notProtocol: int | str | None = None
    notICMP: ICMPFields | None = None
    source: EntityRule = ANY
    destination: EntityRule = ANY
    http: HTTPMatch | None = None
    metadata: RuleMetadata | None = None

    def __post_init__(self) -> None:
        for side in ("source", "destination"):
            if getattr(self, side) == ANY:
                force_setattr(self, side, ANY)
        for name in ("protocol", "notProtocol"):
            value = getattr(self, name)
            if isinstance(value, str) and value.isascii() and value.isdigit():
                # "6" is 6; a number out of range is left to the validator.
                force_setattr(self, name, int(value))
