"""Host endpoints from the datastore to packets, in both back ends.

pod 10.65.0.1 -- node 10.99.7.1 (eth0 has a host endpoint) -- outside 10.99.7.2
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.felix import talk
from tests.felix.in_kernel import mode
from tests.felix.stage import allow, conditions_of
from tests.felix.world import NODE, Pod, World, make_world
from tests.support.patience import HANG, wait_for

SERVICE = "10.96.0.10"


@dataclass
class Site:
    """The node with a pod, its outside, and host endpoints as the test wants them."""

    world: World
    node: Pod
    outside: Pod
    pod: Pod

    def endpoint(self, **spec: Any) -> None:
        value = {"node": NODE, "interfaceName": "eth0", **spec}
        self.world.put("hostendpoints", "own", "HostEndpoint", value, labels={"host": ""})

    def policy(self, name: str, **spec: Any) -> None:
        value = {"selector": "has(host)", "types": ["Ingress"], **spec}
        self.world.put("globalnetworkpolicies", name, "GlobalNetworkPolicy", value)

    def clear(self) -> None:
        for plural in ("hostendpoints", "globalnetworkpolicies"):
            place = f"/calico/resources/v3/projectcalico.org/{plural}/"
            self.world.etcd.ctl("del", "--prefix", place)

    def open(self, probe: str) -> bool:
        """`from to family protocol port`, such as `outside node 4 tcp 80`."""
        here, there, family, protocol, port = probe.split()
        client, server = getattr(self, here), getattr(self, there)
        reach = talk.tcp if protocol == "tcp" else talk.udp
        return reach(client, server, int(port), int(family))

    def comes_to(self, passes: str, fails: str, within: float = 8.0) -> None:
        """Within some seconds the first probes come through and the second do not."""
        good, bad = ([p.strip() for p in text.split(",") if p.strip()] for text in (passes, fails))
        last: set[str] = set()

        def right() -> bool:
            nonlocal last
            last = talk.at_once((*good, *bad), self.open)
            return last == set(good)

        try:
            wait_for(right, limit=within)
        except AssertionError:
            missing, leaked = sorted(set(good) - last), sorted(last - set(good))
            raise AssertionError(f"missing {missing}, leaked {leaked}") from None


@pytest.fixture(scope="module", params=["nft", "legacy", "nftables"])
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.environment |= mode(request.param)
        world.etcd.start()
        world.write_cluster()
        world.start_felix()
        world.wait_ready()
        pod = world.add_pod("a", "cali0a", "10.65.0.1", "fd65::1")
        world.outside.run("ip", "route", "add", "fd65::/48", "via", "2001:db8:7::1")
        node = Pod(world.node, "eth0", "10.99.7.1", "2001:db8:7::1")
        outside = Pod(world.outside, "eth0", "10.99.7.2", "2001:db8:7::2")
        site = Site(world, node, outside, pod)
        site.comes_to("outside node 4 tcp 80, outside pod 4 tcp 80, outside pod 6 tcp 80", "")
        yield site


@pytest.fixture
def site(built: Site) -> Iterator[Site]:
    """The site without host endpoints; those of the test are taken away."""
    yield built
    built.clear()
    built.comes_to("outside node 4 tcp 80, node outside 4 tcp 80", "")


@pytest.mark.promise("F-82")
@pytest.mark.promise("F-84")
def test_without_policy_only_failsafes_and_forwarded_traffic_pass(site: Site) -> None:
    site.endpoint()
    site.comes_to(
        "outside node 4 tcp 22, outside node 6 tcp 22, node outside 4 tcp 179,"
        "node outside 4 udp 53, outside pod 4 tcp 80, pod outside 4 tcp 80, pod outside 6 tcp 80,"
        "node pod 4 tcp 80",
        "outside node 4 tcp 80, outside node 6 tcp 80, node outside 4 tcp 80,node outside 6 tcp 80",
    )


@pytest.mark.promise("F-82")
def test_policy_and_profiles_open_the_host(site: Site) -> None:
    site.endpoint(interfaceName="", expectedIPs=["10.99.7.1"])
    site.policy("in", ingress=[allow(protocol="TCP", destination={"ports": [80]})])
    site.comes_to(
        "outside node 4 tcp 80, outside node 6 tcp 80",
        "outside node 4 tcp 81, outside node 6 tcp 81, node outside 4 tcp 80",
    )
    site.endpoint(profiles=["kns.default"])
    site.comes_to(
        "outside node 4 tcp 80, node outside 4 tcp 80, node outside 6 tcp 80",
        "outside node 4 tcp 81, outside node 4 tcp 22000",
    )


@pytest.mark.promise("F-84")
def test_failsafes_are_configured(site: Site) -> None:
    site.endpoint()
    world = site.world
    ports = [{"protocol": "TCP", "port": 7000},
             {"protocol": "TCP", "port": 7001, "net": "10.99.7.2/32"},
             {"protocol": "TCP", "port": 7002, "net": "10.99.9.0/24"}]  # fmt: skip
    world.put("felixconfigurations", "default", "FelixConfiguration",
              {"failsafeInboundHostPorts": ports, "failsafeOutboundHostPorts": []})  # fmt: skip
    try:
        site.comes_to(
            "outside node 4 tcp 7000, outside node 6 tcp 7000, outside node 4 tcp 7001",
            "outside node 6 tcp 7001, outside node 4 tcp 7002, outside node 4 tcp 22,"
            "node outside 4 tcp 179",
        )
    finally:
        world.delete("felixconfigurations", "default")
    site.comes_to("outside node 4 tcp 22", "outside node 4 tcp 7000")


@pytest.mark.promise("F-85")
def test_policy_before_translation_sees_the_ports_that_were_dialled(site: Site) -> None:
    site.endpoint(profiles=["kns.default"])
    world = site.world
    nat = translation("PREROUTING -p tcp --dport 30080", "10.65.0.1:80")
    kind = iptables_nat(world)
    world.node.run(*kind, "-A", *nat)
    try:
        wait_for(lambda: dial(site, "10.99.7.1", 30080))
        rules = [{"action": "Deny", "protocol": "TCP", "destination": {"ports": [30080]}}]
        site.policy("pre", ingress=rules, preDNAT=True, applyOnForward=True, order=1)
        wait_for(lambda: not dial(site, "10.99.7.1", 30080))
        # What none of its rules matches is left to others.
        site.comes_to("outside pod 4 tcp 80, outside node 4 tcp 80", "")
    finally:
        world.node.run(*kind, "-D", *nat)


@pytest.mark.promise("F-86")
def test_policy_on_what_passes_through(site: Site) -> None:
    site.endpoint()
    site.policy("plain", ingress=[allow(protocol="TCP", destination={"ports": [80]})])
    site.comes_to("outside pod 4 tcp 81", "outside node 4 tcp 81")
    site.policy(
        "forward",
        ingress=[allow(protocol="TCP", destination={"ports": [80, 22]})],
        applyOnForward=True,
    )
    site.comes_to(
        "outside pod 4 tcp 80, outside pod 6 tcp 80, pod outside 4 tcp 81, outside node 4 tcp 80",
        "outside pod 4 tcp 81, outside pod 6 tcp 81",
    )


@pytest.mark.promise("F-87")
def test_untracked_policy_needs_no_connections(site: Site) -> None:
    site.endpoint()
    world = site.world
    flow = {"protocol": "UDP", "destination": {"ports": [8080]}}
    site.policy(
        "quick",
        types=["Ingress", "Egress"],
        ingress=[allow(**flow), {"action": "Deny", "protocol": "UDP",
                                 "destination": {"ports": [8082]}}],
        egress=[allow(protocol="UDP", source={"ports": [8080]})],
        doNotTrack=True,
        applyOnForward=True,
    )  # fmt: skip
    site.policy("slow", ingress=[allow(protocol="UDP")])
    site.comes_to(
        "outside node 4 udp 8080, outside node 6 udp 8080, outside node 4 udp 8081",
        "outside node 4 udp 8082",
    )
    world.node.run("conntrack", "-F")
    assert talk.udp(site.outside, site.node, 8080, wait=HANG)
    assert talk.udp(site.outside, site.node, 8081, wait=HANG)
    known = world.node.run("conntrack", "-L", "-p", "udp")
    assert "dport=8081" in known
    assert "dport=8080" not in known


@pytest.mark.promise("F-82")
def test_all_interfaces_but_those_with_an_endpoint_of_their_own(site: Site) -> None:
    # The loopback is an interface too, and the datastore is there.
    inside = [allow(destination={"nets": ["127.0.0.0/8"]})]
    site.policy("inside", types=["Ingress", "Egress"], ingress=inside, egress=inside)
    site.endpoint(interfaceName="*")
    site.comes_to(
        "outside node 4 tcp 22, node pod 4 tcp 80, outside pod 4 tcp 80, pod outside 4 tcp 80",
        "outside node 4 tcp 80, node outside 4 tcp 80, outside node 6 tcp 80",
    )
    value = {"node": NODE, "interfaceName": "eth0", "profiles": ["kns.default"]}
    site.world.put("hostendpoints", "eth0", "HostEndpoint", value)
    site.comes_to("outside node 4 tcp 80, node outside 4 tcp 80", "")


@pytest.mark.promise("F-83")
def test_an_automatic_host_endpoint_opens_everything_that_no_policy_forbids(site: Site) -> None:
    """As kube-controllers writes it: every interface, the open profile, the node's labels."""
    labels = {
        "kubernetes.io/hostname": NODE,
        "zone": "a",
        "projectcalico.org/created-by": "calico-kube-controllers",
    }
    value = {
        "node": NODE,
        "interfaceName": "*",
        "expectedIPs": ["10.99.7.1", "2001:db8:7::1"],
        "profiles": ["projectcalico-default-allow"],
    }
    world = site.world
    world.put("hostendpoints", f"{NODE}-auto-hep", "HostEndpoint", value, labels=labels)
    # The datastore is on the node and is not to be shut out: policy is of one port only.
    forbidden = {"protocol": "TCP", "destination": {"ports": [81]}}
    policy = {
        "selector": f"kubernetes.io/hostname == '{NODE}'",
        "types": ["Ingress", "Egress"],
        "ingress": [{"action": "Deny", **forbidden}, allow()],
        "egress": [{"action": "Deny", **forbidden}, allow()],
    }
    wait_for(lambda: "cali-fh-any-interface-at-all" in everything(world))
    site.comes_to(
        "outside node 4 tcp 80, outside node 4 tcp 81, outside node 6 tcp 81,"
        "node outside 4 tcp 81, outside pod 4 tcp 81, pod outside 4 tcp 81, pod node 4 tcp 81,"
        "outside node 4 udp 8053",
        "",
    )
    site.policy("some", **policy)
    site.comes_to(
        "outside node 4 tcp 80, node outside 4 tcp 80, outside node 6 tcp 80,"
        # What passes through is not policy's without applyOnForward, what pods send to their node
        # is defaultEndpointToHostAction's.
        "outside pod 4 tcp 81, pod outside 4 tcp 81, pod node 4 tcp 81",
        "outside node 4 tcp 81, outside node 6 tcp 81, node outside 4 tcp 81",
    )
    # Another label, and it is of another policy's.
    world.put("hostendpoints", f"{NODE}-auto-hep", "HostEndpoint", value, labels={"zone": "b"})
    site.comes_to("outside node 4 tcp 81, node outside 4 tcp 81", "")
    # Rules of pods mean the node by its addresses.
    out = [allow(destination={"selector": "zone == 'b'"})]
    site.policy("pods", selector="has(app)", types=["Egress"], ingress=[], egress=out)
    world.put_endpoint("a", site.pod, labels={"app": "a"})
    try:
        site.comes_to("pod node 4 tcp 80, pod node 6 tcp 80", "pod outside 4 tcp 80")
    finally:
        world.put_endpoint("a", site.pod)


