"""What does not fit into an UPDATE is not offered, and named; what is offered, arrives."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import pytest

from bgp.decide.routing import Routing
from bgp.routes import message_size
from bgp.routes.audiences import Manner, audiences
from bgp.routes.communities import Tags
from bgp.routes.export_policy import Terms
from bgp.routes.local_routes import Kind
from bgp.speaker.interface import Family, Route
from tests.bgp.make import rules
from tests.bgp.session_lab import BIRD, RAW, Lab, RawPeer, peer, route, story
from tests.support.patience import until

NET = ip_network("10.65.1.0/26")
MADE: dict[str, Callable[[int], object]] = {
    "communities": lambda number: f"64512:{number}",
    "large_communities": lambda number: f"64512:1:{number}",
    "extended_communities": lambda number: f"0x0002fc00{number:08x}",
    "as_path": lambda _: 4200000001,
    "cluster_list": lambda number: f"1.2.{number // 250}.{number % 250}",
}


def longest(field: str) -> Route:
    """A route with as many values of one attribute as may be offered."""
    made, count = MADE[field], 1

    def of(count: int) -> Route:
        return route(str(NET), **{field: tuple(map(made, range(count)))})

    while message_size.octets(of(count + 1)) <= message_size.ROOM:
        count += 1
    return of(count)


def test_the_longest_that_is_offered_arrives() -> None:
    """ExaBGP sends each of them, to peers with wide and with narrow AS numbers."""

    async def body(lab: Lab) -> None:
        wide, narrow = RawPeer(RAW[0]), RawPeer(RAW[1])
        await lab.speaker.configure([peer(each.local, passive=True) for each in (wide, narrow)])
        for each in (wide, narrow):
            await each.dial()
            await each.open(wide=each is wide)
        await until(lambda: lab.heard.up(RAW[0], RAW[1]), "both")
        for field in MADE:
            await lab.speaker.announce([longest(field)])
            for each in (wide, narrow):
                await until(lambda each=each: any(map(long, each.updates())), f"{field}")  # type: ignore[misc]
                each.messages.clear()
            await lab.speaker.announce([])
            for each in (wide, narrow):
                await until(lambda each=each: bool(each.updates()), "withdrawn")  # type: ignore[misc]
                each.messages.clear()
        await wide.close()
        await narrow.close()

    story(body)


def long(body: bytes) -> bool:
    return len(body) > 2000


def test_what_does_not_fit_is_not_offered_and_named() -> None:
    """A learned path or a filter can make it so; the condition goes with the reason."""
    routing = Routing({}, lambda _: None)
    sessions = audiences([(BIRD, Manner((Family.IPV4,), internal=True))])
    many = tuple(f"64512:{number}" for number in range(1100))
    routing.agree(Terms(sessions, tags=Tags(((ip_network("10.65.0.0/16"), many),))))
    routing.have({NET: Kind.BLOCK, ip_network("10.66.0.0/26"): Kind.BLOCK}, frozenset())
    assert {route.prefix for route in routing.routes()} == {ip_network("10.66.0.0/26")}
    ((subject, why),) = routing.conditions()
    assert subject == f"route {NET}"
    assert "4073" in why
    routing.agree(Terms(sessions, tags=Tags(((ip_network("10.65.0.0/16"), many[:9]),))))
    assert {route.prefix for route in routing.routes()} >= {NET}
    assert routing.conditions() == []


@pytest.mark.parametrize(
    ("operations", "field"),
    [
        ([{"addCommunity": {"value": "70000:1"}}], "addCommunity"),
        ([{"addCommunity": {"value": "1:2:4294967296"}}], "addCommunity"),
        ([{"prependASPath": {"prefix": [0]}}], "prependASPath"),
        ([{"prependASPath": {"prefix": [65001] * 11}}], "prependASPath"),
        ([{"prependASPath": {"prefix": []}}], "prependASPath"),
        ([{"setPriority": {"value": 2**31}}], "setPriority"),
        ([{"setPriority": {"value": 0}}], "setPriority"),
        ([{"addCommunity": {"value": "1:1"}}] * 11, "operations: 11"),
    ],
)
def test_a_filter_that_a_speaker_would_refuse_is_not_usable(
    operations: list[dict[str, Any]], field: str
) -> None:
    """FLT-2, also where the datastore holds what `calicoctl` would have refused."""
    with pytest.raises(ValueError, match=field):
        rules(exportV4=[{"action": "Accept", "operations": operations}])
