"""FRR: zebra and bgpd as their own user, told by files and asked by vtysh."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

from tests.bgp_interop.router import Learned, Neighbour, Router, Setup
from tests.support.patience import wait_for

DAEMONS = "/usr/lib/frr"


class Frr(Router):
    """bgpd needs zebra to know which next hops can be reached."""

    name = "frr"

    def start(self, setup: Setup, *, again: bool = False) -> None:
        files = {
            "zebra": self.write("zebra.conf", ["hostname router"]),
            "bgpd": self.write("bgpd.conf", configuration(self.router_id, setup)),
        }
        for path in (self.directory, *files.values()):
            shutil.chown(str(path), "frr", "frr")
        for daemon, path in files.items():
            (self.directory / f"{daemon}.vty").unlink(missing_ok=True)
            private = ["--vty_socket", str(self.directory), "-z", f"{self.directory}/zserv.api"]
            private += ["-i", f"{self.directory}/{daemon}.pid", "-P", "0", "-f", path]
            graceful = ["-K", str(setup.restart_time)] if daemon == "zebra" else []
            self.launch(f"{DAEMONS}/{daemon}", *private, *graceful, "--log", "stdout")
            wait_for((self.directory / f"{daemon}.vty").exists, "its socket")

    def table(self) -> dict[str, Learned]:
        found: dict[str, Learned] = {}
        for version in (4, 6):
            told = self._show(f"show bgp ipv{version} unicast json").get("routes", {})
            for prefix in told:
                one = self._show(f"show bgp ipv{version} unicast {prefix} json")
                paths = [path for path in one.get("paths", []) if not path.get("sourced")]
                # While it chooses anew, none is the best for a moment.
                paths.sort(key=lambda path: not path.get("bestpath", {}).get("overall"))
                if paths:
                    found[prefix] = _learned(paths[0])
        return found

    def up(self, address: str) -> bool:
        told = self._show(f"show bgp neighbors {address} json")
        return bool(told.get(address, {}).get("bgpState") == "Established")

    def _show(self, words: str) -> dict[str, Any]:
        text = self.tell("vtysh", "--vty_socket", str(self.directory), "-d", "bgpd", "-c", words)
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            return {}
        return found


def configuration(router_id: str, setup: Setup) -> Iterator[str]:
    """The lines of bgpd.conf."""
    yield "frr defaults traditional"
    for number, origin in enumerate(setup.origins):
        yield f"route-map origin{number} permit 10"
        if origin.communities:
            yield f" set community {' '.join(origin.communities)}"
        if origin.large:
            yield f" set large-community {' '.join(origin.large)}"
        if origin.local_pref is not None:
            yield f" set local-preference {origin.local_pref}"
        yield "exit"
    yield f"router bgp {setup.asn}"
    yield f" bgp router-id {router_id}"
    yield " no bgp ebgp-requires-policy"
    yield " no bgp network import-check"
    yield " no bgp default ipv4-unicast"
    yield " bgp graceful-restart"
    yield f" bgp graceful-restart restart-time {setup.restart_time}"
    yield " bgp graceful-restart preserve-fw-state"
    yield " bgp graceful-restart select-defer-time 5"
    if setup.cluster_id:
        yield f" bgp cluster-id {setup.cluster_id}"
    for each in setup.neighbours:
        yield from _session(each, setup)
    for version in (4, 6):
        yield f" address-family ipv{version} unicast"
        for number, origin in enumerate(setup.origins):
            if origin.version == version:
                yield f"  network {origin.prefix} route-map origin{number}"
        for each in setup.neighbours:
            if each.version == version:
                yield f"  neighbor {each.address} activate"
                if each.client:
                    yield f"  neighbor {each.address} route-reflector-client"
        yield " exit-address-family"


def _session(each: Neighbour, setup: Setup) -> Iterator[str]:
    head = f" neighbor {each.address}"
    yield f"{head} remote-as {each.asn}"
    yield f"{head} update-source {each.local}"
    yield f"{head} timers {setup.hold // 3} {setup.hold}"
    yield f"{head} timers connect 1"
    if each.password:
        yield f"{head} password {each.password}"
    if each.ttl_security:
        yield f"{head} ttl-security hops {each.hops or 1}"
    elif each.hops:
        yield f"{head} ebgp-multihop {each.hops}"


def _learned(path: dict[str, Any]) -> Learned:
    hops = [each for each in path["nexthops"] if each.get("scope", "global") == "global"]
    return Learned(
        next_hop=hops[0]["ip"],
        as_path=tuple(map(int, path["aspath"]["string"].replace("Local", "").split())),
        communities=frozenset(path.get("community", {}).get("string", "").split()),
        large=frozenset(path.get("largeCommunity", {}).get("string", "").split()),
        local_pref=path.get("locPrf"),
        originator=path.get("originatorId", ""),
        clusters=tuple(path.get("clusterList", {}).get("list", ())),
    )
