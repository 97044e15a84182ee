"""Every setting of a peering reaches its session; passwords and filters that lack refuse it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from bgp.cluster.view import ClusterView
from bgp.peering import peering
from bgp.peering.passwords import Passwords, SecretRef
from bgp.peering.peering import Plan, Settings
from bgp.peering.planned import PlannedPeer
from bgp.routes.audiences import NextHop
from tests.bgp.make import node, put, view_of

TOR = {"peerIP": "10.0.0.254", "asNumber": 64500}
SECRET = {"secretKeyRef": {"name": "tor", "key": "key"}}
KNOWN = Passwords({SecretRef("tor", "key"): "canary-pass"})


def plan(view: ClusterView, passwords: Passwords | None = None) -> Plan:
    return peering.plan(view, Settings(), passwords)


def tor(view: ClusterView, passwords: Passwords | None = None, **spec: Any) -> PlannedPeer:
    """The session with the router, which has these settings."""
    put(view, "BGPPeer", "tor", {**TOR, **spec})
    found = {str(each.peer.address): each for each in plan(view, passwords).peers}
    return found["10.0.0.254"]


@pytest.mark.promise("F-49")
@pytest.mark.promise("F-50")
def test_settings_of_a_peer() -> None:
    view = view_of()
    assert tor(view).peer.keepalive == 0
    assert tor(view, keepaliveTime="7s").peer.keepalive == 7
    assert tor(view, ttlSecurity=2).peer.ttl_security == 2
    assert tor(view, localASNumber=65010).peer.local_as == 65010
    assert tor(view, numAllowedLocalASNumbers=2).allowed_local_as == 2
    assert not tor(view, sourceAddress="UseNodeIP").peer.any_source
    assert tor(view, sourceAddress="None").peer.any_source
    assert tor(view, reachableBy="10.0.0.253").reachable_by == ip_address("10.0.0.253")
    assert tor(view, keepOriginalNextHop=True).next_hop is NextHop.KEEP_EXTERNAL
    assert tor(view, nextHopMode="Self").next_hop is NextHop.SELF
    assert tor(view, asNumber="1.2").peer.remote_as == 65538


@pytest.mark.promise("F-57")
def test_where_this_node_listens() -> None:
    view = view_of()
    assert not tor(view).peer.listen_any
    put(view, "BGPConfiguration", "default", {"bindMode": "NodeIP", "listenPort": 1790})
    assert not tor(view).peer.listen_any
    assert tor(view).peer.listen_port == 1790
    put(view, "BGPConfiguration", "default", {"bindMode": "None"})
    assert tor(view).peer.listen_any


@pytest.mark.promise("F-41")
def test_passwords() -> None:
    """PWD-1; a password stands in no text of the plan."""
    view = view_of()
    secured = tor(view, KNOWN, password=SECRET)
    assert secured.peer.password == "canary-pass"
    assert "canary" not in repr(plan(view, KNOWN))
    without = plan(view)
    assert "10.0.0.254" not in {str(each.peer.address) for each in without.peers}
    (refused,) = without.refused
    assert refused.reason == "spec.password: key 'key' of Secret 'tor': not found"
    assert without.secrets == {SecretRef("tor", "key")}
    optional = {"secretKeyRef": {"name": "tor", "key": "key", "optional": True}}
    assert tor(view, password=optional).peer.password == ""
    assert tor(view, KNOWN, password=optional).peer.password == "canary-pass"


@pytest.mark.promise("PAIN-17")
def test_the_mesh_has_a_password_or_is_not_held() -> None:
    view = view_of()
    put(view, "BGPConfiguration", "default", {"nodeMeshPassword": SECRET})
    assert {each.peer.password for each in plan(view, KNOWN).peers} == {"canary-pass"}
    assert plan(view).peers == ()
    assert "spec.nodeMeshPassword" in plan(view).refused[0].reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("numAllowedLocalASNumbers", -1),
        *(("reachableBy", special) for special in ("0.0.0.0", "127.0.0.1", "224.0.0.1", "fd00::1")),
    ],
)
def test_a_setting_that_would_shut_everything_out_is_refused(field: str, value: object) -> None:
    """It may have been stored past the validators; the session would be up, and take nothing."""
    view = view_of()
    put(view, "BGPPeer", "tor", {**TOR, field: value})
    (refused,) = plan(view).refused
    assert f"spec.{field}: {value} is not valid" in refused.reason


@pytest.mark.promise("F-44")
def test_filters_must_exist_and_be_readable() -> None:
    view = view_of()
    put(view, "BGPPeer", "tor", {**TOR, "filters": ["a", "b"]})
    assert plan(view).refused[0].reason == "spec.filters: there is no BGPFilter 'a'"
    put(view, "BGPFilter", "a", {"exportV4": [{"action": "Reject"}]})
    put(view, "BGPFilter", "b", {"importV6": [{"action": "Accept", "cidr": "10.0.0.0/8"}]})
    assert "BGPFilter(b): spec.importV6[0].cidr" in plan(view).refused[0].reason
    put(view, "BGPFilter", "b", {})
    assert tor(view, filters=["a", "b"]).filters == ("a", "b")


@pytest.mark.promise("F-39")
@pytest.mark.promise("M-128")
def test_a_reflector_and_its_clients() -> None:
    view = view_of(4)
    node(view, 3, routeReflectorClusterID="1.0.0.1", labels={"rr": "yes"})
    node(view, 4, routeReflectorClusterID="1.0.0.1", labels={"rr": "yes"})
    put(view, "BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
    put(view, "BGPPeer", "rr", {"peerSelector": "rr == 'yes'"})
    put(view, "BGPPeer", "router", {"node": "n3", "peerIP": "10.0.0.254", "asNumber": 64512})
    put(view, "BGPPeer", "outside", {"node": "n3", "peerIP": "10.0.0.253", "asNumber": 64500})
    view.me = "n3"
    clients = {str(each.peer.address): each.client for each in plan(view).peers}
    assert clients == {
        "10.0.0.1": True,
        "10.0.0.2": True,
        "10.0.0.4": False,  # of our own cluster
        "10.0.0.253": False,  # another AS
        "10.0.0.254": True,
    }
    assert {each.own_cluster for each in plan(view).peers} == {"1.0.0.1"}
    view.me = "n1"
    assert [(each.node, each.client) for each in plan(view).peers] == [("n3", False), ("n4", False)]
