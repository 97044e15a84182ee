"""prefixAdvertisements: names, values, per node, and what cannot be read."""

from __future__ import annotations

import pytest

from bgp.routes.communities import tags
from tests.bgp.make import net, put, view_of


@pytest.mark.promise("F-45")
def test_names_values_and_networks() -> None:
    view = view_of()
    assert tags(view).of(net("10.65.1.0/26")) == ()
    put(
        view,
        "BGPConfiguration",
        "default",
        {
            "communities": [{"name": "rack", "value": "65000:1:2"}],
            "prefixAdvertisements": [
                {"cidr": "10.65.0.0/16", "communities": ["rack", "65000:7"]},
                {"cidr": "10.65.1.0/24", "communities": ["65000:7", "65000:8"]},
                {"cidr": "fd65::/48", "communities": ["65000:9"]},
            ],
        },
    )
    found = tags(view)
    assert found.of(net("10.65.1.0/26")) == ("65000:1:2", "65000:7", "65000:8")
    assert found.of(net("10.65.2.0/26")) == ("65000:1:2", "65000:7")
    assert found.of(net("10.66.0.0/26")) == ()
    assert found.of(net("fd65::/64")) == ("65000:9",)
    own = {"prefixAdvertisements": [{"cidr": "10.65.0.0/16", "communities": ["rack"]}]}
    put(view, "BGPConfiguration", "node.n2", own)
    assert tags(view) == found
    put(view, "BGPConfiguration", "node.n1", own)
    assert tags(view).of(net("10.65.1.0/26")) == ("65000:1:2",)
    assert tags(view).of(net("fd65::/64")) == ()


def test_what_cannot_be_read_is_named() -> None:
    view = view_of()
    wrong = [
        {"cidr": "10.65/16", "communities": ["1:2"]},
        {"cidr": "10.65.0.0/16", "communities": ["who", "1:2"]},
    ]
    put(view, "BGPConfiguration", "default", {"prefixAdvertisements": wrong})
    found = tags(view)
    assert found.of(net("10.65.1.0/26")) == ("1:2",)
    assert [text.split(": ")[1] for text in found.problems] == [
        "spec.prefixAdvertisements[0].cidr",
        "spec.prefixAdvertisements[1].communities",
    ]
