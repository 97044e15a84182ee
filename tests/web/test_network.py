"""The map."""

from __future__ import annotations

from tests.web import world
from web.views.network import Network, Tile, network, rack_label
from web.views.state import State


def tile(shown: Network, name: str) -> Tile:
    """A node on the map."""
    return next(one for rack in shown.racks for one in rack.tiles if one.name == name)


def test_racks_by_the_label_that_is_there() -> None:
    facts = world.facts()
    shown = network(facts)
    assert rack_label(facts) == "rack"
    assert [(rack.title, [one.name for one in rack.tiles]) for rack in shown.racks] == [
        ("rack: a", ["n1", "n2"]),
        ("rack: b", ["n3"]),
    ]
    assert [rack.title for rack in network(facts, "zone").racks] == ["no zone"]


def test_states_in_words() -> None:
    shown = network(world.facts())
    assert tile(shown, "n1").reflector == "224.0.0.1"
    assert tile(shown, "n2").state is State.WARNING
    assert "1 of 2 sessions up, 1 condition" in tile(shown, "n2").text
    assert tile(shown, "n3").state is State.DOWN
    (router,) = shown.others
    assert (router.name, router.state, router.node) == ("10.99.0.254", State.DOWN, False)


def test_a_line_says_why_it_is_down() -> None:
    lines = {(one.near, one.far): one for one in network(world.facts()).lines}
    assert lines["n2", "10.99.0.254"].state is State.DOWN
    assert "port 179 refuses connections" in lines["n2", "10.99.0.254"].text
    assert any(one.state is State.UP for ends, one in lines.items() if set(ends) == {"n1", "n2"})