def test_what_the_host_sends_to_a_translated_address_is_judged_by_where_it_goes(site: Site) -> None:
    site.endpoint()
    world = site.world
    nat = translation(f"OUTPUT -d {SERVICE} -p tcp", "10.99.7.2:8080")
    kind = iptables_nat(world)
    world.node.run(*kind, "-A", *nat)
    try:
        site.policy("out", types=["Egress"], ingress=[],
                    egress=[allow(protocol="TCP", destination={"ports": [8080]})])  # fmt: skip
        wait_for(lambda: dial(site, SERVICE, 80, "node", listen=8080))
        site.policy("out", types=["Egress"], ingress=[],
                    egress=[allow(protocol="TCP", destination={"ports": [80]})])  # fmt: skip
        wait_for(lambda: not dial(site, SERVICE, 80, "node", listen=8080))
    finally:
        world.node.run(*kind, "-D", *nat)


def test_a_host_endpoint_without_an_interface_is_named(site: Site) -> None:
    site.endpoint(interfaceName="eth9")
    wait_for(lambda: conditions_of(site.world, "HostEndpoint(own)"))
    site.comes_to("outside node 4 tcp 80", "")


@pytest.mark.promise("F-84")
def test_policy_stays_in_force_and_a_restart_writes_nothing(site: Site) -> None:
    site.endpoint()
    site.policy("in", ingress=[allow(protocol="TCP", destination={"ports": [80]})])
    site.comes_to("outside node 4 tcp 80", "outside node 4 tcp 81")
    world = site.world
    # What was wanted before this test is swept by a felix that starts, if not before.
    world.stop_felix()
    world.start_felix()
    world.wait_ready()
    world.stop_felix()
    assert not site.open("outside node 4 tcp 81")
    world.start_felix()
    world.wait_ready()
    assert world.rule_writes == 0
    site.comes_to("outside node 4 tcp 80", "outside node 4 tcp 81")


def everything(world: World) -> str:
    """All rules of the node."""
    saved = ("iptables-nft-save", "iptables-legacy-save", "nft list ruleset")
    return "".join(world.node.run(*command.split(), check=False) for command in saved)


def translation(match: str, to: str) -> list[str]:
    return [*match.split(), "-j", "DNAT", "--to-destination", to]


def iptables_nat(world: World) -> list[str]:
    return ["iptables-legacy" if "iptables-legacy" in world.log() else "iptables-nft", "-t", "nat"]


def dial(site: Site, address: str, port: int, who: str = "outside", listen: int = 80) -> bool:
    """Whether a connection to an address that is translated to a listener comes about."""
    server, client = (site.outside if who == "node" else site.pod), getattr(site, who)
    with ExitStack() as stack:
        listener = server.space.call(lambda: socket.create_server((server.address, listen)))
        stack.callback(listener.close)
        caller = client.space.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        stack.callback(caller.close)
        caller.settimeout(talk.PATIENCE)
        try:
            caller.connect((address, port))
        except OSError:
            return False
        return True
