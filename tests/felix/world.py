"""A world for one felix: a node's namespace with a real etcd, pods, and a host outside.

    pod 10.65.0.x -- caliX [ node 10.99.7.1 ] eth0 -- [ outside 10.99.7.2, 203.0.113.9 ]

Objects are written with etcdctl, so nothing of ours vouches for itself. Pods are wired as
`cni` wires them.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.felix.in_kernel import InKernel
from tests.felix.launch import launched
from tests.support.etcd import Etcd
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, wait_for

T = TypeVar("T")
NODE = "node1"
HEALTH_PORT, METRICS_PORT = 19099, 19091
RESOURCES = "/calico/resources/v3/projectcalico.org"
POOL, BLOCK = "10.65.0.0/16", "10.65.0.0/26"
POOL6, BLOCK6 = "fd65::/48", "fd65::/122"
CONTAINER = "c" * 64
_NO_DAD = tuple(f"net.ipv6.conf.{which}.accept_dad=0" for which in ("all", "default"))
"""No address is looked for elsewhere before it is used, which takes seconds; `cni` sets it, too."""
OPEN_PROFILE = {"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]}


@dataclass
class Pod:
    """A namespace wired to the node as a pod."""

    space: Namespace
    interface: str
    address: str
    address6: str

    def reaches(self, address: str, count: int = 1, wait: float = 1.0) -> bool:
        """Whether a ping is answered."""
        return reaches(self.space, address, count, wait)

    def until_reached(self, address: str, what: object = "") -> None:
        """Until a ping is answered."""
        until_reached(self.space, address, what)


def reaches(space: Namespace, address: str, count: int = 1, wait: float = 1.0) -> bool:
    """Whether a ping from a namespace is answered."""
    words = ("ping", "-n", "-c", str(count), "-W", str(wait), "-i", "0.2", address)
    return space.done(*words).returncode == 0


def until_reached(space: Namespace, address: str, what: object = "") -> None:
    """Until a ping from a namespace is answered: one goes each 0.1 s.

    Each 2 s they are another flow, for a flow that was let through is not translated later.
    """
    words = ("ping", "-n", "-c", "1", "-i", "0.1", "-w", "2", address)
    wait_for(lambda: space.done(*words).returncode == 0, what or f"{address} answers")


@dataclass
class World:
    """The node, what is outside of it, and the felix that runs on it."""

    node: Namespace
    outside: Namespace
    etcd: Etcd
    folder: Path
    stack: ExitStack
    process: subprocess.Popen[str] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    program: tuple[str, ...] = ("felix.main",)
    """The module that is started as felix, and its arguments."""

    @property
    def socket(self) -> Path:
        """Where felix listens, as seen from here."""
        return self.folder / "run" / "calico" / "private" / "node.sock"

    # -- felix -------------------------------------------------------------------------------

    def start_felix(self, **extra: str) -> None:
        """Start it; does not wait."""
        environment = {
            "PATH": os.environ["PATH"],
            "NODENAME": NODE,
            "DATASTORE_TYPE": "etcdv3",
            "ETCD_ENDPOINTS": self.etcd.endpoint,
            "FELIX_IPTABLESREFRESHINTERVAL": "2",
            "FELIX_HEALTHENABLED": "true",
            "FELIX_HEALTHPORT": str(HEALTH_PORT),
            "FELIX_PROMETHEUSMETRICSENABLED": "true",
            "FELIX_PROMETHEUSMETRICSHOST": "127.0.0.1",
            "FELIX_PROMETHEUSMETRICSPORT": str(METRICS_PORT),
            "FELIX_DEFAULTENDPOINTTOHOSTACTION": "RETURN",
            **self.environment,
            **extra,
        }
        with (self.folder / "felix.log").open("a") as log:
            self.process = subprocess.Popen(
                self.node.command(
                    *launched(self.folder / "run", sys.executable, "-m", *self.program),
                ),
                env=environment,
                stdout=log,
                stderr=log,
                text=True,
            )

    def stop_felix(self, number: int = signal.SIGTERM) -> int:
        """End it and give its status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(HANG)

    def log(self) -> str:
        """What felix logged."""
        return (self.folder / "felix.log").read_text()

    def get(self, path: str, port: int = HEALTH_PORT) -> tuple[int, str]:
        """Status and body of a page of felix's; 0 when nobody listens."""

        def asked() -> tuple[int, str]:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
            try:
                link.request("GET", path)
                answer = link.getresponse()
                return answer.status, answer.read().decode()
            except OSError as error:
                return 0, str(error)
            finally:
                link.close()

        return self.node.call(asked)

    def ready(self) -> bool:
        """Whether readiness is 200."""
        return self.get("/readiness")[0] == 200

    def wait_ready(self, within: float = 15.0) -> None:
        """Until felix is ready."""
        try:
            wait_for(self.ready, "felix is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()[-4000:]}") from None

    def metric(self, name: str) -> float:
        """One of felix's metrics; Calico's counters have no `_total` behind their names."""
        page = self.get("/metrics", METRICS_PORT)[1]
        for spelled in (name, name.removesuffix("_total")):
            for line in page.splitlines():
                if line.split(" ")[0] == spelled:
                    return float(line.split(" ")[1])
        raise AssertionError(f"no metric {name}")

    # -- the datastore -----------------------------------------------------------------------

    def put(
        self,
        plural: str,
        name: str,
        kind: str,
        spec: object,
        namespace: str = "",
        labels: dict[str, str] | None = None,
    ) -> bytes:
        """Write a resource; returns its bytes."""
        metadata: dict[str, object] = {
            "name": name,
            "uid": "u",
            "creationTimestamp": "2026-08-22T10:11:12Z",
        }
        if labels:
            metadata["labels"] = labels
        if namespace:
            metadata["namespace"] = namespace
        value = msgspec.json.encode(
            {
                "kind": kind,
                "apiVersion": "projectcalico.org/v3",
                "metadata": metadata,
                "spec": spec,
            }
        )
        self.etcd.put("/".join(filter(None, (RESOURCES, plural, namespace, name))), value)
        return value

    def delete(self, *parts: str) -> None:
        """Delete a resource."""
        self.etcd.ctl("del", "/".join((RESOURCES, *parts)))

    def write_cluster(self) -> None:
        """What node start-up writes: readiness, a pool, this node and its block."""
        self.put(
            "clusterinformations",
            "default",
            "ClusterInformation",
            {"clusterGUID": "g", "clusterType": "bgp", "datastoreReady": True},
        )
        for name, cidr in (("v4", POOL), ("v6", POOL6)):
            self.put(
                "ippools",
                name,
                "IPPool",
                {"cidr": cidr, "ipipMode": "Never", "vxlanMode": "Never", "natOutgoing": True},
            )
        self.put("nodes", NODE, "Node", {"bgp": {"ipv4Address": "10.99.7.1/24"}})
        for name in ("kns.default", "ksa.default.default"):
            self.put("profiles", name, "Profile", OPEN_PROFILE if name[:3] == "kns" else {})
        self.put_block(BLOCK, NODE)
        self.put_block(BLOCK6, NODE)

    def put_block(self, cidr: str, owner: str) -> None:
        """A block of 64 with the claim on it."""
        family = "ipv6" if ":" in cidr else "ipv4"
        name = cidr.replace("/", "-")
        block = {
            "cidr": cidr,
            "affinity": f"host:{owner}",
            "allocations": [None] * 64,
            "unallocated": list(range(64)),
            "attributes": [],
            "sequenceNumber": 1,
            "sequenceNumberForAllocation": {},
            "deleted": False,
        }
        self.etcd.put(
            f"/calico/ipam/v2/assignment/{family}/block/{name}", msgspec.json.encode(block)
        )
        self.etcd.put(
            f"/calico/ipam/v2/host/{owner}/{family}/block/{name}",
            b'{"state":"confirmed","deleted":false}',
        )

    def endpoint_name(self, pod: str, node: str = NODE) -> str:
        """The name of a pod's endpoint."""
        return f"{node}-k8s-{pod}-eth0"

    def put_endpoint(
        self,
        name: str,
        pod: Pod,
        container: str = CONTAINER,
        labels: dict[str, str] | None = None,
        **more: object,
    ) -> bytes:
        """Store a pod's endpoint; returns its bytes."""
        return self.put(
            "workloadendpoints",
            self.endpoint_name(name),
            "WorkloadEndpoint",
            endpoint_spec(name, pod, container) | more,
            "default",
            labels,
        )

    def delete_endpoint(self, name: str) -> None:
        """Delete a pod's endpoint."""
        self.delete("workloadendpoints", "default", self.endpoint_name(name))

    # -- pods --------------------------------------------------------------------------------

    def wire(self, interface: str, address: str, address6: str = "") -> Pod:
        """A namespace wired as a pod, without an endpoint in the datastore."""
        space = self.stack.enter_context(network_namespace("pod"))
        space.run("sysctl", "-qw", *_NO_DAD)
        self.node.ip(
            f"link add {interface} address ee:ee:ee:ee:ee:ee type veth "
            f"peer name eth0 netns {space.name}",
            f"link set {interface} up",
        )
        here = f"net.ipv4.conf.{interface}"
        self.node.run(
            *f"sysctl -qw {here}.proxy_arp=1 {here}.forwarding=1 {here}.route_localnet=1".split(),
            f"net.ipv4.neigh.{interface}.proxy_delay=0",
            f"net.ipv6.conf.{interface}.forwarding=1",
        )
        space.ip(
            "link set eth0 up",
            f"addr add {address}/32 dev eth0",
            "route add 169.254.1.1 dev eth0 scope link",
            "route add default via 169.254.1.1 dev eth0",
            "neigh replace 169.254.1.1 dev eth0 lladdr ee:ee:ee:ee:ee:ee nud permanent",
        )
        if address6:
            space.ip(
                f"addr add {address6}/128 dev eth0 nodad",
                "route add default via fe80::ecee:eeff:feee:eeee dev eth0",
            )
        pod = Pod(space, interface, address, address6)
        self.pods.append(pod)
        return pod

    def add_pod(self, name: str, interface: str, address: str, address6: str = "") -> Pod:
        """Wire a pod and store its endpoint."""
        pod = self.wire(interface, address, address6)
        self.put_endpoint(name, pod)
        return pod

    # -- looking -----------------------------------------------------------------------------

    def routes(self, *selection: str, family: int = 4) -> str:
        """`ip route show` on the node."""
        return self.node.run("ip", f"-{family}", "route", "show", *selection)

    def route(self, prefix: str) -> str:
        """The route of exactly this prefix that is felix's; empty if there is none."""
        family = 6 if ":" in prefix else 4
        return self.routes("exact", prefix, "proto", "109", family=family).strip()

    @property
    def kernel(self) -> InKernel:
        """What felix wrote into the kernel."""
        native = self.environment.get("FELIX_NFTABLESMODE") == "Enabled"
        return InKernel(self.node, native, "iptables-legacy" in self.log())

    def chain(self, name: str, table: str = "filter") -> str:
        """The rules of a chain, whichever back end holds it; empty if there is none."""
        return self.kernel.chain(name, table)

    @property
    def rule_writes(self) -> float:
        """How often felix wrote rules."""
        native = self.kernel.native
        return self.metric(f"felix_{'nft_calls' if native else 'iptables_restore_calls'}_total")

    @property
    def rule_reads(self) -> float:
        """How often felix read all rules back."""
        if self.kernel.native:
            return self.metric("felix_nft_list_calls_total")
        return self.metric("felix_iptables_save_calls_total") // 8

    def ip(self, words: str) -> str:
        """Run ip(8) on the node."""
        return self.node.run("ip", *words.split())

    def iptables(self, *arguments: str) -> None:
        """Run iptables of the back end that felix uses."""
        self.kernel.iptables(*arguments)


