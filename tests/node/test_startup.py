"""Start-up in a network namespace of its own, with an etcd inside: what is registered, and when."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from libcalico.errors import InvalidValue, MuslinError
from node import startup
from tests.support.etcd import Etcd
from tests.support.netns import Namespace, network_namespace

RESOURCES = "/calico/resources/v3/projectcalico.org/"
CALICO_NODE = [sys.executable, "-m", "node.main"]


@pytest.fixture
def machine() -> Iterator[Namespace]:
    """A machine with a docker bridge and one real interface, 10.99.1.1/24 and an IPv6 address."""
    with network_namespace("node") as space, space.entered():
        for name, *addresses in (
            ("docker0", "172.17.0.1/16"),
            ("eth0", "10.99.1.1/24", "fd99:1::1/64"),
        ):
            space.run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-far")
            for address in addresses:
                nodad = ["nodad"] if ":" in address else []
                space.run("ip", "address", "add", address, "dev", name, *nodad)
            space.run("ip", "link", "set", name, "up")
        yield space


@pytest.fixture
def etcd_inside(machine: Namespace, tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
def environ(etcd_inside: Etcd, tmp_path: Path) -> dict[str, str]:
    return {
        **etcd_inside.environment(),
        "NODENAME": "node1",
        "CALICO_NODENAME_FILE": str(tmp_path / "lib" / "nodename"),
    }


def start(environ: dict[str, str], **more: str) -> str:
    return asyncio.run(startup.start_up(environ | more))[0]


def resource(etcd: Etcd, path: str) -> Any:
    raw = etcd.get(RESOURCES + path)
    return json.loads(raw) if raw else None


def test_a_first_node(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    assert (
        start(environ, IP="autodetect", IP6="autodetect", AS="64513", CLUSTER_TYPE="bgp") == "node1"
    )
    node = resource(etcd_inside, "nodes/node1")
    assert node["spec"]["bgp"] == {
        "asNumber": 64513,
        "ipv4Address": "10.99.1.1/24",
        "ipv6Address": "fd99:1::1/64",
    }
    shown = {one["name"]: one["addresses"] for one in node["spec"]["interfaces"]}
    assert shown == {"eth0": ["10.99.1.1", "fd99:1::1"]}
    pool = resource(etcd_inside, "ippools/default-ipv4-ippool")["spec"]
    assert (pool["cidr"], pool["natOutgoing"]) == ("192.168.0.0/16", True)
    assert resource(etcd_inside, "ippools/default-ipv6-ippool")["spec"]["cidr"].endswith("::/48")
    info = resource(etcd_inside, "clusterinformations/default")["spec"]
    assert (info["clusterType"], info["datastoreReady"]) == ("bgp", True)
    default = resource(etcd_inside, "felixconfigurations/default")["spec"]
    assert (default["logSeverityScreen"], default["reportingInterval"]) == ("Info", "0s")
    own = resource(etcd_inside, "felixconfigurations/node.node1")["spec"]
    assert own["defaultEndpointToHostAction"] == "Return"
    assert resource(etcd_inside, "bgpconfigurations/default") is not None
    assert resource(etcd_inside, "ipamconfigurations/default") is not None
    assert Path(environ["CALICO_NODENAME_FILE"]).read_text() == "node1"


def test_a_second_start_writes_nothing(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    start(environ, IP="autodetect")
    before = etcd_inside.revision()
    start(environ, IP="autodetect")
    assert etcd_inside.revision() == before


def test_pools_only_where_wanted(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    start(environ, NO_DEFAULT_POOLS="true")
    assert etcd_inside.keys(RESOURCES + "ippools/") == []
    start(
        environ,
        CALICO_IPV4POOL_CIDR="10.65.0.0/16",
        CALICO_IPV4POOL_IPIP="CrossSubnet",
        CALICO_IPV6POOL_CIDR="none",
    )
    assert etcd_inside.keys(RESOURCES + "ippools/") == [RESOURCES + "ippools/default-ipv4-ippool"]
    assert resource(etcd_inside, "ippools/default-ipv4-ippool")["spec"]["ipipMode"] == "CrossSubnet"


@pytest.mark.promise("PAIN-6")
def test_a_default_pool_gives_way_to_routes_and_a_wished_one_is_refused(
    etcd_inside: Etcd, environ: dict[str, str]
) -> None:
    for network in ("192.168.128.0/24", "172.16.5.0/24"):
        subprocess.run(["ip", "route", "add", network, "via", "10.99.1.254"], check=True)
    try:
        with pytest.raises(InvalidValue, match=r"route 172\.16\.5\.0/24 via eth0; free are ") as e:
            start(environ, CALICO_IPV4POOL_CIDR="172.16.0.0/16")
        assert e.value.field == "CALICO_IPV4POOL_CIDR"
        assert "CALICO_POOL_ALLOW_OVERLAP=true" in str(e.value)
        assert etcd_inside.keys(RESOURCES + "ippools/") == []
        start(environ)
        pool = resource(etcd_inside, "ippools/default-ipv4-ippool")["spec"]
        assert pool["cidr"] == "172.18.0.0/16", "docker0 has 172.17.0.0/16"
        etcd_inside.delete(RESOURCES + "ippools/")
        start(environ, CALICO_IPV4POOL_CIDR="172.16.0.0/16", CALICO_POOL_ALLOW_OVERLAP="true")
        pool = resource(etcd_inside, "ippools/default-ipv4-ippool")["spec"]
        assert pool["cidr"] == "172.16.0.0/16"
    finally:
        for network in ("192.168.128.0/24", "172.16.5.0/24"):
            subprocess.run(["ip", "route", "del", network], check=True)


def test_what_the_operator_set_stays(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    start(environ, IP="10.99.1.1")
    node = resource(etcd_inside, "nodes/node1")
    assert node["spec"]["bgp"] == {"ipv4Address": "10.99.1.1/24"}
    node["metadata"]["labels"] = {"rack": "a"}
    node["spec"]["futureField"] = {"x": 1}
    etcd_inside.put(RESOURCES + "nodes/node1", json.dumps(node))
    start(environ, AS="64514")
    after = resource(etcd_inside, "nodes/node1")
    assert after["metadata"]["labels"] == {"rack": "a"}
    assert after["spec"]["futureField"] == {"x": 1}
    assert after["spec"]["bgp"] == {"asNumber": 64514, "ipv4Address": "10.99.1.1/24"}


def test_an_address_that_another_node_has(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    start(environ)
    other = {"NODENAME": "node2", "CALICO_NODENAME_FILE": environ["CALICO_NODENAME_FILE"] + "2"}
    with pytest.raises(MuslinError, match=r"Node\(node2\): the address 10\.99\.1\.1 belongs to"):
        start(environ | other)
    assert resource(etcd_inside, "nodes/node2") is None
    assert not Path(other["CALICO_NODENAME_FILE"]).exists()
    assert start(environ | other, DISABLE_NODE_IP_CHECK="true") == "node2"


def test_no_address_is_refused(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    with pytest.raises(MuslinError, match="IP_AUTODETECTION_METHOD"):
        start(environ, IP_AUTODETECTION_METHOD="interface=nothing")
    with pytest.raises(MuslinError, match="no address"):
        start(environ, IP="none")
    assert start(environ, CALICO_NETWORKING_BACKEND="none") == "node1"


def test_the_source_towards_a_host(machine: Namespace, environ: dict[str, str]) -> None:
    wish = {"IP_AUTODETECTION_METHOD": "can-reach=10.99.1.77"}
    asyncio.run(startup.start_up(environ | wish))
    with pytest.raises(MuslinError, match=r"can-reach=203\.0\.113\.1"):
        start(environ | {"NODENAME": "n2", "IP_AUTODETECTION_METHOD": "can-reach=203.0.113.1"})


def test_two_nodes_at_once_make_one_cluster(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    async def both() -> None:
        await asyncio.gather(
            *(
                startup.start_up(
                    environ
                    | {
                        "NODENAME": f"n{number}",
                        "IP": f"10.99.1.{number}",
                        "CALICO_NODENAME_FILE": f"{environ['CALICO_NODENAME_FILE']}{number}",
                    }
                )
                for number in range(1, 6)
            )
        )

    asyncio.run(both())
    assert len(etcd_inside.keys(RESOURCES + "nodes/")) == 5
    assert len(etcd_inside.keys(RESOURCES + "ippools/")) == 2


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_it_waits_for_the_datastore_and_says_so(
    etcd_inside: Etcd, environ: dict[str, str], tmp_path: Path
) -> None:
    etcd_inside.stop()
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*CALICO_NODE, "startup"], env=os.environ | environ, stderr=output
        )
    try:
        wait_for(lambda: "waiting for the datastore" in log.read_text())
        assert not Path(environ["CALICO_NODENAME_FILE"]).exists()
        etcd_inside.start()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert Path(environ["CALICO_NODENAME_FILE"]).read_text() == "node1"


def test_wrong_settings_end_at_once_with_one_sentence(environ: dict[str, str]) -> None:
    done = subprocess.run(
        [*CALICO_NODE, "run"],
        env=os.environ | environ | {"CALICO_NETWORKING_BACKEND": "vxlan"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "calico-node: CALICO_NETWORKING_BACKEND: 'vxlan' is not valid:"
        " allowed in this release: bird, none\n"
    )


@pytest.fixture
def node_process(environ: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`calico-node run` with /run and /var/lib of its own, as on a machine of its own."""
    for name in ("run", "lib"):
        (tmp_path / name).mkdir(exist_ok=True)
    script = 'mount --bind "$0/run" /run && mount --bind "$0/lib" /var/lib && exec "$@"'
    with (tmp_path / "node.log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", script, str(tmp_path), *CALICO_NODE, "run"],
            env=os.environ | environ | {"IP": "autodetect", "NO_DEFAULT_POOLS": "true"},
            stdout=log,
            stderr=log,
        )
    yield process
    process.kill()
    process.wait()
    if os.environ.get("SHOW_LOGS"):
        print((tmp_path / "node.log").read_text())


