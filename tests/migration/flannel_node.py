"""Nodes of the lab in flannel's network: VXLAN between them, its CNI plugin's bridge on each.

Device, neighbours, routes, rules and `subnet.env` are made by hand as `flanneld` makes them; taking
it off a node changes nothing there, as with the real one. Its CNI plugin only hands on to
`bridge` with `host-local`, which are Debian's here; so the list says what it says to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.cluster import Lab
from lab.machine import Machine
from libcalico.process import paths
from tests.migration.calico_node import reference_plugins

NETWORK, MTU = "10.244.0.0/16", 1450
SUBNET_FILE = "/run/flannel/subnet.env"
MASQ = '-m comment --comment "flanneld masq"'
FORWARD = '-m comment --comment "flanneld forward"'
CHAINS = f"""\
*nat
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING {MASQ} -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 {MASQ} -j RETURN
-A FLANNEL-POSTRTG -s {{subnet}} -d {NETWORK} {MASQ} -j RETURN
-A FLANNEL-POSTRTG -s {NETWORK} -d {{subnet}} {MASQ} -j RETURN
-A FLANNEL-POSTRTG ! -s {NETWORK} -d {{subnet}} {MASQ} -j RETURN
-A FLANNEL-POSTRTG -s {NETWORK} ! -d 224.0.0.0/4 {MASQ} -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s {NETWORK} -d {NETWORK} {MASQ} -j MASQUERADE --random-fully
COMMIT
*filter
:FLANNEL-FWD - [0:0]
-A FORWARD {FORWARD} -j FLANNEL-FWD
-A FLANNEL-FWD -s {NETWORK} {FORWARD} -j ACCEPT
-A FLANNEL-FWD -d {NETWORK} {FORWARD} -j ACCEPT
COMMIT
"""


@dataclass
class FlannelNode:
    """One node; all of them are made together by `start_all`."""

    lab: Lab
    number: int

    @property
    def name(self) -> str:
        """The node's name."""
        return f"node{self.number}"

    @property
    def machine(self) -> Machine:
        """The node's machine."""
        return self.lab.machine(self.name)

    @property
    def address(self) -> str:
        """The node's address."""
        return str(self.lab.host(self.name).address.ip)

    @property
    def settings(self) -> Mapping[str, str]:
        """subnet.env."""
        lines = self.machine.path(SUBNET_FILE).read_text().split()
        return dict(line.split("=", 1) for line in lines)

    @property
    def subnet(self) -> str:
        """The node's own subnet: what a cluster of Kubernetes calls its podCIDR."""
        return self.settings["FLANNEL_SUBNET"].replace(".1/", ".0/")

    # -- flanneld

    def by_hand(self, others: Sequence[FlannelNode]) -> None:
        """What it leaves in the kernel."""
        lines = [
            f"ip link add flannel.1 address {_mac(self.number)} mtu {MTU} type vxlan id 1"
            f" local {self.address} dev eth0 dstport 8472 nolearning",
            f"ip addr add 10.244.{self.number}.0/32 dev flannel.1",
            "ip link set flannel.1 up",
            *(line for other in others for line in _way(other)),
            "sysctl -qw net.ipv4.ip_forward=1",
        ]
        self.machine.run(["bash", "-e", "-c", "\n".join(lines)])
        text = CHAINS.format(subnet=f"10.244.{self.number}.0/24")
        self.machine.run(["iptables-restore", "--noflush"], stdin=text.encode())
        file = self.machine.path(SUBNET_FILE)
        file.parent.mkdir(parents=True, exist_ok=True)
        own = f"10.244.{self.number}.1/24"
        file.write_text(
            f"FLANNEL_NETWORK={NETWORK}\nFLANNEL_SUBNET={own}\nFLANNEL_MTU={MTU}\n"
            "FLANNEL_IPMASQ=true\n"
        )

    # -- the CNI plugin

    def install(self) -> None:
        """The reference plugins, and the list."""
        reference_plugins(self.machine)
        file = self.machine.path(paths.CNI_NET / "10-flannel.conflist")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.network()))

    def network(self) -> dict[str, object]:
        """The list as flannel's plugin hands it on."""
        bridge = {
            "type": "bridge",
            "hairpinMode": True,
            "isDefaultGateway": True,
            "isGateway": True,
            "ipMasq": False,
            "mtu": int(self.settings["FLANNEL_MTU"]),
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": self.subnet}]],
                "routes": [{"dst": NETWORK}],
            },
        }
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"name": "cbr0", "cniVersion": "0.3.1", "plugins": [bridge, portmap]}

    def kernel(self) -> list[str]:
        """Routes by flannel's devices, to be compared."""
        lines = self.machine.run(["ip", "route", "show"]).stdout.splitlines()
        return sorted(line for line in lines if "flannel.1" in line or "cni0" in line)


def _mac(number: int) -> str:
    return f"02:f1:00:00:00:{number:02x}"


def _way(other: FlannelNode) -> Iterator[str]:
    end, mac = f"10.244.{other.number}.0", _mac(other.number)
    yield f"ip neigh replace {end} lladdr {mac} dev flannel.1 nud permanent"
    yield f"bridge fdb append {mac} dev flannel.1 dst {other.address}"
    yield f"ip route replace {end}/24 via {end} dev flannel.1 onlink"


def start_all(lab: Lab) -> list[FlannelNode]:
    """Every node of a bare lab in flannel's network, with its list for the runtime."""
    nodes = [FlannelNode(lab, number) for number in range(1, len(lab.nodes) + 1)]
    for node in nodes:
        node.by_hand([other for other in nodes if other is not node])
    for node in nodes:
        node.install()
    return nodes
