"""STL-1: who is answered before its link and its routes are there, and who is not."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from ipaddress import ip_address, ip_network

from felix import ROUTE_METRIC
from felix.calc.endpoints import Endpoint, IPAddress
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.in_force import InForce
from felix.dataplane.routes.own_routes import pod_route
from felix.dataplane.routes.routes import RouteTable
from felix.dataplane.turn.state import State
from linux.routes import NextHop, Route
from tests.felix.dataplane.test_dataplane_parts import BOTH, ETH0, POD, endpoint, view

ONE = endpoint("10.0.0.1", interface="cali1")
ADDRESS, NETWORK = ip_address("10.0.0.1"), ip_network("10.0.0.1/32")


class Judge:
    """Everything is as for a pod that lacks its link alone; `ruled` with something changed."""

    def __init__(self, kernel: KernelView | None = None) -> None:
        self.view, self.routes, self.state = kernel or view(ETH0), RouteTable(), State()
        self.settled = InForce(self.state, self.view, self.routes)
        self.active: dict[str, Endpoint] = {"cali1": ONE}

    def ruled(self, held: Set[IPAddress] = frozenset(), **changed: object) -> bool:
        self.routes.want_local(self.active, frozenset(), self.view, BOTH)
        given = {
            "judged": {"cali1"}, "families": BOTH, "floating": {}, "unfit": (),
            "rules_written": True, "about": None,
        }  # fmt: skip
        self.settled.settle(self.active, **{**given, **changed})  # type: ignore[arg-type]
        assert not self.state.in_force.keys() & self.state.ruled.keys()
        return self.settled.ruled(ONE.key, held) is not None

    def lacking(self) -> list[str]:
        found = self.settled.ruled(ONE.key, frozenset())
        assert found is not None
        assert found[0] is ONE
        return found[1]


def test_a_pod_without_its_link_is_ruled_and_its_routes_are_named() -> None:
    judge = Judge()
    assert judge.ruled()
    assert judge.lacking() == ["10.0.0.1/32"]
    assert judge.ruled(floating={"cali1": (ip_network("10.0.0.9/32"),)})
    assert judge.lacking() == ["10.0.0.1/32", "10.0.0.9/32"]
    assert judge.ruled(families=frozenset({6}))
    assert judge.lacking() == []


def test_nobody_is_ruled_without_rules() -> None:
    judge = Judge()
    assert not judge.ruled(judged=set())
    assert not judge.ruled(rules_written=False)
    assert not judge.ruled(unfit={"cali1": "no"})


def test_who_lacks_a_link_is_ruled_as_soon_as_the_rules_stand() -> None:
    def told(judge: Judge, judged: Set[str] = frozenset({"cali1"})) -> bool:
        found = judge.settled.settle_new(judge.active, judged, BOTH, {}, ["cali1", "cali9"])
        assert found in ([ONE.key], [])
        return bool(found) and judge.settled.ruled(ONE.key, frozenset()) is not None

    judge = Judge()
    assert not told(judge, frozenset())
    assert told(judge)
    assert judge.lacking() == ["10.0.0.1/32"]
    assert not told(Judge(view(ETH0, replace(POD, name="cali1")))), "its link may lack something"
    claimed = Judge(view(ETH0, replace(POD, name="cali9")))
    claimed.active["cali9"] = endpoint("10.0.0.1", interface="cali9")
    assert not told(claimed), "as another has its address since this very turn"


def test_an_address_that_is_held_or_anothers_makes_it_wait() -> None:
    judge = Judge()
    assert not judge.ruled(held={ADDRESS})
    assert judge.settled.withheld
    assert judge.ruled()
    foreign = Judge()
    route = Route(NETWORK, (NextHop(None, 2),), protocol=4, metric=ROUTE_METRIC)
    foreign.view.foreign[route.key] = route
    assert not foreign.ruled()
    claimed = Judge(view(ETH0, replace(POD, name="cali2")))
    claimed.active["cali2"] = endpoint("10.0.0.1", interface="cali2")
    assert not claimed.ruled()


def test_with_link_and_routes_it_is_in_force_until_one_of_them_goes() -> None:
    judge = Judge(view(ETH0, replace(POD, name="cali1")))
    assert judge.ruled(), "up, but without its route"
    route = pod_route(NETWORK, POD.index)
    judge.routes.saw({route.key: route})
    assert not judge.ruled()
    assert judge.state.in_force == {ONE.key: ONE}
    assert not judge.ruled(about={"cali1"}, rules_written=False), "what it held is still there"
    assert judge.state.in_force == {ONE.key: ONE}
    judge.routes.saw({route.key: None})
    assert judge.ruled(about={"cali1"})
    assert not judge.state.in_force
    judge.active = {}
    assert not judge.ruled(about={"cali1"})
