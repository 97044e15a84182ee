"""From a deep link to a view."""

from __future__ import annotations

import pytest

from libcalico.errors import InvalidValue
from tests.web import world
from web.pages.shown import LONGEST, VIEWS, asked_of, taken
from web.views.matrix import Asked

BY_PATH = {view.path: view for view in VIEWS}


def shown(path: str, **query: str) -> str:
    """The view at a path."""
    show = BY_PATH[path].show
    assert show is not None
    return str(show(world.facts(), query))


def test_keys_and_paths_are_all_different() -> None:
    assert len({view.key for view in VIEWS}) == len({view.path for view in VIEWS}) == 6


def test_deep_links() -> None:
    assert "Node n2" in shown("/map", node="n2")
    assert "There is no node n9" in shown("/map", node="n9")
    assert "Block 10.65.0.0/26" in shown("/addresses", find="10.65.0.1")
    assert "No block holds 1.2.3.4" in shown("/addresses", find="1.2.3.4")
    assert "There is no pool x" in shown("/addresses", pool="x")
    assert "10.66.0.0/30" not in shown("/addresses", pool="pods")
    assert "who decides" in shown("/policy", source="lab", destination="shop", port="5432")
    assert "is not valid" in shown("/policy", port="x")
    assert "is not valid" in shown("/starts", command="X")


def test_what_a_matrix_is_asked() -> None:
    assert asked_of({}) == Asked()
    assert asked_of({"protocol": "icmp", "port": "80"}) == Asked(protocol="icmp", port=None)
    assert asked_of({"protocol": "udp", "port": "53", "version": "6", "by": "role"}) == Asked(
        "role", "udp", 53, 6
    )
    for wrong in ({"port": "-1"}, {"version": "5"}, {"protocol": "nope", "port": ""}):
        with pytest.raises(InvalidValue):
            asked_of(wrong)


def test_only_what_a_view_takes_is_looked_at() -> None:
    given = {"node": "n" * 5000, "evil": "x", "by": ""}
    assert taken(BY_PATH["/map"], given) == {"node": "n" * LONGEST}
