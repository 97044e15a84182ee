"""What Calico refuses is refused: each document with field path, value and rule."""

from __future__ import annotations

import pytest
import yaml

from libcalico.model.kinds import KINDS
from tests.libcalico.documents import (
    Refused,
    Taken,
    bgp,
    complaints,
    nodes,
    policies,
    pools,
    system,
)

MODULES = (bgp, nodes, policies, pools, system)
REFUSED: list[Refused] = [one for module in MODULES for one in module.REFUSED]
TAKEN: list[Taken] = [one for module in MODULES for one in module.TAKEN]


@pytest.mark.parametrize("case", [*REFUSED, *nodes.REPORTED], ids=lambda case: case.id)
def test_refused_with_path_and_rule(case: Refused) -> None:
    errors = complaints(case.text)
    assert [one.field for one in errors] == [case.path], [str(one) for one in errors]
    assert case.rule in errors[0].rule
    assert case.path in str(errors[0])


def test_there_are_enough_of_them_and_every_kind_has_some() -> None:
    kinds = {str(yaml.safe_load(case.text)["kind"]) for case in REFUSED}
    assert kinds == set(KINDS)
    assert len(REFUSED) >= 150
    assert len({case.id for case in REFUSED}) == len(REFUSED)


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.id)
def test_not_refused_more_than_calico_does(case: Taken) -> None:
    assert [str(one) for one in complaints(case.text)] == []
