"""BIRD 2, told by its configuration file and asked by birdc."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.bgp_interop.router import Learned, Neighbour, Origin, Router, Setup

_ATTRIBUTE = re.compile(r"\s+BGP\.(\w+): (.*)")


class Bird(Router):
    """BIRD with one protocol for each neighbour, `peer0` and so on."""

    name = "bird"

    def start(self, setup: Setup, *, again: bool = False) -> None:
        self.protocols = {each.address: f"peer{n}" for n, each in enumerate(setup.neighbours)}
        path = self.write("bird.conf", configuration(self.router_id, setup, self.protocols))
        control = str(self.directory / "bird.ctl")
        self.launch("bird", "-f", "-c", path, "-s", control, *(["-R"] if again else []))

    def table(self) -> dict[str, Learned]:
        text = self._birdc("show", "route", "primary", "all", "where", "source", "=", "RTS_BGP")
        return parse(text)

    def up(self, address: str) -> bool:
        return "Established" in self._birdc("show", "protocols", self.protocols[address])

    def _birdc(self, *words: str) -> str:
        return self.tell("birdc", "-s", str(self.directory / "bird.ctl"), *words)


def configuration(router_id: str, setup: Setup, names: dict[str, str]) -> Iterator[str]:
    """The lines of bird.conf."""
    yield f"router id {router_id};"
    yield "graceful restart wait 5;"
    yield "protocol device {}"
    yield "protocol direct { ipv4; ipv6; }"
    for version in (4, 6):
        more = "persist on; graceful restart on;"
        yield f"protocol kernel {{ {more} ipv{version} {{ export where source = RTS_BGP; }}; }}"
        routes = (o for o in setup.origins if o.version == version)
        lines = " ".join(f"route {each.prefix} unreachable;" for each in routes)
        yield f"protocol static own{version} {{ ipv{version}; {lines} }}"
    yield "filter tell {"
    yield "  if source !~ [ RTS_STATIC, RTS_BGP ] then reject;"
    for origin in setup.origins:
        yield f"  if net = {origin.prefix} then {{ {_set(origin)} }}"
    yield "  accept;"
    yield "}"
    for each in setup.neighbours:
        yield from _neighbour(each, setup, names[each.address])


def _set(origin: Origin) -> str:
    done = [f"bgp_community.add(({each.replace(':', ',')}));" for each in origin.communities]
    done += [f"bgp_large_community.add(({each.replace(':', ',')}));" for each in origin.large]
    done += [f"bgp_local_pref = {origin.local_pref};"] if origin.local_pref is not None else []
    return " ".join(done)


def _neighbour(each: Neighbour, setup: Setup, name: str) -> Iterator[str]:
    yield f"protocol bgp {name} {{"
    yield f"  local {each.local} as {setup.asn}; neighbor {each.address} as {each.asn};"
    yield f"  hold time {setup.hold}; connect delay time 1; connect retry time 1;"
    yield "  error wait time 1,2; graceful restart on;"
    yield f"  graceful restart time {setup.restart_time};"
    if each.password:
        yield f'  password "{each.password}";'
    if each.hops:
        yield f"  multihop {each.hops};"
    if each.ttl_security:
        yield "  ttl security on;"
    if each.client:
        yield f"  rr client; rr cluster id {setup.cluster_id};"
    yield f"  ipv{each.version} {{ import all; export filter tell; }};"
    yield "}"


def parse(text: str) -> dict[str, Learned]:
    """The routes of `show route all`. Pure."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        words = line.split()
        if words and "/" in words[0] and "unicast" in words:
            found[words[0]] = {}
        elif found and (match := _ATTRIBUTE.match(line)):
            found[list(found)[-1]][match[1]] = match[2]
    return {prefix: _learned(values) for prefix, values in found.items()}


def _learned(values: dict[str, str]) -> Learned:
    def tuples(name: str) -> frozenset[str]:
        inside = re.findall(r"\(([^)]*)\)", values.get(name, ""))
        return frozenset(each.replace(" ", "").replace(",", ":") for each in inside)

    return Learned(
        next_hop=values["next_hop"].split()[0],
        as_path=tuple(map(int, values.get("as_path", "").split())),
        communities=tuples("community"),
        large=tuples("large_community"),
        local_pref=int(values["local_pref"]) if "local_pref" in values else None,
        originator=values.get("originator_id", ""),
        clusters=tuple(values.get("cluster_list", "").split()),
    )
