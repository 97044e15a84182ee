"""Every check on facts that pass and on facts that fail; none without both (NCK-1, NCK-2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_interface, ip_network
from typing import Any

import pytest

from node.checks import CHECKS, Facts, Verdict, report, run
from node.checks.datastore import covers
from node.checks.datastore_facts import Certificate, Endpoint, OtherNode, Pool, Store
from node.checks.facts import (
    Choice,
    CNIFile,
    Host,
    HostRoute,
    Kernel,
    KubeProxy,
    Kubernetes,
    NetLink,
    Network,
    Probe,
    Space,
)
from node.identity.autodetect import Interface
from node.kernel_modules import MODULES
from node.settings.environment import AddressSetting

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SERVED = Certificate(
    source="10.0.0.9:2379",
    subject="etcd",
    not_before=NOW - timedelta(days=10),
    not_after=NOW + timedelta(days=300),
    names=("10.0.0.9", "etcd.example"),
)
OWN = replace(SERVED, source="/etc/calico/calico.crt", subject="node")
URL = "https://10.0.0.9:2379"
ANSWERS = Probe(
    node="node2", address="10.0.0.6", small="answer", full="answer", size=1500, bgp="open"
)

GOOD = Facts(
    now=NOW,
    kernel=Kernel(
        release="6.1.0-18-amd64",
        modules={one.names[0]: "loaded" for one in MODULES},
        modules_known=True,
        sysctls={
            "net/ipv4/ip_forward": "1",
            "net/ipv6/conf/all/forwarding": "1",
            "net/ipv6/conf/all/disable_ipv6": "0",
            "net/ipv4/conf/all/rp_filter": "1",
            "net/netfilter/nf_conntrack_max": "262144",
            "net/netfilter/nf_conntrack_count": "10",
            "net/ipv4/neigh/default/gc_thresh3": "4096",
            "fs/inotify/max_user_instances": "512",
            "fs/inotify/max_user_watches": "65536",
        },
        iptables={"iptables-save": "iptables-save v1.8.9", "iptables-restore": "v1.8.9"},
        rules={"nft": 40, "legacy": 0},
        backend="nft",
        chains=("cali-FORWARD", "KUBE-SERVICES"),
        ipset="",
    ),
    host=Host(
        node_name="node1",
        nodename_file="node1",
        clock_synchronised=True,
        clock_error_seconds=0.01,
        spaces=(Space(path="/var/run/calico", writable=True, free_bytes=2**32),),
        open_files=65536,
        processes=frozenset({"calico-felix", "NetworkManager", "systemd-networkd"}),
        networkmanager_ignores=True,
        networkd_keeps_routes=True,
        listeners={179: "exabgp", 9099: "calico-felix", 22: "sshd"},
    ),
    network=Network(
        interfaces=(
            Interface("lo", (ip_interface("127.0.0.1/8"),)),
            Interface("eth0", (ip_interface("10.0.0.5/24"), ip_interface("2001:db8::5/64"))),
        ),
        links=(NetLink(name="eth0", mtu=1500), NetLink(name="cali123", mtu=1450, kind="veth")),
        routes=(
            HostRoute(dst=ip_network("0.0.0.0/0"), interface="eth0", protocol=3),
            HostRoute(dst=ip_network("10.0.0.0/24"), interface="eth0", protocol=2),
            HostRoute(dst=ip_network("192.168.1.0/26"), interface="eth0", protocol=109),
        ),
        address_settings={4: AddressSetting("autodetect"), 6: AddressSetting("autodetect")},
        choices={
            4: Choice(
                address="10.0.0.5/24",
                why="the first address found",
                interface="eth0",
                source_to_peers="10.0.0.5",
                peer="10.0.0.6",
            )
        },
        pod_mtu=1450,
    ),
    store=Store(
        configured=True,
        error="",
        milliseconds=3.0,
        endpoints=(
            Endpoint(url=URL, host="10.0.0.9", certificate=SERVED, clock=NOW, asked_at=NOW),
        ),
        files=(OWN,),
        key_modes={"/etc/calico/calico.key": 0o600},
        nodes=(
            OtherNode(name="node1", ipv4="10.0.0.5/24"),
            OtherNode(name="node2", ipv4="10.0.0.6/24"),
        ),
        pools=(
            Pool(
                name="pool",
                cidr=ip_network("192.168.0.0/16"),
                encapsulation="vxlan",
                cross_subnet=True,
            ),
        ),
        service_ranges=(ip_network("10.96.0.0/12"),),
    ),
    kubernetes=Kubernetes(
        kubelet=True,
        kube_proxy=KubeProxy(cluster_cidr="192.168.0.0/16"),
        files=(CNIFile(name="10-calico.conflist", types=("calico", "portmap", "calico-ipam")),),
        plugins=frozenset({"calico", "calico-ipam", "portmap", "loopback"}),
        directories={"containerd": ("/etc/cni/net.d", ("/opt/cni/bin",))},
    ),
    probes=(ANSWERS,),
)


def kernel(**changes: Any) -> Facts:
    return replace(GOOD, kernel=replace(GOOD.kernel, **changes))


def sysctl(name: str, value: str) -> Facts:
    return kernel(sysctls={**GOOD.kernel.sysctls, name: value})


def host(**changes: Any) -> Facts:
    return replace(GOOD, host=replace(GOOD.host, **changes))


def network(**changes: Any) -> Facts:
    return replace(GOOD, network=replace(GOOD.network, **changes))


def choice(**changes: Any) -> Facts:
    return network(choices={4: replace(GOOD.network.choices[4], **changes)})


def store(**changes: Any) -> Facts:
    return replace(GOOD, store=replace(GOOD.store, **changes))


def endpoint(**changes: Any) -> Facts:
    return store(endpoints=(replace(GOOD.store.endpoints[0], **changes),))


def kubernetes(**changes: Any) -> Facts:
    return replace(GOOD, kubernetes=replace(GOOD.kubernetes, **changes))


def probe(**changes: Any) -> Facts:
    return replace(GOOD, probes=(ANSWERS, replace(ANSWERS, node="node3", **changes)))


def without(name: str) -> Facts:
    kept = {key: how for key, how in GOOD.kernel.modules.items() if key != name}
    return kernel(modules=kept)


def test_where_rules_are_in_nftables_neither_iptables_nor_its_modules_are_asked_for() -> None:
    kept = {name: how for name, how in GOOD.kernel.modules.items() if name[:3] not in _XTABLES}
    facts = kernel(native=True, iptables={}, ipset="no such protocol", modules=kept)
    found = {one.check.id: one for one in run(facts, ["modules", "iptables", "ipset"])}
    assert {one.verdict for one in found.values()} == {Verdict.OK}
    assert "rules are in nftables" in found["iptables"].detail
    gone = {name: how for name, how in kept.items() if name != "nf_conntrack_netlink"}
    (only,) = run(kernel(native=True, modules=gone), ["modules"])
    assert (only.verdict is Verdict.OK, "nf_conntrack" in only.detail) == (False, True)


_XTABLES = ("ip_", "ip6", "ipt", "xt_")
FLANNEL = CNIFile(name="05-flannel.conflist", types=("flannel",))
OURS = GOOD.kubernetes.files[0]
ON_BRIDGE = Interface("docker0", (ip_interface("192.168.3.1/24"),))
BAD: list[tuple[str, Facts, str]] = [
    ("kernel-version", kernel(release="4.19.0-26-amd64"), "4.19.0"),
    ("modules", without("xt_set"), "xt_set (rules over sets)"),
    ("modules-optional", without("ipip"), "ipip"),
    ("iptables", kernel(iptables={}), "iptables-save, iptables-restore"),
    (
        "iptables",
        kernel(iptables={"iptables-save": "", "iptables-restore": "iptables-restore v1.6.1"}),
        "older than 1.8",
    ),
    ("iptables-backend", kernel(rules={"nft": 4, "legacy": 7}), "legacy: 7 rules"),
    ("ipset", kernel(ipset="no such protocol"), "no such protocol"),
    ("ip-forward", sysctl("net/ipv4/ip_forward", "0"), "although felix runs"),
    ("ip6-forward", sysctl("net/ipv6/conf/all/forwarding", "0"), "forwarding=0"),
    ("ipv6-enabled", sysctl("net/ipv6/conf/all/disable_ipv6", "1"), "off"),
    ("rp-filter", sysctl("net/ipv4/conf/all/rp_filter", "2"), "rp_filter=2"),
    ("conntrack-size", sysctl("net/netfilter/nf_conntrack_max", "65536"), "65536"),
    ("conntrack-size", sysctl("net/netfilter/nf_conntrack_count", "250000"), "in use 250000"),
    ("neighbour-table", sysctl("net/ipv4/neigh/default/gc_thresh3", "512"), "gc_thresh3=512"),
    ("inotify", sysctl("fs/inotify/max_user_instances", "64"), "64 instances"),
    ("other-rules", kernel(chains=("FLANNEL-POSTRTG", "CILIUM_FORWARD")), "CILIUM_FORWARD"),
    ("privileges", host(root=False), "not root"),
    ("hostname", host(name_error="NODENAME: 'A_B' is not valid"), "'A_B'"),
    ("hostname", host(node_name="localhost"), "many machines"),
    ("nodename-file", host(nodename_file="old"), "stored: old, now: node1"),
    ("clock-synchronised", host(clock_synchronised=False), "not synchronised"),
    ("clock-skew", endpoint(clock=NOW - timedelta(seconds=90)), "90 s ahead of"),
    ("clock-skew", endpoint(clock=NOW + timedelta(seconds=20)), "20 s behind"),
    ("directories", host(spaces=(Space(path="/var/lib/calico", writable=False),)), "/var/lib"),
    ("disk-space", host(spaces=(Space(path="/x", writable=True, free_bytes=2**20),)), "1 MiB"),
    (
        "disk-space",
        host(spaces=(Space(path="/x", writable=True, free_bytes=2**40, free_inodes_percent=0.2),)),
        "0 % of the inodes",
    ),
    ("open-files", host(open_files=1024), "1024"),
    ("firewalld", host(processes=frozenset({"firewalld"})), "firewalld"),
    ("networkmanager", host(networkmanager_ignores=False), "not among"),
    ("systemd-networkd", host(networkd_keeps_routes=False), "ManageForeignRoutes"),
    ("secrets-in-environment", host(secret_variables=("ETCD_PASSWORD",)), "ETCD_PASSWORD"),
    ("ports", host(listeners={9099: "prometheus"}), "FELIX_HEALTHPORT): prometheus"),
    ("bgp-port", host(listeners={179: "bird"}), "held by bird"),
    ("node-address", choice(address="", error="no IPv4 address was found"), "no IPv4 address"),
    ("node-address", choice(interface="docker0"), "local bridge"),
    ("node-address-local", choice(interface=""), "on no interface"),
    (
        "node-address-local",
        network(links=(NetLink(name="eth0", mtu=1500, up=False),)),
        "which is down",
    ),
    (
        "node-address-stored",
        store(nodes=(OtherNode(name="node1", ipv4="10.9.9.9/24"),)),
        "stored: 10.9.9.9/24",
    ),
    ("node-address-route", choice(source_to_peers="172.17.0.1"), "takes 172.17.0.1"),
    ("node-mask", choice(address="10.0.0.5/32"), "CrossSubnet pools: pool"),
    (
        "router-id",
        network(choices={6: Choice(address="2001:db8::5/64", interface="eth0")}),
        "CALICO_ROUTER_ID not set",
    ),
    ("other-links", network(links=(NetLink(name="flannel.1", mtu=1450),)), "flannel.1"),
    (
        "pool-host-overlap",
        network(interfaces=(*GOOD.network.interfaces, ON_BRIDGE)),
        "192.168.3.1/24 on docker0",
    ),
    (
        "pool-host-overlap",
        network(
            routes=(HostRoute(dst=ip_network("192.168.7.0/24"), interface="eth1", protocol=4),)
        ),
        "the route to 192.168.7.0/24 by eth1",
    ),
    (
        "pool-service-overlap",
        store(service_ranges=(ip_network("192.168.128.0/17"),)),
        "services 192.168.128.0/17",
    ),
    ("mtu", network(pod_mtu=1500), "pods 1500 + encapsulation 50, interface 1500"),
    ("mtu", network(links=(NetLink(name="eth0", mtu=576),)), "576"),
    ("mtu-probe", probe(full="silent"), "1500 bytes with DF to node3 10.0.0.6: silent"),
    ("mtu-probe", probe(full="too big: a router says"), "too big"),
    ("nodes-reachable", probe(small="silent", bgp="filtered"), "node3"),
    ("bgp-peers", probe(bgp="refused"), "refused: node3"),
    ("bgp-peers", probe(bgp="filtered"), "filtered: node3"),
    ("datastore-config", store(config_error="etcdKeyFile: no"), "etcdKeyFile"),
    ("datastore-endpoints", endpoint(error="Connection refused"), "Connection refused"),
    ("datastore-reachable", store(error="permission denied"), "permission denied"),
    ("datastore-latency", store(milliseconds=250.0), "250.0 ms"),
    ("tls-files", store(file_errors=("/x.key: Permission denied",)), "/x.key"),
    ("tls-files", store(files=(Certificate(source="/x", error="no PEM"),)), "/x: no PEM"),
    ("tls-key-mode", store(key_modes={"/x.key": 0o644}), "0644"),
    ("tls-dates", store(files=(replace(OWN, not_after=NOW - timedelta(days=1)),)), "expired"),
    (
        "tls-dates",
        endpoint(certificate=replace(SERVED, not_before=NOW + timedelta(days=1))),
        "valid from 2026-11-22",
    ),
    ("tls-dates", store(files=(replace(OWN, not_after=NOW + timedelta(days=9)),)), "expires first"),
    ("tls-san", endpoint(host="10.0.0.8"), "names: 10.0.0.9, etcd.example"),
    ("tls-chain", endpoint(verify_error="self-signed certificate"), "self-signed"),
    ("datastore-locked", store(locked=True), "locked"),
    (
        "duplicate-node-name",
        replace(
            host(nodename_file=""),
            store=replace(GOOD.store, nodes=(OtherNode(name="node1", ipv4="10.0.0.77/24"),)),
        ),
        "10.0.0.77/24, which is not this machine",
    ),
    (
        "duplicate-node-address",
        store(nodes=(OtherNode(name="node9", ipv4="10.0.0.5/16"),)),
        "Node(node9)",
    ),
    (
        "kube-proxy-cluster-cidr",
        kubernetes(kube_proxy=KubeProxy(cluster_cidr="10.244.0.0/16")),
        "outside: IPPool(pool) 192.168.0.0/16",
    ),
    (
        "kube-proxy-masquerade-all",
        kubernetes(kube_proxy=KubeProxy(masquerade_all=True)),
        "--masquerade-all",
    ),
    ("cni-config", kubernetes(files=(replace(OURS, error="not JSON"),)), "not JSON"),
    ("cni-config", kubernetes(files=(FLANNEL,)), "names the plugin calico"),
    ("cni-config-first", kubernetes(files=(FLANNEL, OURS)), "sorts before 10-calico.conflist"),
    ("cni-plugins", kubernetes(plugins=frozenset({"calico", "calico-ipam"})), "portmap"),
    (
        "cni-directories",
        kubernetes(directories={"containerd": ("/etc/cni/net.d", ("/usr/lib/cni",))}),
        "containerd runs /usr/lib/cni",
    ),
    (
        "cni-directories",
        kubernetes(directories={"kubelet": ("/etc/kubernetes/cni", ())}),
        "kubelet reads /etc/kubernetes/cni",
    ),
    ("cni-loopback", kubernetes(plugins=frozenset({"calico"})), "not in"),
]
WARNS_ALTHOUGH_REQUIRED = {
    "local bridge",
    "names the plugin calico",
    "20 s behind",
    "expires first",
}


def test_everything_passes_on_a_good_machine() -> None:
    for one in run(GOOD):
        assert one.verdict is Verdict.OK, (one.check.id, one.detail)


@pytest.mark.promise("F-105")
@pytest.mark.parametrize(("name", "facts", "said"), BAD, ids=[f"{b[0]}-{b[2]}" for b in BAD])
def test_a_check_finds_what_is_wrong(name: str, facts: Facts, said: str) -> None:
    (found,) = run(facts, [name])
    assert said in found.detail
    harmless = said in WARNS_ALTHOUGH_REQUIRED
    wanted = Verdict.FAILED if found.check.required and not harmless else Verdict.WARNING
    assert found.verdict is wanted


def test_every_check_can_fail_and_says_why_and_what_to_do() -> None:
    assert {name for name, _, _ in BAD} == {one.id for one in CHECKS}
    assert len(CHECKS) >= 30
    for one in CHECKS:
        assert one.cause.endswith(".")
        assert len(one.fix) > 15


def test_without_facts_nothing_fails() -> None:
    found = run(
        Facts(now=NOW, host=Host(node_name="n"), kernel=Kernel(iptables=GOOD.kernel.iptables))
    )
    assert {one.check.id for one in found if one.verdict is Verdict.FAILED} == {"node-address"}


def test_exit_and_report() -> None:
    passed = run(GOOD)
    assert not report.failed(passed)
    assert report.tree(passed)["passed"] is True
    broken = run(host(listeners={179: "bird"}))
    assert [one.check.id for one in report.failed(broken)] == ["bgp-port"]
    text = report.table(broken)
    row = next(line for line in text.splitlines() if line.startswith("bgp-port "))
    assert row.split()[1:] == ["FAILED", "held", "by", "bird"]
    assert "cause: Another BGP daemon" in text
    assert "fix:   Stop the other daemon" in text
    assert text.endswith(
        f"{len(CHECKS)} checks: {len(CHECKS) - 1} ok, 0 warnings, 1 failed, 0 skipped\n"
    )
    assert report.tree(broken)["passed"] is False


def test_names_of_certificates() -> None:
    assert covers("*.example", "etcd.example")
    assert not covers("*.example", "a.etcd.example")
    assert covers("ETCD.example", "etcd.example.")
    assert not covers("etcd.example", "example")
    assert covers("2001:db8:0:0::1", "2001:db8::1")
    assert not covers("10.0.0.1", "10.0.0.2")


def test_a_mask_of_32_without_cross_subnet_harms_nobody() -> None:
    facts = replace(choice(address="10.0.0.5/32"), store=replace(GOOD.store, pools=()))
    assert run(facts, ["node-mask"])[0].verdict is Verdict.OK
