"""What a test leaves on the node is taken away and named, so that no other test fails by it."""

from __future__ import annotations

from tests.cri.client import Wish
from tests.cri.test_sandboxes import POLICY
from tests.cri.world import World

NOT_NOW = {"cniVersion": "1.0.0", "code": 7, "msg": "not now"}


def test_what_a_test_leaves_is_taken_away_and_named(node: World) -> None:
    pod = node.cri.run(Wish("left"))
    node.calls.fail("DEL", "portmap", NOT_NOW)
    node.apply(POLICY.format(action="Deny"))
    assert node.take_away() == [
        "a failing plugin DEL-portmap", f"sandbox {pod.id}", "networkpolicies front",
    ]  # fmt: skip
    node.assert_clean()
    assert node.take_away() == []


def test_what_cannot_be_taken_away_is_named_once(node: World) -> None:
    stays = node.node.path("/run/netns/stays")
    stays.touch()
    try:
        assert node.take_away(limit=1.0) == ["/run/netns/stays"]
        node.assert_clean()
    finally:
        stays.unlink()
