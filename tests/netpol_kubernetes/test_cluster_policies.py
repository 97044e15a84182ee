"""The conformance cases of ClusterNetworkPolicy on a real kube-apiserver, on both back ends.

They are objects of the API, and felix converts them.
"""

from __future__ import annotations

import pytest

from tests.netpol_cluster.cases import CASES, Case
from tests.netpol_cluster.houses import Houses


@pytest.mark.promise("F-72")
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(tidy: Houses, case: Case) -> None:
    case.play(tidy)
