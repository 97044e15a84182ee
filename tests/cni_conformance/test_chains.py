"""Chains with the reference plugins behind us, with packets, a real felix and policy: section 17.

A client outside the node reaches the node by a cable; pods serve TCP. The lists are driven by
our client (`cni.client`), as a runtime drives them: prevResult, capabilities, cache, reverse DEL.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cni.client import Attachment, Client, Network, PluginFailed, parse
from cni.request.result_encoding import ResultDocument
from tests.cni.executable import FULL_SIZE
from tests.cni.world import WAITS, container_id
from tests.cni_conformance.registry import Checks
from tests.cni_conformance.stage import REFERENCE, Stage
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, wait_for

checks = Checks(fast_builds=("executable",))
checks.promise("ADV-6", "CHN-01", "CHN-12")
checks.promise("F-6", "CHN-05")
checks.promise("M-16", "CHN-11")
checks.promise("M-55", "CHN-13")
NODE_IP, OUTSIDE_IP = "10.98.0.1", "10.98.0.2"
PORT = 8080
RATE = 8_000_000
OURS = {
    "type": "calico",
    "ipam": {"type": "calico-ipam"},
    "policy": {"type": "k8s"},
    **WAITS,
}
PORTMAP = {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}}
BANDWIDTH = {"type": "bandwidth", "capabilities": {"bandwidth": True}}
TUNING = {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.arp_notify": "1"}}
FIREWALL = {"type": "firewall", "backend": "iptables"}
PTP = {
    "type": "ptp",
    "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
}
ALLOW = {"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]}
SERVE = """
import socket, sys
server = socket.create_server(("", int(sys.argv[1])), backlog=64)
print("ready", flush=True)
while True:
    peer, address = server.accept()
    peer.sendall(address[0].encode() + b" " + b"x" * int(sys.argv[2]))
    peer.close()
"""
FETCH = """
import socket, sys, time
began, total = time.monotonic(), b""
with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])) as peer:
    while data := peer.recv(65536):
        total += data
print(total.split()[0].decode(), len(total), time.monotonic() - began)
"""


@pytest.fixture(scope="module")
def _stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("chains"), {"FELIX_INTERFACEPREFIX": "cali,veth"})
    try:
        yield stage
    finally:
        stage.close()


class Site:
    """The node with a neighbour, and a client of plugin lists."""

    def __init__(self, stage: Stage, outside: Namespace) -> None:
        self.stage, self.outside = stage, outside
        self.folder = stage.fresh()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        shutil.copy(stage.build.plugin(), self.bin / "calico")
        shutil.copy(stage.build.plugin("calico-ipam"), self.bin / "calico-ipam")
        self.client = Client(
            path=[self.bin, REFERENCE],
            cache_folder=self.folder / "cache",
            environ={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "CNI_CALICO_SOCKET": str(stage.node.settings.socket),
                "CNI_CALICO_PENDING": str(stage.node.settings.pending),
            },
            timeout=HANG,
        )

    def network(self, *plugins: Any, version: str = "1.0.0", name: str = "chain") -> Network:
        """A list."""
        tree = {"cniVersion": version, "name": name, "plugins": plugins}
        return parse(json.dumps(tree).encode())

    def attachment(self, pod: Namespace, name: str = "web-1", **capabilities: Any) -> Attachment:
        """As a runtime describes a pod."""
        args = (
            ("IgnoreUnknown", "1"), ("K8S_POD_NAMESPACE", "default"), ("K8S_POD_NAME", name),
        )  # fmt: skip
        return Attachment(container_id(name), str(pod.path), "eth0", args, capabilities)

    @contextmanager
    def added(
        self, network: Network, name: str = "web-1", **capabilities: Any
    ) -> Iterator[tuple[Namespace, ResultDocument, Attachment]]:
        """A pod in a network, gone again at the end without a trace."""
        with self.stage.pod() as pod:
            to = self.attachment(pod, name, **capabilities)
            before = self.tables()
            try:
                yield pod, self.client.add(network, to), to
            finally:
                self.client.delete(network, to)
            self.stage.node.assert_clean()
            left = {
                line for line in self.tables() - before if name in line or to.container_id in line
            }
            assert left == set()

    def tables(self) -> set[str]:
        """The host's rules and links."""
        run = self.stage.node.space.run
        return {*run("iptables-save").splitlines(), *run("ip", "-o", "link").splitlines()}


