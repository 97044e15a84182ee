"""`bgp routes`: which node has which route, and whose routes are not known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calicoctl.routing import routes
from libcalico.errors import InvalidValue
from libcalico.model.base.meta import Metadata
from libcalico.model.resources.nodestatus import (
    CalicoNodeBGPRouteStatus,
    CalicoNodeRoute,
    CalicoNodeRouteLearnedFrom,
    CalicoNodeStatus,
    CalicoNodeStatusSpec,
    CalicoNodeStatusStatus,
)
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.status_world import NOW, ago
from tests.calicoctl.test_bgp_plan import node as node_document

NAMED = {"10.0.0.2": "n2"}


def route(prefix: str, kind: str = "FIB", peer: str = "10.0.0.2") -> CalicoNodeRoute:
    learned = CalicoNodeRouteLearnedFrom("NodeMesh", peer)
    return CalicoNodeRoute(kind, prefix, peer, "eth0", learned)


def report(node: str, *listed: CalicoNodeRoute, age: float = 5.0) -> CalicoNodeStatus:
    return CalicoNodeStatus(
        metadata=Metadata(name=f"{node}-{age}"),
        spec=CalicoNodeStatusSpec(node, ["Routes"], 0),
        status=CalicoNodeStatusStatus(
            lastUpdated=ago(age), routes=CalicoNodeBGPRouteStatus(routesV4=list(listed))
        ),
    )


TABLE = report("n1", route("10.65.1.0/26"), route("10.65.0.0/16", "RIB"), route("10.66.0.0/26"))


@pytest.mark.parametrize(("wanted", "prefixes"), [
    ("10.65.1.7", ["10.65.1.0/26", "10.65.0.0/16"]),
    ("10.65.0.0/16", ["10.65.1.0/26", "10.65.0.0/16"]),
    ("10.66.0.0/24", ["10.66.0.0/26"]),
    ("10.67.0.0/24", []),
    ("fd00::/8", []),
])  # fmt: skip
def test_routes_that_lead_there_longest_first(wanted: str, prefixes: list[str]) -> None:
    found = routes.of_reports([TABLE], ["n1"], NOW, NAMED, routes.parse_prefix(wanted))
    assert [one.prefix for one in found.routes] == prefixes


def test_a_route_names_its_peer_and_whether_the_kernel_has_it() -> None:
    found = routes.of_reports([TABLE], ["n1"], NOW, NAMED)
    first = found.routes[0]
    assert (first.prefix, first.used, first.peer) == ("10.65.0.0/16", False, "n2")
    assert "| n1   | 10.65.1.0/26 | yes  | 10.0.0.2 |" in routes.table(found)


def test_what_is_not_known_is_named() -> None:
    old = report("n2", route("10.65.1.0/26"), age=900)
    found = routes.of_reports([TABLE, old], ["n1", "n2", "n3"], NOW, NAMED)
    assert {one.node for one in found.routes} == {"n1"}
    assert found.unknown["n2"].startswith("its report of 20")
    assert found.unknown["n3"] == "it has reported no routes"
    newer = report("n2", route("10.65.2.0/26"), age=1)
    again = routes.of_reports([newer, old], ["n2"], NOW, NAMED)
    assert [one.prefix for one in again.routes] == ["10.65.2.0/26"]


@pytest.mark.parametrize("text", ["x", "10.65.0.1/16", "10.65.0.0/33", ""])
def test_a_prefix_that_is_none(text: str) -> None:
    with pytest.raises(InvalidValue, match="PREFIX"):
        routes.parse_prefix(text)


def test_the_command(ctl: Ctl) -> None:
    assert ctl("apply", "-f", "-", stdin=node_document(1)).code == 0
    done = ctl("bgp", "routes")
    assert (done.code, done.out) == (0, "No routes.\nn1: it has reported no routes\n")
    assert "--ask" in done.err
    tree: dict[str, Any] = json.loads(ctl("bgp", "routes", "--ask", "0.2", "-o", "json").out)
    assert tree == {
        "routes": [],
        "unknown": [{"node": "n1", "reason": "it has reported no routes"}],
    }
    assert ctl("bgp", "routes", "10.0.0.0/33").code == 1
