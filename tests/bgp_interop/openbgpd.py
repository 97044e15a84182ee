"""OpenBGPD, told by its configuration file and asked by bgpctl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.bgp_interop.router import Learned, Neighbour, Router, Setup


class OpenBgpd(Router):
    """OpenBGPD with the kernel's table left alone."""

    name = "openbgpd"
    loses_forwarding = (
        "bgpd.conf(5), announce restart: only the End-of-RIB marker is supported and announced"
    )

    def start(self, setup: Setup, *, again: bool = False) -> None:
        socket = self.directory / "bgpd.sock"
        lines = configuration(self.router_id, setup, str(socket))
        # Its unprivileged parts lock themselves into the home of their user, below /run.
        (self.directory / "run" / "openbgpd").mkdir(parents=True, exist_ok=True)
        self.launch(
            *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
            'mount --bind "$0" /run && exec "$@"',
            *(str(self.directory / "run"), "bgpd", "-d", "-v"),
            *("-f", self.write("bgpd.conf", lines)),
        )

    def table(self) -> dict[str, Learned]:
        told = self._bgpctl("show", "rib", "detail").get("rib", [])
        return {
            each["prefix"]: _learned(each)
            for each in told
            if each.get("best") and not each.get("announced")
        }

    def up(self, address: str) -> bool:
        told = self._bgpctl("show", "neighbor", address).get("neighbors", [])
        return any(each.get("state") == "Established" for each in told)

    def _bgpctl(self, *words: str) -> dict[str, Any]:
        text = self.tell("bgpctl", "-s", str(self.directory / "bgpd.sock"), "-j", *words)
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            return {}
        return found


def configuration(router_id: str, setup: Setup, socket: str) -> Iterator[str]:
    """The lines of bgpd.conf."""
    yield f"AS {setup.asn}"
    yield f"router-id {router_id}"
    yield f'socket "{socket}"'
    yield "fib-update no"
    yield f"holdtime {setup.hold}"
    yield "connect-retry 1"
    for address in sorted({each.local for each in setup.neighbours}):
        yield f"listen on {address}"
    for origin in setup.origins:
        done = [f"community {each}" for each in origin.communities]
        done += [f"large-community {each}" for each in origin.large]
        done += [f"localpref {origin.local_pref}"] if origin.local_pref is not None else []
        yield f"network {origin.prefix}" + (f" set {{ {' '.join(done)} }}" if done else "")
    for each in setup.neighbours:
        yield from _neighbour(each, setup)
    yield "allow from any"
    yield "allow to any"


def _neighbour(each: Neighbour, setup: Setup) -> Iterator[str]:
    yield f"neighbor {each.address} {{"
    yield f"  remote-as {each.asn}"
    yield f"  local-address {each.local}"
    yield f"  announce IPv{each.version} unicast"
    if each.password:
        yield f'  tcp md5sig password "{each.password}"'
    if each.hops:
        yield f"  multihop {each.hops}"
    if each.ttl_security:
        yield "  ttl-security yes"
    if each.client:
        yield f"  route-reflector {setup.cluster_id}"
    yield "}"


def _learned(route: dict[str, Any]) -> Learned:
    by = {each["type"]: each for each in route.get("attributes", [])}

    def strings(name: str, key: str) -> list[str]:
        found: list[str] = by.get(name, {}).get(key, [])
        return found

    return Learned(
        next_hop=route["exit_nexthop"],
        as_path=tuple(map(int, route.get("aspath", "").split())),
        communities=frozenset(route.get("communities", [])),
        large=frozenset(route.get("large_communities", [])),
        local_pref=route.get("localpref"),
        originator=by.get("Originator Id", {}).get("originator", ""),
        clusters=tuple(strings("Cluster Id List", "cluster_list")),
    )