def endpoint_spec(name: str, pod: Pod, container: str = CONTAINER) -> dict[str, object]:
    """The spec of a pod's WorkloadEndpoint."""
    networks = [f"{pod.address}/32"] + ([f"{pod.address6}/128"] if pod.address6 else [])
    return {
        "orchestrator": "k8s",
        "node": NODE,
        "containerID": container,
        "pod": name,
        "endpoint": "eth0",
        "ipNetworks": networks,
        "profiles": ["kns.default", "ksa.default.default"],
        "interfaceName": pod.interface,
        "mac": "aa:bb:cc:dd:ee:01",
    }


@contextmanager
def make_world(folder: Path) -> Iterator[World]:
    """The world without felix and without objects; everything is removed afterwards."""
    with ExitStack() as stack:
        node = stack.enter_context(network_namespace("node"))
        outside = stack.enter_context(network_namespace("out"))
        for space in (node, outside):
            space.run("sysctl", "-qw", *_NO_DAD)
        node.ip(
            f"link add eth0 type veth peer name eth0 netns {outside.name}",
            "addr add 10.99.7.1/24 dev eth0",
            "link set eth0 up",
            "addr add 2001:db8:7::1/64 dev eth0 nodad",
            "route add default via 10.99.7.2",
        )
        outside.ip(
            "addr add 10.99.7.2/24 dev eth0",
            "addr add 203.0.113.9/32 dev lo",
            "addr add 2001:db8:7::2/64 dev eth0 nodad",
            "link set eth0 up",
            "route add 10.65.0.0/16 via 10.99.7.1",
        )
        (folder / "run").mkdir()
        with node.entered():
            etcd = Etcd(folder / "etcd")
        world = World(node, outside, etcd, folder, stack)
        stack.callback(_end, world)
        with node.entered():
            yield world


def _end(world: World) -> None:
    if world.process is not None and world.process.poll() is None:
        world.process.kill()
        world.process.wait()
    world.etcd.stop()
