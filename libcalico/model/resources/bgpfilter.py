"""The BGPFilter resource (docs/reference/data-model.md#bgpfilter): rules for the routes that
nodes send to peers and accept from them.

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject
from libcalico.model.base.numorstring import ASNumber, as_number


class BGPFilterPrefixLength(Struct, frozen=True):
    """Lengths of prefixes, both ends included; None: as the CIDR says."""

    min: int | None = None
    max: int | None = None


class BGPFilterCommunityMatch(Struct, frozen=True):
    """The community that a route must carry; the list holds one value."""

    values: list[str] = always([])


class BGPFilterAddCommunity(Struct, frozen=True):
    """Tag the route with a standard (`aa:nn`) or large (`aa:nn:mm`) community."""

    value: str | None = always(None)


class BGPFilterPrependASPath(Struct, frozen=True):
    """Put these AS numbers, in this order, before the path."""

    prefix: list[ASNumber] = always([])

    def __post_init__(self) -> None:
        force_setattr(self, "prefix", [as_number(number) for number in self.prefix])


class BGPFilterSetPriority(Struct, frozen=True):
    """The kernel's route metric."""

    value: int | None = always(None)


class BGPFilterOperation(Struct, frozen=True):
    """A change to an accepted route: exactly one member is set."""

    addCommunity: BGPFilterAddCommunity | None = None
    prependASPath: BGPFilterPrependASPath | None = None
    setPriority: BGPFilterSetPriority | None = None


class BGPFilterRule(Struct, frozen=True, kw_only=True):
    """Accept or reject the routes that match every set field."""

    cidr: str = ""
    prefixLength: BGPFilterPrefixLength | None = None
    source: str = ""
    interface: str = ""
    matchOperator: str = ""
    peerType: str = ""
    communities: BGPFilterCommunityMatch | None = None
    asPathPrefix: list[ASNumber] = []
    priority: int | None = None
    action: str = always("")
    operations: list[BGPFilterOperation] = []

    def __post_init__(self) -> None:
        if self.asPathPrefix:
            force_setattr(self, "asPathPrefix", [as_number(number) for number in self.asPathPrefix])


class BGPFilterSpec(Struct, frozen=True):
    """Rules by direction and family; the first that matches decides."""

    exportV4: list[BGPFilterRule] = []
    importV4: list[BGPFilterRule] = []
    exportV6: list[BGPFilterRule] = []
    importV6: list[BGPFilterRule] = []


class BGPFilter(APIObject, frozen=True, kw_only=True):
    """A named list of rules that BGPPeers refer to."""

    kind: str = always("BGPFilter")
    spec: BGPFilterSpec = always(BGPFilterSpec())
