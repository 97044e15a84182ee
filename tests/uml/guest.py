"""What runs inside the guest: `python -m tests.uml.guest SCENARIO`, results in /out/result.json."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab import cluster
from tests.support.patience import HANG
from tests.support.uml import SLOWER
from tests.tunnels.scene import NEVER, Scene, scene, switch

RESULT = Path("/out/result.json")
LEGACY = {"FELIX_IPTABLESBACKEND": "Legacy", "FELIX_IPV6SUPPORT": "false"}
PATIENCE = HANG * SLOWER
Result = dict[str, Any]


def one_way() -> Result:
    """Two nodes, IP-in-IP Always, no BGP: routes, device, packets that were wrapped."""
    settings = {**LEGACY, "CALICO_NETWORKING_BACKEND": "vxlan"}
    with scene("g", nodes=2, peers=False, patience=PATIENCE, environment=settings) as made:
        return always(made)


def always(made: Scene) -> Result:
    """Everything to other nodes goes through tunl0."""
    made.set_mode(("Always", "Never"))
    made.comes_to("tunl0", "tunl0")
    made.connected()
    here, there = made.names[0], made.names[-1]
    before = made.sent(here, "tunl0")
    made.connected()
    node = made.machine(here)
    link = json.loads(node.run(["ip", "-j", "address", "show", "tunl0"]).stdout)[0]
    return {
        "route": dict(made.route(here, there)),
        "far": str(made.lab.host(there).address.ip),
        "wrapped": made.sent(here, "tunl0") - before,
        "mtu": link["mtu"],
        "up": "UP" in link["flags"],
        "addresses": [one["local"] for one in link["addr_info"]],
        "rules": node.run(["iptables-legacy-save", "-t", "filter"]).stdout,
        "sets": node.run(["ipset", "list", "cali40all-hosts-net"]).stdout,
        "conditions": made.conditions(here),
    }


def switches() -> Result:
    """Never, CrossSubnet, Always, VXLAN and back, under traffic; then all of `always`."""
    found: Result = {}
    with scene("g", patience=PATIENCE, environment=LEGACY) as made:
        made.comes_to("eth0", "eth0")
        made.connected()
        for title, modes, near, far in (
            ("CrossSubnet", ("CrossSubnet", "Never"), "eth0", "tunl0"),
            ("Always", ("Always", "Never"), "tunl0", "tunl0"),
            ("VXLAN", ("Never", "Always"), "vxlan.calico", "vxlan.calico"),
            ("Never", NEVER, "eth0", "eth0"),
        ):
            found[title] = switch(made, modes, near, far)
        found["always"] = always(made)
    return found


SCENARIOS: dict[str, Callable[[], Result]] = {"one_way": one_way, "switches": switches}


def main() -> int:
    """Run one scenario."""
    cluster.READY_SECONDS = PATIENCE
    try:
        result = SCENARIOS[sys.argv[1]]()
    except BaseException:
        RESULT.write_text(json.dumps({"error": traceback.format_exc()}))
        return 1
    RESULT.write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
