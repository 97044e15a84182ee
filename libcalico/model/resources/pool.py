"""The IPPool resource (docs/reference/data-model.md#ippool). Rules over several pools:
libcalico/pools.py.

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from ipaddress import ip_network

from libcalico.errors import InvalidValue
from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject, Condition
from libcalico.model.keys import IPNetwork

DEFAULT_BLOCK_SIZE = {4: 26, 6: 122}
"""By the version of IP: the length of a block's prefix where a pool names none."""


class IPPoolSpec(Struct, frozen=True, kw_only=True):
    """A range of addresses and how it is used. Defaults: libcalico/model/defaults.py."""

    cidr: str
    vxlanMode: str = ""
    ipipMode: str = ""
    natOutgoing: bool = False
    disabled: bool = False
    disableBGPExport: bool = False
    blockSize: int = 0
    nodeSelector: str = ""
    namespaceSelector: str = ""
    allowedUses: list[str] = []
    assignmentMode: str | None = None

    @property
    def network(self) -> IPNetwork:
        """`cidr` as a network, host bits dropped. Raises InvalidValue when it is not one."""
        try:
            return ip_network(self.cidr, strict=False)
        except ValueError:
            rule = "must be a CIDR such as 10.0.0.0/16 or fd00::/64"
            raise InvalidValue("spec.cidr", self.cidr, rule) from None


class IPPoolStatus(Struct, frozen=True):
    """Conditions, written by Calico's pool controller only."""

    conditions: list[Condition] = []


class IPPool(APIObject, frozen=True, kw_only=True):
    """A pool of addresses."""

    kind: str = always("IPPool")
    spec: IPPoolSpec
    status: IPPoolStatus | None = None
