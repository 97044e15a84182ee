"""The 24 conformance cases of ClusterNetworkPolicy (network-policy-api v0.2), on both back ends.

13 of the Admin tier, 11 of the Baseline tier; through the conversion, etcd and two real felix
processes into iptables-nft and into nftables (48 items), judged by packets.
"""

from __future__ import annotations

import time

import pytest

from tests.netpol_cluster.cases import CASES, Case
from tests.netpol_cluster.houses import Houses


def test_the_suite_is_whole() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) == 24
    assert sum(name.startswith("CNPAdminTier") for name in names) == 13


@pytest.mark.promise("F-72")
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(clean: Houses, case: Case) -> None:
    begun = time.monotonic()
    case.play(clean)
    print(f"{time.monotonic() - begun:.2f} s")
