"""The twelve cases against OpenBGPD (see `catalogue`)."""

from __future__ import annotations

import pytest

from tests.bgp_interop.catalogue import Case, chosen
from tests.bgp_interop.fabric import Fabric
from tests.bgp_interop.openbgpd import OpenBgpd

ROUTER = OpenBgpd


@pytest.mark.parametrize("case", chosen("openbgpd"))
def test_openbgpd(lab: Fabric, case: Case) -> None:
    """`calico-bgp` and OpenBGPD understand each other."""
    lab.run(case)
