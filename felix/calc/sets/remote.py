"""Other nodes' endpoints, straight from stored bytes into the columns of the sets.

Of a quarter of a million endpoints all but two hundred are other nodes': of them policy needs
labels, profiles, addresses and named ports, so only those are decoded, and neither bytes nor
objects are kept. What was stored is remembered as a number (`stamp`), so a listing that is begun
anew costs a look at each.

Invariants:
  REM-1  An endpoint that came as a row and one that came as an object are the same item.
Tested in tests/felix/calc/policy/test_rows.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Mapping, Sequence

import msgspec

from felix.calc.labels import LONGEST_ACCOUNT, ORCHESTRATOR_LABEL, named_ports
from felix.calc.sets.items import host_members
from felix.calc.sets.places import EndpointPlaces
from felix.calc.sets.population import Members, Ports
from felix.calc.sets.set_table import SetTable
from libcalico.errors import NO_DOCUMENT, InvalidValue
from libcalico.model import ResourceKey, WorkloadEndpoint, codec
from libcalico.model.resources.endpoint import WorkloadEndpointPort
from libcalico.policy_selectors import NAMESPACE_LABEL, SERVICE_ACCOUNT_LABEL

MOST_PORTS = 10_000
"""Different lists of ports that are kept once."""


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True, gc=False):
    node: str = ""
    orchestrator: str = ""
    serviceAccountName: str = ""
    ipNetworks: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    ports: tuple[WorkloadEndpointPort, ...] = ()


class Reduced(msgspec.Struct, frozen=True, gc=False):
    """What policy needs of an endpoint, at the places where a `WorkloadEndpoint` has it."""

    metadata: _Metadata
    spec: _Spec = _Spec()


decode = msgspec.json.Decoder(Reduced).decode
"""From stored bytes; raises NOT_PLAIN."""
NOT_PLAIN = (*NO_DOCUMENT, ValueError)
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_plain = re.compile(rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}/32").fullmatch
"""One IPv4 address as everybody spells it."""


def whole(key: ResourceKey, raw: bytes) -> WorkloadEndpoint:
    """The endpoint. Raises InvalidValue, and nothing else."""
    try:
        value: WorkloadEndpoint = codec.decode_value(key, raw)
    except NOT_PLAIN as problem:
        raise InvalidValue("$", "...", f"must be JSON: {problem}", str(key)) from None
    return value


class RemoteEndpoints:
    """Rows of other nodes' endpoints, by `namespace/name`; `places` has the node of each.

    `numbers` has the number of every item by name, `stamps` by number what it was put with;
    `local` are the names of this node's endpoints.
    """

    def __init__(
        self,
        sets: SetTable,
        places: EndpointPlaces,
        local: Container[Hashable],
        say: Callable[[ResourceKey, str], None],
    ) -> None:
        self._sets, self._population = sets, sets.population
        self._places, self.local, self._say = places, local, say
        self.numbers: Mapping[Hashable, int] = sets.population.numbers
        self.stamps: Sequence[int] = sets.population.stamps
        self.count = 0
        self._troubled: set[str] = set()
        self._ports: dict[Ports, Ports] = {}

    def put(
        self, name: str, number: int | None, value: Reduced | WorkloadEndpoint, stamp: int
    ) -> int:
        """Add or change another node's endpoint. Returns its number; `number`: the one so far."""
        namespace = name.partition("/")[0]
        spec = value.spec
        labels = value.metadata.labels
        labels[NAMESPACE_LABEL] = namespace
        labels[ORCHESTRATOR_LABEL] = spec.orchestrator
        account = spec.serviceAccountName
        if 0 < len(account) <= LONGEST_ACCOUNT:
            labels[SERVICE_ACCOUNT_LABEL] = account
        networks = spec.ipNetworks
        members: Members
        if len(networks) == 1 and _plain(networks[0]):
            members = networks[0][:-3]
            if self._troubled:
                self._tell(name, "")
        else:
            texts, trouble = host_members(networks)
            members = texts[0] if len(texts) == 1 else texts
            self._tell(name, trouble)
        ports: Ports = self._shared(named_ports(value.spec.ports)) if spec.ports else ()
        profiles = tuple(spec.profiles)
        population = self._population
        before: Members = ()
        if number is not None:
            before = population.members_of[number]
        else:
            self.count += 1
        if number is None and not self._sets.following:
            label_set = population.label_sets.intern(labels, profiles)
            number = population.put(name, label_set, members, ports, stamp)
        else:
            number = self._sets.put_row(name, number, labels, profiles, members, ports, stamp)
        self._places.put(number, spec.node, before)
        return number

    def remove(self, name: str) -> None:
        """Remove another node's endpoint, if it exists."""
        self._tell(name, "")
        self.count -= name in self.numbers
        before = self._places.members(name)
        self._sets.remove(name)
        self._places.left(before)

    def _tell(self, name: str, trouble: str) -> None:
        if trouble or name in self._troubled:
            (self._troubled.add if trouble else self._troubled.discard)(name)
            namespace, _, own = name.partition("/")
            self._say(ResourceKey("WorkloadEndpoint", own, namespace), trouble)

    def _shared(self, ports: Ports) -> Ports:
        if len(self._ports) >= MOST_PORTS:
            self._ports.clear()
        return self._ports.setdefault(ports, ports)
