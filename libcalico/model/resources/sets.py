"""NetworkSet and GlobalNetworkSet (docs/reference/data-model.md#networkset): labelled networks for
selectors.

Tested in tests/libcalico/test_golden.py and tests/libcalico/test_policy_model.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject


class NetworkSetSpec(Struct, frozen=True):
    """Networks and addresses of either family; bits behind the mask may be set."""

    nets: list[str] = []


class NetworkSet(APIObject, frozen=True, kw_only=True):
    """A set of one namespace; selected like its endpoints."""

    kind: str = always("NetworkSet")
    spec: NetworkSetSpec = always(NetworkSetSpec())


class GlobalNetworkSet(APIObject, frozen=True, kw_only=True):
    """A set that lies in no namespace."""

    kind: str = always("GlobalNetworkSet")
    spec: NetworkSetSpec = always(NetworkSetSpec())