def children(parent: int) -> dict[str, int]:
    """Name as `ps` shows it to process id, of the living children."""
    command = ["ps", "--ppid", str(parent), "-o", "pid=,args="]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[1]: int(row[0]) for row in rows if len(row) >= 2}


def _replaced(parent: int, name: str, pid: int) -> bool:
    return children(parent).get(name, pid) != pid


@pytest.mark.promise("M-118")
@pytest.mark.promise("M-211")
def test_the_nodes_processes_bear_their_names_and_come_back(
    node_process: subprocess.Popen[bytes], machine: Namespace
) -> None:
    names = {"calico-felix", "calico-bgp", "calico-cni"}
    wait_for(lambda: names <= set(children(node_process.pid)))
    own = Path(f"/proc/{node_process.pid}/cmdline").read_bytes()
    assert own.startswith(b"calico-node")
    first = children(node_process.pid)
    for name in sorted(names):
        os.kill(first[name], signal.SIGKILL)
        killed = time.monotonic()
        wait_for(partial(_replaced, node_process.pid, name, first[name]))
        print(f"{name} is back after {time.monotonic() - killed:.3f} s")
    routes = machine.run("ip", "route", "show", "table", "all")
    node_process.terminate()
    assert node_process.wait(30) == 0
    assert machine.run("ip", "route", "show", "table", "all") == routes


def test_a_known_node_starts_its_agents_without_the_datastore(
    environ: dict[str, str],
    etcd_inside: Etcd,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Registered once; then etcd is away when the supervisor starts, and comes back."""
    assert start(environ, IP="autodetect", NO_DEFAULT_POOLS="true") == "node1"
    etcd_inside.kill()
    log = tmp_path / "node.log"
    process: subprocess.Popen[bytes] = request.getfixturevalue("node_process")
    names = {"calico-felix", "calico-bgp", "calico-cni"}
    wait_for(lambda: names <= set(children(process.pid)))
    before = children(process.pid)
    etcd_inside.start()
    wait_for(lambda: "is registered" in log.read_text())
    assert children(process.pid) == before, "registering disturbs nobody"
    process.terminate()
    assert process.wait(30) == 0
