"""The twelve cases against FRR (see `catalogue`)."""

from __future__ import annotations

import pytest

from tests.bgp_interop.catalogue import Case, chosen
from tests.bgp_interop.fabric import Fabric
from tests.bgp_interop.frr import Frr

ROUTER = Frr


@pytest.mark.parametrize("case", chosen("frr"))
def test_frr(lab: Fabric, case: Case) -> None:
    """`calico-bgp` and FRR understand each other."""
    lab.run(case)
