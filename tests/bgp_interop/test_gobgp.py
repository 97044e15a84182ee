"""The twelve cases against GoBGP (see `catalogue`)."""

from __future__ import annotations

import pytest

from tests.bgp_interop.catalogue import Case, chosen
from tests.bgp_interop.fabric import Fabric
from tests.bgp_interop.gobgp import GoBgp

ROUTER = GoBgp


@pytest.mark.parametrize("case", chosen("gobgp"))
def test_gobgp(lab: Fabric, case: Case) -> None:
    """`calico-bgp` and GoBGP understand each other."""
    lab.run(case)