def fetch(place: Namespace, address: str, port: int = PORT, patience: float = HANG) -> list[str]:
    """(peer as the server saw it, bytes, seconds), or nothing when there is no answer."""
    done = subprocess.run(
        place.command(sys.executable, "-c", FETCH, address, str(port), str(patience)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.split()


@contextmanager
def serving(pod: Namespace, port: int = 80, size: int = 10) -> Iterator[None]:
    """A TCP server inside."""
    process = pod.popen(sys.executable, "-c", SERVE, str(port), str(size), stdout=subprocess.PIPE)
    assert process.stdout
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def site(stage: Stage) -> Iterator[Site]:
    """The node with its neighbour and an allowing profile."""
    node = stage.node
    stage.put("Profile", "kns.default", ALLOW)
    with network_namespace("outside") as outside:
        node.space.run("ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1",
                       "netns", outside.name)  # fmt: skip
        try:
            node.space.run("ip", "address", "add", f"{NODE_IP}/24", "dev", "wire0")
            node.space.run("ip", "link", "set", "wire0", "up")
            node.space.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
            # Proxy ARP answers for 169.254.1.1 where the host itself has a way there.
            node.space.run("ip", "route", "add", "default", "via", OUTSIDE_IP)
            outside.run("ip", "address", "add", f"{OUTSIDE_IP}/24", "dev", "wire1")
            outside.run("ip", "link", "set", "wire1", "up")
            for network in ("10.65.0.0/24", "10.77.0.0/24", "10.244.7.0/24"):
                outside.run("ip", "route", "add", network, "via", NODE_IP)
            yield Site(stage, outside)
        finally:
            node.space.run("ip", "link", "del", "wire0", check=False)


def few(*versions: str) -> tuple[str, ...]:
    """All at full size, else the first and the last."""
    return versions if FULL_SIZE else (versions[0], versions[-1])


def address_of(result: ResultDocument) -> str:
    """The first address."""
    return str(result["ips"][0]["address"]).partition("/")[0]


MAPPING = [{"hostPort": PORT, "containerPort": 80, "protocol": "tcp"}]


@checks("CHN-01", "CHN-02", "CHN-03", "CHN-04")
def host_ports_meet_policy(stage: Stage) -> None:
    with site(stage) as here:
        network = here.network(OURS, PORTMAP)
        node = stage.node.space
        with here.added(network, portMappings=MAPPING) as (pod, result, _), serving(pod):
            assert fetch(here.outside, NODE_IP)[0] == OUTSIDE_IP, "policy sees the real client"
            assert fetch(node, NODE_IP)
            assert fetch(node, "127.0.0.1")
            assert fetch(pod, NODE_IP), "hairpin"
            # The hostPort is no way around policy: it is met behind the translation.
            deny = {
                "selector": "all()", "types": ["Ingress"],
                "ingress": [{"action": "Allow", "protocol": "TCP",
                             "source": {"nets": ["10.0.9.9/32"]},
                             "destination": {"ports": [80]}}],
            }  # fmt: skip
            stage.put("GlobalNetworkPolicy", "deny-web", deny)
            try:
                wait_for(lambda: not fetch(here.outside, NODE_IP, patience=1))
                wait_for(lambda: not fetch(here.outside, address_of(result), 80, patience=1))
            finally:
                stage.remove("globalnetworkpolicies", "deny-web")
            wait_for(lambda: fetch(here.outside, NODE_IP, patience=2))
            # And a policy that names the pod's own port lets it through.
            deny["ingress"][0]["source"] = {"nets": [f"{OUTSIDE_IP}/32"]}  # type: ignore[index]
            stage.put("GlobalNetworkPolicy", "allow-web", deny)
            try:
                time.sleep(1)
                assert fetch(here.outside, NODE_IP)
            finally:
                stage.remove("globalnetworkpolicies", "allow-web")
            rules = node.run("iptables-save", "-t", "nat")
            assert "CNI-HOSTPORT-DNAT" in rules
            used = "\n".join(
                line for line in node.run("iptables-save").splitlines() if "cali" in line
            )
            assert "0x2000/0x2000" not in used, "portmap's mark is not ours"
        assert f"--dport {PORT}" not in node.run("iptables-save", "-t", "nat")


@checks("CHN-05", "CHN-06", "CHN-07", "CAP-03")
def bandwidth_limits_both_ways(stage: Stage) -> None:
    limits = {"ingressRate": RATE, "ingressBurst": RATE, "egressRate": RATE, "egressBurst": RATE}
    size = 2_000_000  # 16 Mbit: burst and rate give it in one second, not at once
    with site(stage) as here:
        network = here.network(OURS, BANDWIDTH)
        with here.added(network, bandwidth=limits) as (pod, result, to), serving(pod, 80, size):
            assert any(link["name"].startswith("bwp") for link in result["interfaces"])
            out = fetch(here.outside, address_of(result), 80)
            assert float(out[2]) > 0.6, "what leaves the pod is held back"
            with serving(here.outside, 81, size):
                into = fetch(pod, OUTSIDE_IP, 81)
            assert float(into[2]) > 0.6, "what comes to the pod is held back"
            host = result["interfaces"][0]["name"]
            assert "tbf" in stage.node.space.run("tc", "qdisc", "show", "dev", host)
            here.client.check(network, to)
            # Felix programs the endpoint again and leaves the queue alone.
            stage.put("GlobalNetworkPolicy", "touch", ALLOW | {"selector": "all()"})
            time.sleep(1)
            assert "tbf" in stage.node.space.run("tc", "qdisc", "show", "dev", host)
            stage.remove("globalnetworkpolicies", "touch")
        with stage.pod() as pod:
            huge = {"ingressRate": 1, "ingressBurst": 2**36}
            to = here.attachment(pod, bandwidth=huge)
            with pytest.raises(PluginFailed):
                here.client.add(network, to)
            # Its DEL refuses as well, so libcni never comes to us: the kubelet's next try neither.
            here.client.delete(here.network(OURS), to)
        stage.node.assert_clean()


@checks("CHN-08", "CHN-09", "CHN-10", "PRV-04", "PRV-09", "PRV-10", "DEL-13", "CHK-04", "CRO-01")
def a_long_chain(stage: Stage) -> None:
    tuning = TUNING | {"mac": "02:11:22:33:44:55", "mtu": 1300}
    limits = {"ingressRate": RATE, "ingressBurst": RATE}
    with site(stage) as here:
        for version in few("0.4.0", "1.0.0"):
            network = here.network(OURS, tuning, PORTMAP, BANDWIDTH, FIREWALL, version=version)
            with here.added(network, portMappings=MAPPING, bandwidth=limits) as (pod, result, to):
                own = next(link for link in result["interfaces"] if link["name"] == "eth0")
                assert own["mac"] == "02:11:22:33:44:55"
                assert "mtu 1300" in pod.run("ip", "link", "show", "eth0")
                with serving(pod):
                    assert fetch(here.outside, NODE_IP)
                    assert fetch(here.outside, address_of(result), 80)
                # portmap 1.1.1 looks for its IPv4 rules among those of IPv6: always a complaint.
                rest = here.network(OURS, tuning, BANDWIDTH, FIREWALL, version=version)
                here.client.check(rest, to)


@checks("CHN-11", "ADD-06", "LIB-01")
def a_later_plugin_fails(stage: Stage) -> None:
    forbidden = {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.no_such_setting": "1"}}
    with site(stage) as here, stage.pod() as pod:
        network = here.network(OURS, PORTMAP, forbidden)
        to = here.attachment(pod, portMappings=MAPPING)
        with pytest.raises(PluginFailed) as failed:
            here.client.add(network, to)
        assert failed.value.plugin == "tuning"
        assert stage.node.in_use() == 1, "libcni undoes nothing by itself"
        here.client.delete(network, to)
        stage.node.assert_clean()
        assert "eth0" not in pod.run("ip", "link")
        assert f"--dport {PORT}" not in stage.node.space.run("iptables-save", "-t", "nat")


@checks("CHN-12")
def firewall_opens_nothing(stage: Stage) -> None:
    """Its CNI-FORWARD accepts whatever a pod sends, in front of us until felix has moved."""

    def felix_is_first() -> bool:
        rules = stage.node.space.run("iptables-save", "-t", "filter").splitlines()
        return "cali-FORWARD" in next(line for line in rules if line.startswith("-A FORWARD"))

    with site(stage) as here, here.added(here.network(OURS, FIREWALL)) as (pod, _, _):
        stage.put("GlobalNetworkPolicy", "no-egress", {"selector": "all()", "types": ["Egress"]})
        try:
            with serving(here.outside, 81):
                wait_for(lambda: not fetch(pod, OUTSIDE_IP, 81, 1))
            # One late answer looks closed as well.
            wait_for(felix_is_first)
        finally:
            stage.remove("globalnetworkpolicies", "no-egress")


@checks("CHN-13", "CAL-09", "PRV-06", "VER-15")
def the_list_of_the_documents(stage: Stage) -> None:
    """calico with host-local and usePodCidr, portmap, bandwidth, in four versions."""
    stage.node.etcd.ctl(
        "put", "/calico/resources/v3/projectcalico.org/nodes/node1",
        json.dumps({"kind": "Node", "apiVersion": "projectcalico.org/v3",
                    "metadata": {"name": "node1"}, "spec": {},
                    "status": {"podCIDRs": ["10.244.7.0/24"]}}),
    )  # fmt: skip
    with site(stage) as here:
        store = str(here.folder / "networks")
        ipam = {"type": "host-local", "subnet": "usePodCidr", "dataDir": store}
        ours = OURS | {"ipam": ipam}
        wait_for(lambda: _adds(here, here.network(ours)))
        for version in few("0.3.0", "0.3.1", "0.4.0", "1.0.0"):
            network = here.network(ours, PORTMAP, BANDWIDTH, version=version)
            with here.added(network, portMappings=MAPPING) as (pod, result, _):
                assert result["cniVersion"] == version
                assert address_of(result).startswith("10.244.7.")
                with serving(pod):
                    assert fetch(here.outside, NODE_IP)


def _adds(here: Site, network: Network) -> bool:
    with here.stage.pod() as pod:
        to = here.attachment(pod, "probe")
        try:
            here.client.add(network, to)
        except PluginFailed:
            return False
        finally:
            here.client.delete(network, to)
        return True


@checks("CHN-12", "CHN-14")
def other_neighbours(stage: Stage) -> None:
    with site(stage) as here:
        for behind in ({"type": "sbr"}, FIREWALL):
            network = here.network({"type": "loopback"}, OURS, behind)
            with here.added(network) as (pod, result, _), serving(pod):
                assert result["interfaces"][0]["name"] == "lo"
                # sbr moves the pod's routes to a table of its own and drops the default there.
                reached = fetch(here.outside, _ours(result), 80, HANG if behind is FIREWALL else 1)
                assert bool(reached) == (behind is FIREWALL)
        with stage.pod() as pod, pytest.raises(PluginFailed) as failed:
            here.client.add(here.network(PORTMAP, OURS), here.attachment(pod, portMappings=MAPPING))
        assert "chained plugin" in str(failed.value)
        stage.node.assert_clean()


def _ours(result: ResultDocument) -> str:
    found = [str(ip["address"]).partition("/")[0] for ip in result["ips"]]
    return next(address for address in found if address.startswith("10."))


@checks("CHN-15")
def as_the_delegate_of_flannel(stage: Stage) -> None:
    """What the flannel plugin builds for its delegate: its own name, host-local and extras."""
    with site(stage) as here:
        ipam = {
            "type": "host-local", "subnet": "10.244.7.0/24", "routes": [{"dst": "10.244.0.0/16"}],
            "dataDir": str(here.folder / "networks"),
        }  # fmt: skip
        delegate = {**OURS, "ipam": ipam, "ipMasq": True, "mtu": 1400, "hairpinMode": True}
        with here.added(here.network(delegate, name="cbr0")) as (pod, result, _):
            assert result["routes"] == [{"dst": "10.244.0.0/16"}]
            assert "10.244.0.0/16" in pod.run("ip", "route")
            assert "mtu 1400" in pod.run("ip", "link", "show", "eth0")


@checks("PRV-01", "PRV-02", "CFG-17")
def policy_only_behind_ptp(stage: Stage) -> None:
    """ "Canal": ptp with host-local connects the pod, felix enforces its policy."""
    only = {key: value for key, value in OURS.items() if key != "ipam"}
    with site(stage) as here:
        ptp = PTP | {"ipam": PTP["ipam"] | {"dataDir": str(here.folder / "networks")}}  # type: ignore[operator]
        for version in few("0.3.1", "1.0.0"):
            network = here.network(ptp, only, version=version)
            with here.added(network) as (pod, result, to), serving(pod):
                assert [link["name"] for link in result["interfaces"]][-1] == "eth0"
                assert stage.node.links() == [], "no cable of ours"
                assert stage.node.in_use() == 0
                ((_, endpoint),) = stage.node.endpoints().items()
                assert endpoint["spec"]["interfaceName"] == result["interfaces"][0]["name"]
                assert endpoint["spec"]["ipNetworks"] == [f"{address_of(result)}/32"]
                assert fetch(here.outside, address_of(result), 80)
                if version != "0.3.1":
                    here.client.check(network, to)
                stage.put(
                    "GlobalNetworkPolicy", "deny-all", {"selector": "all()", "types": ["Ingress"]}
                )
                try:
                    wait_for(lambda: not fetch(here.outside, address_of(result), 80, 1))
                finally:
                    stage.remove("globalnetworkpolicies", "deny-all")
                wait_for(lambda: fetch(here.outside, address_of(result), 80, 1))
        # A bridge's port is no place where felix could enforce: refused, nothing left.
        bridge = {**ptp, "type": "bridge", "bridge": "cni0", "isGateway": True}
        with stage.pod() as pod:
            network, to = here.network(bridge, only), here.attachment(pod)
            with pytest.raises(PluginFailed) as failed:
                here.client.add(network, to)
            assert "bridge" in str(failed.value)
            here.client.delete(network, to)
            # A name that no endpoint can have is refused as by an interface of ours.
            network, to = here.network(ptp, only), here.attachment(pod, "web-")
            with pytest.raises(PluginFailed) as failed:
                here.client.add(network, to)
            assert (failed.value.plugin, failed.value.error.code) == ("calico", 4)
            here.client.delete(network, to)
        stage.node.assert_clean()


@checks("VER-13", "DLG-13")
def a_list_of_1_1_0_needs_plugins_of_1_1_0(stage: Stage) -> None:
    with site(stage) as here, stage.pod() as pod:
        network = here.network(OURS, PORTMAP, version="1.1.0")
        to = here.attachment(pod, portMappings=MAPPING)
        with pytest.raises(PluginFailed) as failed:
            here.client.add(network, to)
        assert (failed.value.plugin, failed.value.error.code) == ("portmap", 1)
        only_ours = here.network(OURS, version="1.1.0")
        here.client.delete(only_ours, to)
        here.client.validate(only_ours)
        here.client.add(only_ours, to)
        here.client.status(only_ours)
        here.client.check(only_ours, to)
        here.client.gc(only_ours, set())
        stage.node.assert_clean()


test_conformance = checks.items()
