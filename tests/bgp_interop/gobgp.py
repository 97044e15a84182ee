"""GoBGP, told by a file and by its own client, which also reads the tables."""

from __future__ import annotations

import json
from typing import Any

from tests.bgp_interop.router import Learned, Neighbour, Origin, Router, Setup
from tests.support.patience import wait_for

_API = "127.0.0.1:50051"
_ORIGIN, _AS_PATH, _NEXT_HOP, _LOCAL_PREF, _COMMUNITIES = 1, 2, 3, 5, 8
_ORIGINATOR, _CLUSTERS, _MP_REACH, _LARGE = 9, 10, 14, 32


class GoBgp(Router):
    """GoBGP keeps its own routes in memory only: they are given to it after each start.

    Until then no session may come up: its End-of-RIB would say that there are none.
    """

    name = "gobgp"

    def start(self, setup: Setup, *, again: bool = False) -> None:
        path = self.write("gobgpd.json", [json.dumps(configuration(self.router_id, setup))])
        command = ["gobgpd", "-f", path, "-t", "json", "--api-hosts", _API, "--pprof-disable"]
        self.launch(*command, *(["-r"] if again else []))
        wait_for(lambda: self._gobgp("global"), "gobgpd answers")
        for origin in setup.origins:
            self._gobgp("global", "rib", "add", "-a", f"ipv{origin.version}", *_route(origin))
        for each in setup.neighbours:
            self._gobgp("neighbor", each.address, "enable")

    def table(self) -> dict[str, Learned]:
        found: dict[str, Learned] = {}
        for family in ("ipv4", "ipv6"):
            told = json.loads(self._gobgp("-j", "global", "rib", "-a", family) or "{}")
            for prefix, paths in told.items():
                if paths[0].get("neighbor-ip", "<nil>") != "<nil>":
                    found[prefix] = _learned(paths[0]["attrs"])
        return found

    def up(self, address: str) -> bool:
        told = json.loads(self._gobgp("-j", "neighbor", address) or "{}")
        return bool(told.get("state", {}).get("session_state") == 6)

    def _gobgp(self, *words: str) -> str:
        return self.tell("gobgp", *words)


def configuration(router_id: str, setup: Setup) -> dict[str, Any]:
    """The content of the configuration file."""
    return {
        "global": {"config": {"as": setup.asn, "router-id": router_id}},
        "neighbors": [_neighbour(each, setup) for each in setup.neighbours],
    }


def _neighbour(each: Neighbour, setup: Setup) -> dict[str, Any]:
    family = {
        "config": {"afi-safi-name": f"ipv{each.version}-unicast"},
        "mp-graceful-restart": {"config": {"enabled": True}},
    }
    found: dict[str, Any] = {
        "config": {"neighbor-address": each.address, "peer-as": each.asn, "admin-down": True},
        "transport": {"config": {"local-address": each.local}},
        "timers": {
            "config": {
                "hold-time": setup.hold,
                "keepalive-interval": setup.hold / 3,
                "connect-retry": 1,
                "idle-hold-time-after-reset": 1,
            }
        },
        "graceful-restart": {
            "config": {"enabled": True, "restart-time": setup.restart_time, "deferral-time": 5}
        },
        "afi-safis": [family],
    }
    if each.password:
        found["config"]["auth-password"] = each.password
    if each.ttl_security:
        found["ttl-security"] = {"config": {"enabled": True, "ttl-min": 256 - (each.hops or 1)}}
    elif each.hops:
        found["ebgp-multihop"] = {"config": {"enabled": True, "multihop-ttl": each.hops}}
    if each.client:
        reflector = {
            "route-reflector-client": True,
            "route-reflector-cluster-id": setup.cluster_id,
        }
        found["route-reflector"] = {"config": reflector}
    return found


def _route(origin: Origin) -> list[str]:
    words = [origin.prefix]
    words += ["community", ",".join(origin.communities)] if origin.communities else []
    words += ["large-community", ",".join(origin.large)] if origin.large else []
    words += ["local-pref", str(origin.local_pref)] if origin.local_pref is not None else []
    return words


def _learned(attributes: list[dict[str, Any]]) -> Learned:
    by = {each["type"]: each for each in attributes}
    segments = by.get(_AS_PATH, {}).get("as_paths") or []
    communities = by.get(_COMMUNITIES, {}).get("communities", ())
    hop = by.get(_NEXT_HOP) or by.get(_MP_REACH) or {}
    large = by.get(_LARGE, {}).get("value", ())
    return Learned(
        next_hop=hop.get("nexthop", ""),
        as_path=tuple(number for each in segments for number in each["asns"]),
        communities=frozenset(f"{each >> 16}:{each & 0xFFFF}" for each in communities),
        large=frozenset(f"{e['ASN']}:{e['LocalData1']}:{e['LocalData2']}" for e in large),
        local_pref=by.get(_LOCAL_PREF, {}).get("value"),
        originator=by.get(_ORIGINATOR, {}).get("value", ""),
        clusters=tuple(by.get(_CLUSTERS, {}).get("value", ())),
    )
