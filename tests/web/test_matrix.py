"""The matrix says of each pair of groups what the explain engine says of their pods."""

from __future__ import annotations

import pytest

from felix.explain.flow import kind_of
from libcalico.errors import InvalidValue
from tests.support.explain_world import DB, pod, policy, profile, questions, shop
from web.views.matrix import OUTSIDE, WITHOUT, Asked, labels_of, matrix

DATABASE = Asked(port=5432)


def test_namespaces_and_the_deciding_rule() -> None:
    shown = matrix(shop(DB), DATABASE)
    assert shown.groups == ("lab", "shop", OUTSIDE)
    cell = shown.cells["lab", "shop"]
    assert (cell.allowed, cell.total, cell.sign) == (2, 3, "◐")
    denied = shown.decisions["lab", "shop"][0]
    assert not denied.allowed
    assert denied.decided == "ingress: end of tier default: no policy of it allows the packet"
    assert (denied.source, denied.destination) == ("lab/guest", "shop/db-0")
    inner = {one.decided: one for one in shown.decisions["shop", "shop"]}
    allowed = inner["ingress: tier default, NetworkPolicy shop/db, ingress[2]"]
    assert '"selector":"role == \'web\'"' in allowed.rule
    assert shown.cells["shop", "shop"].total == 3 * 2


def test_by_a_label() -> None:
    world = shop(DB)
    shown = matrix(world, Asked(by="role", port=5432))
    assert {"web", "db", WITHOUT, OUTSIDE} == set(shown.groups)
    assert shown.cells["web", "db"].word == "all allowed"
    assert shown.cells[WITHOUT, "db"].word == "all denied"
    assert "role" in labels_of(world)


def test_every_cell_is_the_sum_of_what_explain_says_of_its_pairs() -> None:
    world = shop(
        DB,
        policy("guests", "role == 'web'", "shop", types=["Egress"], order=5,
               egress=[{"action": "Deny", "destination": {"namespaceSelector": "all()"}}]),
        profile("bare"),
        pod("bare/x", 30, "node2"),
    )  # fmt: skip
    kind = kind_of(6, 4, port=5432)
    titles = ["shop/web-0", "shop/web-1", "shop/db-0", "lab/guest", "bare/x"]
    expected: dict[tuple[str, str], list[int]] = {}
    for source in titles:
        for destination in titles:
            if source == destination:
                continue
            allowed = questions(world, source, destination).ask(kind, 4).allowed
            ends = (source.partition("/")[0], destination.partition("/")[0])
            told = expected.setdefault(ends, [0, 0])
            told[0] += allowed
            told[1] += 1
    shown = matrix(world, DATABASE)
    inside = {
        ends: [cell.allowed, cell.total]
        for ends, cell in shown.cells.items()
        if OUTSIDE not in ends
    }
    assert inside == expected


def test_what_was_not_asked_in_time_is_said() -> None:
    assert matrix(shop(DB), DATABASE, lambda: True).left > 0
    assert matrix(shop(DB), DATABASE).left == 0


def test_an_annotation_with_a_secret_stays_here() -> None:
    rule = {
        "action": "Allow",
        "metadata": {"annotations": {"password": "canary"}},
        "source": {"selector": "role == 'web'"},
    }
    open_to_web = policy("db", "role == 'db'", "shop", types=["Ingress"], ingress=[rule])
    assert "canary" not in str(matrix(shop(open_to_web), DATABASE))


@pytest.mark.parametrize(
    "asked", [Asked(protocol="x"), Asked(port=70000), Asked(version=5), Asked("role", "icmp", 80)]
)
def test_bad_questions_name_the_field(asked: Asked) -> None:
    with pytest.raises(InvalidValue):
        matrix(shop(), asked)
