"""The routers and reflectors beside the nodes: BIRD, and what its tables say.

A router has one eBGP neighbour per node on its segments and one per router on the fabric. It
forwards between racks by what they announce, nothing else: there is no static route to a pod. A
reflector (RFC 4456) has an iBGP client per node and forwards nothing. Hold time 9 s and graceful
restart on every session. Tested in tests/lab/test_network.py and tests/lab_scenarios.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.machine import Machine
from lab.topology import FABRIC, NODE_AS, ROUTER_AS, ROUTER_HOST, Host, Plan, Segment, Switch

HOLD_SECONDS = 9
CONFIG = "/etc/bird/bird.conf"
LOG = "/var/log/bird.log"

_HEAD = """\
log "{log}" all;
router id {router_id};
protocol device {{ scan time 2; }}
protocol direct {{ {channel}; }}
protocol kernel {{
  scan time 5; persist off; graceful restart on; merge paths on;
  {channel} {{ import none; export where {exported}; }};
}}
template bgp tor {{
  local as {own_as}; hold time {hold}; graceful restart on;
  connect delay time 1; connect retry time 2; error wait time 1, 3;
  {channel} {{ import all; export where {exported};{more} }};
}}
"""
_REFLECTOR = """\
log "{log}" all;
router id {router_id};
protocol device {{ scan time 2; }}
# Next hops are resolved over this; it goes to no kernel and to no peer.
protocol static {{ {channel}; route {anywhere} via {gateway}; }}
template bgp ours {{
  local {own} as {own_as}; hold time {hold}; graceful restart on; multihop;
  connect delay time 1; connect retry time 2; error wait time 1, 3;
  rr client; rr cluster id {router_id};
  {channel} {{ import all; export where source = RTS_BGP; }};
}}
"""


def neighbours(plan: Plan, switch: Switch) -> Iterator[tuple[str, Segment, Host]]:
    """The BGP neighbours of a router, each with its name and the segment they meet on. Pure."""
    for node in plan.nodes:
        for _, segment in node.cables:
            if segment in switch.segments:
                yield node.name, segment, node
    if not plan.tors:
        return
    if FABRIC in switch.segments:
        for tor in plan.tors:
            yield tor.name, FABRIC, tor
    else:
        yield "spine", FABRIC, Host("router", FABRIC, ROUTER_HOST, as_number=ROUTER_AS)


def configuration(plan: Plan, switch: Switch | None = None) -> str:
    """The text of bird.conf. Pure."""
    mine, version = switch or plan.switches[0], plan.peering_version
    text = _HEAD.format(
        log=LOG,
        router_id=mine.segments[0].host(ROUTER_HOST).ip,
        channel=f"ipv{version}",
        own_as=mine.as_number,
        hold=HOLD_SECONDS,
        more=" next hop self;" if plan.topology == "dual" else "",
        # The routes to loopback addresses are the router's own.
        exported="source ~ [RTS_BGP, RTS_STATIC]"
        if plan.topology == "loopbacks"
        else "source = RTS_BGP",
    )
    for name, segment, host in neighbours(plan, mine):
        address = segment.address(host.number, version)
        text += f"protocol bgp {name} from tor {{ neighbor {address} as {host.as_number}; }}\n"
        if host.loopback is not None:
            way = f"route {host.loopback} via {address};"
            text += f"protocol static lo_{name} {{ ipv4; {way} }}\n"
    return text


def reflector_configuration(plan: Plan, reflector: Host) -> str:
    """The text of a reflector's bird.conf: a client per node. Pure."""
    version = plan.peering_version
    text = _REFLECTOR.format(
        log=LOG,
        router_id=reflector.address.ip,
        channel=f"ipv{version}",
        anywhere="0.0.0.0/0" if version == 4 else "::/0",
        gateway=reflector.segment.address(ROUTER_HOST, version),
        own=reflector.segment.address(reflector.number, version),
        own_as=NODE_AS,
        hold=HOLD_SECONDS,
    )
    for node in plan.nodes:
        address = node.segment.address(node.number, version)
        text += f"protocol bgp {node.name} from ours {{ neighbor {address} as {NODE_AS}; }}\n"
    return text


def start_all(machines: dict[str, Machine], plan: Plan) -> None:
    """Start BIRD on every router and reflector."""
    for switch in plan.switches:
        start(machines[switch.name], configuration(plan, switch))
    for reflector in plan.reflectors:
        start(machines[reflector.name], reflector_configuration(plan, reflector))


def start(machine: Machine, text: str) -> None:
    """Start BIRD; it puts itself in the background when its configuration is good."""
    machine.path(CONFIG).write_text(text)
    machine.run(["bird", "-c", CONFIG, "-P", "/run/bird/bird.pid"])


def learned(show_route: str) -> dict[str, list[tuple[str, str]]]:
    """prefix -> [(protocol, next hop)] of the text of `birdc show route`. Pure."""
    table: dict[str, list[tuple[str, str]]] = {}
    prefix = ""
    lines = show_route.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        match = re.match(r"^(\S+/\d+)?\s+unicast \[(\S+) ", line)
        if not match:
            continue
        prefix = match.group(1) or prefix
        via = re.match(r"^\s+via (\S+) on", following)
        table.setdefault(prefix, []).append((match.group(2), via.group(1) if via else ""))
    return table


def sessions(show_protocols: str) -> dict[str, str]:
    """node -> session state of the text of `birdc show protocols`. Pure."""
    states: dict[str, str] = {}
    for line in show_protocols.splitlines():
        words = line.split()
        if len(words) >= 4 and words[1] == "BGP":
            states[words[0]] = words[5] if len(words) > 5 else words[3]
    return states
