"""The cases against BIRD 2 (see `catalogue`)."""

from __future__ import annotations

import pytest

from tests.bgp_interop.bird import Bird
from tests.bgp_interop.catalogue import Case, chosen
from tests.bgp_interop.fabric import Fabric

ROUTER = Bird


@pytest.mark.parametrize("case", chosen("bird"))
def test_bird(lab: Fabric, case: Case) -> None:
    """`calico-bgp` and BIRD 2 understand each other."""
    lab.run(case)
