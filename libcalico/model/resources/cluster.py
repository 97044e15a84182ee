"""ClusterInformation and Tier (docs/reference/data-model.md#clusterinformation, #tier). Tested in
tests/libcalico/test_golden.py."""

from __future__ import annotations

from msgspec.structs import force_setattr

from libcalico.model.base import numorstring
from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject, Condition


class ClusterInformationSpec(Struct, frozen=True):
    """Facts of the whole cluster. `clusterType` is a comma list."""

    clusterGUID: str = ""
    clusterType: str = ""
    calicoVersion: str = ""
    datastoreReady: bool | None = None
    variant: str = ""


class ClusterInformation(APIObject, frozen=True, kw_only=True):
    """The one object named `default`."""

    kind: str = always("ClusterInformation")
    spec: ClusterInformationSpec = always(ClusterInformationSpec())


FIXED_TIERS: dict[str, tuple[int, str]] = {
    "default": (1_000_000, "Deny"),
    "kube-admin": (1_000, "Pass"),
    "kube-baseline": (10_000_000, "Pass"),
}
"""Order and default action of the tiers that every cluster has
(docs/reference/data-model.md#readiness-and-initialisation)."""


class TierSpec(Struct, frozen=True):
    """`order` None is last; `defaultAction` is Deny or Pass."""

    order: int | float | None = None
    defaultAction: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "order", numorstring.order(self.order))


class TierStatus(Struct, frozen=True):
    """Conditions."""

    conditions: list[Condition] = []


class Tier(APIObject, frozen=True, kw_only=True):
    """A tier of policies."""

    kind: str = always("Tier")
    spec: TierSpec = always(TierSpec())
    status: TierStatus = always(TierStatus())
