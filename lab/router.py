"""The top-of-rack router: BIRD with one eBGP neighbour per node, and what its table says.

BIRD forwards between racks by what the nodes announce, nothing else: there is no static route to a
pod. Hold time 9 s and graceful restart on every session. Tested in tests/lab/test_network.py.
"""

from __future__ import annotations

import re

from lab.machine import Machine
from lab.topology import NODE_AS, ROUTER_AS, ROUTER_HOST, Plan

HOLD_SECONDS = 9
CONFIG = "/etc/bird/bird.conf"
LOG = "/var/log/bird.log"

_HEAD = """\
log "{log}" all;
router id {router_id};
protocol device {{ scan time 2; }}
protocol direct {{ ipv4; }}
protocol kernel {{
  scan time 5; persist off; graceful restart on; merge paths on;
  ipv4 {{ import none; export where source = RTS_BGP; }};
}}
template bgp tor {{
  local as {own_as}; hold time {hold}; graceful restart on;
  connect delay time 1; connect retry time 2; error wait time 1, 3;
  ipv4 {{ import all; export where source = RTS_BGP; }};
}}
"""


def configuration(plan: Plan) -> str:
    """The text of bird.conf. Pure."""
    router_id = plan.etcd.segment.host(ROUTER_HOST).ip
    text = _HEAD.format(log=LOG, router_id=router_id, own_as=ROUTER_AS, hold=HOLD_SECONDS)
    for node in plan.nodes:
        text += (
            f"protocol bgp {node.name} from tor {{ neighbor {node.address.ip} as {NODE_AS}; }}\n"
        )
    return text


def start(machine: Machine, plan: Plan) -> None:
    """Start BIRD; it puts itself in the background when its configuration is good."""
    machine.path(CONFIG).write_text(configuration(plan))
    machine.run(["bird", "-c", CONFIG, "-P", "/run/bird/bird.pid"])


def learned(show_route: str) -> dict[str, list[tuple[str, str]]]:
    """prefix -> [(protocol, next hop)] of the text of `birdc show route`. Pure."""
    table: dict[str, list[tuple[str, str]]] = {}
    prefix = ""
    lines = show_route.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        found = re.match(r"^(\S+/\d+)?\s+unicast \[(\S+) ", line)
        if not found:
            continue
        prefix = found.group(1) or prefix
        via = re.match(r"^\s+via (\S+) on", following)
        table.setdefault(prefix, []).append((found.group(2), via.group(1) if via else ""))
    return table


def sessions(show_protocols: str) -> dict[str, str]:
    """node -> session state of the text of `birdc show protocols`. Pure."""
    found: dict[str, str] = {}
    for line in show_protocols.splitlines():
        words = line.split()
        if len(words) >= 4 and words[1] == "BGP":
            found[words[0]] = words[5] if len(words) > 5 else words[3]
    return found
