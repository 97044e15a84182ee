"""A node as Calico keeps it: made by hand from what its programs leave, with Debian's BIRD.

The documents (documents.py), the rules and sets (rules.py) and the routes are those of a real
Calico, put there with etcdctl, iptables-restore, ipset and ip; BIRD runs with the configuration
that Calico gives it. Nothing of ours has touched the node before it is taken over.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab import pod_containers, pods, proc
from lab.agents import REFERENCE_PLUGINS
from lab.cluster import Lab
from lab.demo import look
from lab.machine import Machine
from lab.pods import Pod
from lab.runtime import cache_path
from libcalico import names
from libcalico.process import paths
from tests.bgp_interop.test_bird_node import CONFIG, CONTROL, configuration
from tests.migration import documents, rules

PORTS = ("tcp:7000", "udp:7000")
PLUGIN = "#!/bin/sh\necho 'Calico was asked' >&2\nexit 1\n"
LINK_LOCAL = "169.254.1.1"
NETWORK = {
    "name": documents.NETWORK,
    "cniVersion": "0.3.1",
    "plugins": [
        {
            "type": "calico",
            "log_level": "info",
            "log_file_path": "/var/log/calico/cni/cni.log",
            "etcd_endpoints": "http://10.99.0.1:2379",
            "mtu": 0,
            "ipam": {"type": "calico-ipam"},
            "policy": {"type": "k8s"},
        }
    ],
}


def reference_plugins(machine: Machine) -> None:
    """The distribution's plugins, where a node has them."""
    folder = machine.path(paths.CNI_BIN)
    folder.mkdir(parents=True, exist_ok=True)
    for plugin in sorted(REFERENCE_PLUGINS.iterdir()):
        if not (folder / plugin.name).is_symlink():
            (folder / plugin.name).symlink_to(plugin)


@dataclass
class CalicoNode:
    """One node; `peer` is the address of the node that it speaks BGP with."""

    lab: Lab
    name: str
    peer: str
    pods: dict[str, Pod] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        """The node's machine."""
        return self.lab.machine(self.name)

    @property
    def address(self) -> str:
        """The node's address."""
        return str(self.lab.host(self.name).address.ip)

    # -- as its CNI plugin did

    def wire(self, name: str, address: str, labels: Mapping[str, str]) -> Pod:
        """A pod with its cable and the addresses of both ends, as Calico's plugin makes them."""
        pod = Pod(
            name=name,
            namespace="default",
            node=self.name,
            container_id=secrets.token_hex(32),
            netns=f"{pods.NETNS_DIRECTORY}/{name}",
            uid=str(uuid.uuid4()),
            labels=labels,
            annotations={},
            ports=PORTS,
            network=NETWORK,
            result={"cniVersion": "0.3.1", "ips": [{"version": "4", "address": f"{address}/32"}]},
            add_milliseconds=0.0,
        )
        self.machine.run(["bash", "-e", "-c", "\n".join(self._cable(pod))])
        pod_containers.respond(self.machine, pod.title, pod.netns, PORTS)
        cache = self.machine.path(cache_path(NETWORK, pod.sandbox, "eth0"))
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        cache.write_text(json.dumps({"kind": "cniCacheV1", "result": pod.result}))
        pods.write_record(self.lab, pod)
        self.pods[name] = pod
        return pod

    def _cable(self, pod: Pod) -> Sequence[str]:
        host = self.interface(pod)
        inside = f"ip -n {pod.name}"
        return (
            f"ip netns add {pod.name}",
            f"{inside} link set lo up",
            f"ip link add {host} address ee:ee:ee:ee:ee:ee type veth"
            f" peer name eth0 address {documents.mac(pod)} netns {pod.name}",
            f"ip link set {host} up",
            f"sysctl -qw net.ipv4.conf.{host}.proxy_arp=1 net.ipv4.neigh.{host}.proxy_delay=0"
            f" net.ipv4.conf.{host}.forwarding=1 net.ipv6.conf.{host}.accept_ra=0",
            f"{inside} link set eth0 up",
            f"{inside} addr add {pod.address}/32 dev eth0",
            f"{inside} route add {LINK_LOCAL} dev eth0 scope link",
            f"{inside} route add default via {LINK_LOCAL} dev eth0",
        )

    def interface(self, pod: Pod) -> str:
        """The host's end of a pod's cable."""
        return names.host_interface_name(pod.namespace, pod.name)

    def store(self) -> None:
        """Everything that Calico has in the datastore, with the node and its pods."""
        mine = list(self.pods.values())
        address = str(self.lab.host(self.name).address)
        found = [(f"{documents.RESOURCES}/{k}", v) for k, v in documents.of_the_cluster()]
        for key, value in documents.of_the_node(self.name, address, mine):
            found.append((f"{documents.RESOURCES}/{key}", value))
        for key, value in documents.of_the_addresses(self.name, mine):
            found.append((f"{documents.IPAM}/{key}", value))
        for key, value in found:
            self.lab.etcd.run(["etcdctl", "put", key, documents.encoded(value)])

    def install(self) -> None:
        """Its plugins, its network list and the node's name; the reference plugins are there."""
        reference_plugins(self.machine)
        for plugin in ("calico", "calico-ipam"):
            path = self.machine.path(paths.CNI_BIN / plugin)
            path.unlink(missing_ok=True)
            path.write_text(PLUGIN)
            path.chmod(0o755)
        conflist = self.machine.path(paths.CNI_NET / "10-calico.conflist")
        conflist.parent.mkdir(parents=True, exist_ok=True)
        conflist.write_text(json.dumps(NETWORK))
        nodename = self.machine.path("/var/lib/calico/nodename")
        nodename.parent.mkdir(parents=True, exist_ok=True)
        nodename.write_text(self.name)

    # -- as its felix and its BIRD

    def start(self, clients: Sequence[str]) -> None:
        """Rules, sets and routes of its felix, and BIRD. `clients`: members of the policy's set."""
        web = self.interface(self.pods["web"])
        interfaces = [self.interface(pod) for pod in self.pods.values()]
        own = ["127.0.0.1", self.address]
        text = rules.sets(documents.POOL, own, clients)
        self.machine.run(["ipset", "restore"], stdin=text.encode())
        text = rules.tables(interfaces, web)
        self.machine.run(["iptables-restore"], stdin=text.encode())
        lines = ["sysctl -qw net.ipv4.ip_forward=1"]
        for name, pod in self.pods.items():
            # As releases since 3.32 and those before write it.
            metric = 0 if name == "db" else 1024
            lines.append(
                f"ip route replace {pod.address}/32 dev {self.interface(pod)} scope link"
                f" proto boot metric {metric}"
            )
        self.machine.run(["bash", "-e", "-c", "\n".join(lines)])
        # Calico's BIRD 1.6 writes no connected networks into the kernel by itself; BIRD 2 does.
        text = configuration(self.address, self.peer, documents.BLOCK).replace(
            "filter to_kernel {", "filter to_kernel { if source = RTS_DEVICE then reject;"
        )
        self.machine.path(CONFIG).write_text(text)
        self.machine.run(["bird", "-R", "-c", CONFIG, "-s", CONTROL])

    def sessions(self) -> str:
        """What BIRD says of its peers."""
        command = ["birdc", "-s", CONTROL, "show", "protocols"]
        return self.machine.run(command, check=False).stdout

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End BIRD, killed without a goodbye; its felix leaves everything where it is."""
        for pid in look.processes(self.machine, "bird"):
            os.kill(pid, number)
        proc.wait_until(
            lambda: not look.processes(self.machine, "bird"), "the end of BIRD", timeout=120
        )
