"""`calico-node checksystem` on real machines: network namespaces, a real etcd, a narrow path."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.checks.datastore_facts import OtherNode
from node.checks.facts import Probe
from node.gather import certificates, host, kernel, kubernetes, places, probes
from node.kernel_modules import MODULES, present
from tests.support import unhurried
from tests.support.certificates import make_certificates
from tests.support.etcd import Etcd, free_ports
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, wait_for

COMMAND = [
    *unhurried.command(
        "node.main", "node.gather.certificates:TIMEOUT", "node.gather.kernel:_LIMIT"
    ),
    "checksystem",
]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


def check(
    *arguments: str, environ: dict[str, str] | None = None, inside: Namespace | None = None
) -> tuple[int, dict[str, dict[str, Any]], str]:
    words = [*COMMAND, "-o", "json", *arguments]
    clean = {name: value for name, value in os.environ.items() if "ETCD" not in name}
    done = subprocess.run(
        inside.command(*words) if inside else words,
        capture_output=True,
        text=True,
        env={**clean, "NODENAME": "node1", **(environ or {})},
        timeout=HANG,
        check=False,
    )
    assert done.stdout, done.stderr
    tree = json.loads(done.stdout)
    assert tree["passed"] == (done.returncode == 0)
    return done.returncode, {one["id"]: one for one in tree["checks"]}, done.stderr


@pytest.fixture
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    """Two nodes, 10.99.7.1 and 10.99.7.2, with a router between that carries 1400 bytes.

    The router drops what does not fit and says nothing: the black hole of pain 21.
    """
    with (
        network_namespace("a") as a,
        network_namespace("r") as router,
        network_namespace("b") as b,
    ):
        for node, number in ((a, 1), (b, 2)):
            node.run(
                "ip",
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                f"p{number}",
                "netns",
                router.name,
            )
            router.run("ip", "address", "add", f"10.99.{number}.254/24", "dev", f"p{number}")
            router.run("ip", "link", "set", f"p{number}", "up")
            node.run("ip", "address", "add", f"10.99.{number}.1/24", "dev", "eth0")
            node.run("ip", "link", "set", "eth0", "up")
            node.run("ip", "route", "add", "default", "via", f"10.99.{number}.254")
        router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        yield a, b


SILENCE = 0.5
"""Seconds for an answer that cannot come."""
PEER = [OtherNode(name="node2", ipv4="10.99.2.1/24")]


def ask(
    space: Namespace, size: int, *, small: float = HANG, full: float = HANG, bgp: float = HANG
) -> Probe:
    """`small`, `full`, `bgp`: seconds for an answer; where none comes they pass, for each try."""
    echo, connect = probes.echo, probes.connect
    with space.entered(), pytest.MonkeyPatch.context() as patch:

        def echoed(address: str, octets: int) -> str:
            patch.setattr(probes, "TIMEOUT", small if octets == probes.SMALL else full)
            return echo(address, octets)

        def connected(address: str, port: int) -> str:
            patch.setattr(probes, "TIMEOUT", bgp)
            return connect(address, port)

        patch.setattr(probes, "echo", echoed)
        patch.setattr(probes, "connect", connected)
        return asyncio.run(probes.probe(PEER, {4: size}, bgp=True))[0]


@pytest.mark.promise("PAIN-21")
@pytest.mark.promise("F-105")
def test_a_path_that_loses_large_packets_is_found(pair: tuple[Namespace, Namespace]) -> None:
    a, b = pair
    found = ask(a, 1500)
    assert (found.small, found.full, found.bgp) == ("answer", "answer", "refused")
    # The far side's interface is narrow, and nobody is told.
    b.run("ip", "link", "set", "eth0", "mtu", "1400")
    b.run("iptables", "-A", "INPUT", "-m", "length", "--length", "1401:", "-j", "DROP")
    found = ask(a, 1500, full=SILENCE)
    assert (found.small, found.full) == ("answer", "silent")
    # Its own interface is narrow: the kernel itself refuses.
    a.run("ip", "link", "set", "eth0", "mtu", "1400")
    assert ask(a, 1500).full.startswith("too big for this machine")
    assert ask(a, 1400).full == "answer"
    b.run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "179", "-j", "DROP")
    assert ask(a, 1400, bgp=SILENCE).bgp == "filtered"
    b.run("ip", "link", "set", "eth0", "down")
    assert ask(a, 1400, small=SILENCE, bgp=SILENCE).small in ("silent", "no route")


@pytest.mark.promise("F-105")
def test_in_a_namespace_of_its_own(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.run("ip", "link", "add", "flannel.1", "type", "bridge")
    a.run("ip", "address", "add", "10.99.1.7/32", "dev", "flannel.1")
    a.run("iptables", "-N", "FLANNEL-FWD")
    a.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=2", "net.ipv4.ip_forward=1")
    code, found, _ = check(
        "--offline",
        environ={"IP": "autodetect", "IP_AUTODETECTION_METHOD": "interface=eth.*"},
        inside=a,
    )
    # Where a runtime of this machine looks for plugins is the machine's own affair.
    failed = {one["id"] for one in found.values() if one["result"] == "failed" and one["required"]}
    assert failed <= {"cni-directories"}, [found[name] for name in failed]
    assert code == (1 if failed else 0)
    assert found["node-address"]["found"].startswith("10.99.1.1/24: the first address found by")
    assert found["node-mask"]["result"] == "ok"
    assert found["other-links"]["found"] == "flannel.1"
    assert "FLANNEL-FWD" in found["other-rules"]["found"]
    assert found["rp-filter"]["result"] == "warning"
    assert found["bgp-port"]["found"] == "free"
    code, found, _ = check("--offline", environ={"IP": "10.99.9.9"}, inside=a)
    assert code == 1
    assert found["node-address-local"]["found"] == "10.99.9.9/32 is on no interface"


def test_another_daemon_on_port_179(pair: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    a, _ = pair
    (tmp_path / "bird.conf").write_text(
        "router id 10.99.1.1;\nprotocol device {}\n"
        "protocol bgp x { local 10.99.1.1 as 1; neighbor 10.99.2.1 as 1; multihop; ipv4 {}; }\n"
    )
    daemon = a.popen("bird", "-f", "-c", f"{tmp_path}/bird.conf", "-s", f"{tmp_path}/bird.ctl")
    try:
        wait_for(lambda: ":179" in a.run("ss", "-tln"), "BIRD does not listen")
        code, found, _ = check("--offline", "--only", "bgp-port", inside=a)
    finally:
        daemon.kill()
        daemon.wait()
    assert code == 1
    assert found["bgp-port"]["found"] == "held by bird"


def test_a_real_etcd_with_nodes_and_pools(etcd: Etcd) -> None:
    etcd.put(
        "/calico/resources/v3/projectcalico.org/nodes/other",
        '{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"other"},'
        '"spec":{"bgp":{"ipv4Address":"127.0.0.1/8"}}}',
    )
    etcd.put(
        "/calico/resources/v3/projectcalico.org/ippools/p",
        '{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"p"},'
        '"spec":{"cidr":"127.0.0.0/8"}}',
    )
    code, found, _ = check(environ=etcd.environment())
    assert code == 1
    assert found["datastore-reachable"]["result"] == "ok"
    assert found["clock-skew"]["result"] == "ok"
    assert "127.0.0.1/8 on lo" in found["pool-host-overlap"]["found"]
    code, found, _ = check(environ={"ETCD_ENDPOINTS": "http://127.0.0.1:1"})
    assert code == 1
    assert "Connection refused" in found["datastore-endpoints"]["found"]


def test_certificates_of_a_real_endpoint(tmp_path: Path, make_etcd: Any) -> None:
    made = make_certificates(tmp_path / "tls", ["127.0.0.1"])
    stranger = make_certificates(tmp_path / "other")
    server = make_etcd(
        "tls",
        (
            f"--cert-file={made.server_cert}",
            f"--key-file={made.server_key}",
            f"--trusted-ca-file={made.ca}",
        ),
        "https",
    )
    server.ctl_flags = [
        f"--cacert={made.ca}",
        f"--cert={made.client_cert}",
        f"--key={made.client_key}",
    ]
    server.start()
    files = {"ETCD_CERT_FILE": str(made.client_cert), "ETCD_KEY_FILE": str(made.client_key)}
    url = {"ETCD_ENDPOINTS": server.endpoint}
    code, found, told = check(environ={**url, **files, "ETCD_CA_CERT_FILE": str(made.ca)})
    for name in ("tls-files", "tls-key-mode", "tls-san", "tls-chain"):
        assert found[name]["result"] == "ok", (found[name], told)
    # Made for thirty days: near enough its end for a warning.
    assert "expires first" in found["tls-dates"]["found"]
    code, found, _ = check(environ={**url, **files, "ETCD_CA_CERT_FILE": str(stranger.ca)})
    assert code == 1
    assert found["tls-chain"]["result"] == "failed"
    by_name = {"ETCD_ENDPOINTS": server.endpoint.replace("127.0.0.1", "localhost")}
    code, found, _ = check(environ={**by_name, **files, "ETCD_CA_CERT_FILE": str(made.ca)})
    assert found["tls-san"]["found"].endswith("names: 127.0.0.1")
    mixed = {**files, "ETCD_KEY_FILE": str(stranger.client_key)}
    _, found, _ = check(environ={**url, **mixed, "ETCD_CA_CERT_FILE": str(made.ca)})
    assert "do not fit" in found["tls-files"]["found"]


def test_the_last_line_and_wrong_flags(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--only", "kernel-version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.endswith("System meets minimum system requirements to run Calico!\n")
    for arguments, said in (
        (["--only", "nonsense"], "there is no check 'nonsense' (allowed: kernel-version"),
        (["-f", str(tmp_path / "none")], "--kernel-config"),
    ):
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert said in done.stderr


def test_a_kernel_configuration_and_module_lists(tmp_path: Path) -> None:
    on = kernel.switched_on("CONFIG_IP_SET=y\n# CONFIG_VXLAN is not set\nCONFIG_NET_IPIP=m\n")
    assert on == {"CONFIG_IP_SET", "CONFIG_NET_IPIP"}
    folder = tmp_path / "lib/modules/6.1"
    folder.mkdir(parents=True)
    (folder / "modules.builtin").write_text("kernel/net/netfilter/xt_mark.ko\n")
    (folder / "modules.dep").write_text("kernel/net/xt_set.ko.xz: kernel/net/ip_set.ko.xz\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/modules").write_text("vfio_pci 16384 0 - Live 0x0\n")
    found, known = present(MODULES, "6.1", on, tmp_path)
    assert known
    assert found["xt_mark"] == "built in"
    assert found["xt_set"] == "can be loaded"
    assert found["vfio-pci"] == "loaded"
    assert found["ip_set"] == found["ipip"] == "built in"
    assert "vxlan" not in found


def test_kubelet_kube_proxy_and_runtimes(tmp_path: Path) -> None:
    for pid, words in (
        (11, ["/usr/bin/kubelet", "--cni-conf-dir=/etc/x", "--cni-bin-dir", "/opt/y"]),
        (12, ["kube-proxy", "--config=/conf.yaml", "--masquerade-all"]),
    ):
        (tmp_path / f"proc/{pid}/root").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cmdline").write_bytes("\0".join(words).encode() + b"\0")
    (tmp_path / "proc/12/root/conf.yaml").write_text("clusterCIDR: 10.244.0.0/16\nmode: ipvs\n")
    (tmp_path / "etc/containerd").mkdir(parents=True)
    (tmp_path / "etc/containerd/config.toml").write_text(
        'version = 3\n[plugins."io.containerd.cri.v1.runtime".cni]\n'
        'bin_dirs = ["/opt/cni/bin", "/usr/lib/cni"]\nconf_dir = "/etc/cni/net.d"\n'
    )
    net = tmp_path / "net.d"
    net.mkdir()
    (net / "10-calico.conflist").write_text(
        '{"plugins": [{"type": "calico", "ipam": {"type": "calico-ipam"}}, {"type": "portmap"}]}'
    )
    (net / "05-broken.conf").write_text("{")
    (net / "00-ignored.txt").write_text("{")
    found = kubernetes.read(net, tmp_path / "none", tmp_path)
    assert found.kubelet
    assert found.kube_proxy is not None
    assert found.kube_proxy.cluster_cidr == "10.244.0.0/16"
    assert found.kube_proxy.masquerade_all
    assert found.directories["kubelet"] == ("/etc/x", ("/opt/y",))
    assert found.directories["containerd"] == ("/etc/cni/net.d", ("/opt/cni/bin", "/usr/lib/cni"))
    assert [one.name for one in found.files] == ["05-broken.conf", "10-calico.conflist"]
    assert found.files[0].error
    assert found.files[1].types == ("calico", "portmap", "calico-ipam")


def test_managers_of_foreign_interfaces(tmp_path: Path) -> None:
    assert host.unmanaged(tmp_path / "none") is None
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "networkd.conf.d").mkdir()
    assert host.unmanaged(tmp_path) is False
    assert host.foreign_routes_kept(tmp_path) is False
    (tmp_path / "conf.d/calico.conf").write_text(
        "[keyfile]\nunmanaged-devices=interface-name:cali*;interface-name:tunl*\n"
    )
    (tmp_path / "networkd.conf.d/x.conf").write_text("[Network]\nManageForeignRoutes=no\n")
    assert host.unmanaged(tmp_path) is True
    assert host.foreign_routes_kept(tmp_path) is True


def test_a_listener_has_a_name() -> None:
    (port,) = free_ports(1)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", port))
        listening.listen()
        found = host.listeners(dict(host.processes()))
    assert found is not None
    assert found[port]


def test_secrets_of_the_environment_are_named() -> None:
    assert host.secret_variables(
        {"ETCD_PASSWORD": "x", "ETCD_KEY_FILE": "/k", "K8S_TOKEN": "/run/t", "PASSWORD": "y"}
    ) == ("ETCD_PASSWORD",)


def test_a_certificate_file_that_is_none() -> None:
    assert certificates.from_pem("hello", "/x")[0].error == "holds no certificate in PEM form"


def test_a_container_answers_for_the_directories_that_it_has(tmp_path: Path) -> None:
    """As in the manifest: /var/run/calico at its place, the configuration below /host."""
    file = tmp_path / "mounts"
    file.write_text("overlay / overlay rw 0 0\ntmpfs /run/calico tmpfs rw 0 0\nx /host/etc x\n")
    mounted = places.mounts(file)
    assert places.seen(Path("/var/run/calico"), mounted) == Path("/var/run/calico")
    assert places.seen(Path("/etc/cni/net.d"), mounted) == Path("/host/etc/cni/net.d")
    assert places.seen(Path("/opt/cni/bin"), mounted) is None
    assert places.mounts(tmp_path / "none") == ()
    assert places.contained({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, tmp_path)
    assert not places.contained({}, tmp_path)
    (tmp_path / ".dockerenv").touch()
    assert places.contained({}, tmp_path)


def test_in_a_pod_nothing_is_said_of_directories_of_the_host(tmp_path: Path) -> None:
    """The machine's own /opt/cni/bin is read-only here, and is not the host's."""
    shut = "mount -t tmpfs -o ro t /opt && mount -t tmpfs t /run && mkdir /run/calico"
    shut += " && mount -t tmpfs t /run/calico"
    command = [*COMMAND, "--offline", "-o", "json"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{shut} && exec "$@"', "sh", *command],
        env={**os.environ, "KUBERNETES_SERVICE_HOST": "10.96.0.1", "CNI_BIN_DIR": "/srv/cni/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {one["id"]: one for one in json.loads(done.stdout)["checks"]}
    told = found["directories"]["found"]
    assert "/srv/cni/bin" in told.partition("not in this container:")[2]
    assert found["cni-loopback"]["result"] != "failed"
