"""What containerd, CRI-O and the kubelet do with a network, played on one node: section 18.

Their habits as the checklist describes them (order, arguments, capabilities, repeated and late
DELs), through our client of plugins and through the bare executable; nothing of theirs runs here.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni.client import (
    Attachment,
    Client,
    Network,
    NetworkError,
    PluginFailed,
    load,
    parse,
    parse_single,
)
from tests.cni import test_daemon_faults
from tests.cni.world import NETWORK, container_id, network_config
from tests.cni_conformance.registry import Checks
from tests.cni_conformance.stage import REFERENCE, Stage
from tests.support.netns import Namespace
from tests.support.patience import HANG

checks = Checks(fast_builds=("executable",))
checks.promise("M-4", "CTD-01", "KBL-06")
LOOPBACK = {"type": "loopback"}


def client_of(stage: Stage) -> Client:
    """A runtime with an empty cache."""
    folder = stage.fresh()
    for name in ("calico", "calico-ipam"):
        shutil.copy(stage.build.plugin(name), folder / name)
    return Client(
        path=[folder, REFERENCE],
        cache_folder=folder / "cache",
        environ={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "CNI_CALICO_SOCKET": str(stage.node.settings.socket),
            "CNI_CALICO_PENDING": str(stage.node.settings.pending),
        },
        timeout=120,
    )


def network(*plugins: Any, version: str = "1.0.0", name: str = NETWORK, **more: Any) -> Network:
    """A list; without plugins, ours alone."""
    chain = plugins or (network_config(),)
    return parse(
        json.dumps({"cniVersion": version, "name": name, "plugins": chain, **more}).encode()
    )


def attachment(pod: Namespace, name: str = "web-1", order: Any = None, **more: Any) -> Attachment:
    """As containerd names a pod: the arguments in any order."""
    args = [
        ("K8S_POD_NAMESPACE", "default"), ("K8S_POD_NAME", name), ("K8S_POD_UID", "u-1"),
        ("K8S_POD_INFRA_CONTAINER_ID", container_id(name)), ("IgnoreUnknown", "1"),
    ]  # fmt: skip
    if order:
        args = [args[n] for n in order]
    return Attachment(container_id(name), str(pod.path), "eth0", tuple(args), **more)


@checks("CTD-01", "KBL-02")
def loopback_beside_us(stage: Stage) -> None:
    client = client_of(stage)
    loopbacks = [
        network(LOOPBACK, version="0.3.1", name="cni-loopback"),
        network(LOOPBACK, version="0.2.0", name="cni-loopback"),
    ]
    for loopback in loopbacks:
        with stage.pod() as pod, ThreadPoolExecutor(2) as pool:
            to = attachment(pod)
            lo = pool.submit(
                _inside, stage, lambda lo=loopback, to=to: client.add(lo, replace(to, ifname="lo"))
            )
            ours = pool.submit(_inside, stage, lambda to=to: client.add(network(), to))
            lo.result()
            assert ours.result()["interfaces"][1]["name"] == "eth0"
            client.delete(network(), to)
            client.delete(loopback, replace(to, ifname="lo"))
        stage.node.assert_clean()


def _inside(stage: Stage, call: Any) -> Any:
    with stage.node.space.entered():
        return call()


@checks("CTD-04", "CRO-03", "KBL-03", "ARG-03")
def arguments_in_any_order(stage: Stage) -> None:
    client = client_of(stage)
    orders = [*itertools.permutations(range(5))][::40]
    for order in orders:
        with stage.pod() as pod:
            to = attachment(pod, order=order)
            client.add(network(), to)
            assert list(stage.node.endpoints()) == ["node1-k8s-web--1-eth0"]
            client.delete(network(), to)
    address = "10.65.0.123"
    with stage.pod() as pod:
        plain = attachment(pod)
        more = (("IP", address), ("MAC", "02:00:00:00:00:01"))
        to = replace(plain, args=plain.args + more)
        assert client.add(network(), to)["ips"][0]["address"] == f"{address}/32"
        client.delete(network(), to)
    stage.node.assert_clean()


@checks("CTD-05", "CAP-01", "KBL-03")
def capabilities_as_they_are_sent(stage: Stage) -> None:
    from cni.client.documents import configured

    supplied: dict[str, Any] = {
        "portMappings": [{"HostPort": 8081, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""}],
        "bandwidth": {"IngressRate": 0, "EgressRate": 0},
        "dns": {"Servers": ["10.0.0.10"], "Searches": None, "Options": None},
        "ipRanges": [[{"subnet": "10.1.0.0/24"}]],
        "cgroupPath": "/kubepods/x",
        "io.kubernetes.cri.pod-annotations": {"a": "b"},
    }
    declared = {"portMappings": True, "dns": True, "bandwidth": False}
    ours = network_config({"capabilities": declared})
    chain = network(ours)
    stdin: dict[str, Any] = dict(configured(chain, ours, None, supplied))
    assert set(stdin["runtimeConfig"]) == {"portMappings", "dns"}
    assert "runtimeConfig" not in configured(network(), network_config(), None, supplied)
    client = client_of(stage)
    everything = network(network_config({"capabilities": dict.fromkeys(supplied, True)}))
    for list_ in (chain, everything):
        with stage.pod() as pod:
            to = attachment(pod, capabilities=supplied)
            assert client.add(list_, to)["dns"] == {"nameservers": ["10.0.0.10"]}
            client.delete(list_, to)
    stage.node.assert_clean()


@checks("CTD-06", "KBL-04")
def the_address_is_found_where_runtimes_look(stage: Stage) -> None:
    client = client_of(stage)
    with stage.pod() as pod:
        to = attachment(pod)
        result = client.add(network(), to)
        (ip,) = result["ips"]
        link = result["interfaces"][ip["interface"]]
        assert (link["name"], link["sandbox"]) == ("eth0", str(pod.path))
        shown = pod.run("ip", "-o", "-4", "addr", "show", "dev", "eth0", "scope", "global")
        assert ip["address"].partition("/")[0] in shown
        client.delete(network(), to)


@checks("CTD-07", "KBL-05", "CRO-04", "PRV-11", "DEL-01")
def dels_late_and_more_than_once(stage: Stage) -> None:
    client, chain = client_of(stage), network()
    with stage.pod() as pod:
        to = attachment(pod)
        pod.run("ip", "link", "add", "eth0", "type", "bridge")
        with pytest.raises(PluginFailed):
            client.add(chain, to)
        client.delete(chain, to)  # after a failed ADD
        pod.run("ip", "link", "del", "eth0")
        client.add(chain, to)
        closed = replace(to, netns="")
        for each in (to, closed, closed):
            client.delete(chain, each)
        client.add(chain, to)
        # A runtime that was restarted without its cache knows no result and no capabilities.
        shutil.rmtree(client.cache_folder)
        client.delete(network(version="0.3.1"), Attachment(to.container_id, "", "eth0"))
        stage.delete(None)
    stage.node.assert_clean()


@checks("CHK-11", "CHK-10")
def no_check_where_it_is_not_wanted(stage: Stage) -> None:
    client = client_of(stage)
    with stage.pod() as pod:
        to = attachment(pod)
        lo = replace(to, ifname="lo")
        loopback = network(LOOPBACK, version="0.3.1", name="cni-loopback")
        client.add(loopback, lo)
        with pytest.raises(Exception, match="does not support CHECK"):
            client.check(loopback, lo)
        for quiet in (True, "true"):
            chain = network(disableCheck=quiet)
            client.add(chain, to)
            pod.run("ip", "link", "set", "eth0", "down")
            client.check(chain, to)
            client.delete(chain, to)
        client.delete(loopback, lo)
    stage.node.assert_clean()


@checks("GC-09", "GC-10", "CRO-05", "STA-08")
def gc_and_status_of_a_runtime(stage: Stage) -> None:
    client, newest = client_of(stage), network(version="1.1.0")
    with stage.pod() as kept, stage.pod() as stale:
        to, other = attachment(kept), attachment(stale, "old-1")
        for _ in range(3):
            client.status(newest)
        client.add(newest, to)
        client.add(newest, other)
        client.gc(network(version="1.1.0", disableGC=True), {(to.container_id, "eth0")})
        assert stage.node.in_use() == 2
        client.gc(
            network(version="1.0.0"), {(to.container_id, "eth0"), (other.container_id, "eth0")}
        )
        assert stage.node.in_use() == 2
        began = time.monotonic()
        client.gc(newest, {(to.container_id, "eth0")})
        assert time.monotonic() - began < HANG
        assert stage.node.in_use() == 1
        client.delete(newest, other)  # the DEL comes all the same
        client.delete(newest, to)
    stage.node.assert_clean()


@checks("CTD-02", "KBL-01", "CRO-02")
def files_are_taken_in_order(stage: Stage) -> None:
    client, folder = client_of(stage), stage.fresh()
    ours = network_config({"name": "net-a", "cniVersion": "1.0.0"})
    chain = {"cniVersion": "1.0.0", "name": "net-b", "plugins": [network_config()]}
    (folder / "10-calico.conf").write_text(json.dumps(ours))
    (folder / "20-other.conflist").write_text(json.dumps(chain))
    assert [load(folder, name).name for name in ("net-a", "net-b")] == ["net-a", "net-b"]
    for found in (load(folder, "net-a"), load(folder, "net-b")):
        client.validate(found)
    missing = network({"type": "no-such"}, name="net-c")
    with pytest.raises(Exception, match="no-such"):
        client.validate(missing)
    (folder / "05-bad.conf").write_text(json.dumps(chain))
    with pytest.raises(NetworkError, match="missing 'type'"):
        load(folder, "net-a")


@checks("KBL-06", "CAL-08", "VER-14")
def a_single_plugin_of_0_1_0(stage: Stage) -> None:
    client = client_of(stage)
    tree = {
        "name": NETWORK, "cniVersion": "0.1.0", "type": "calico", "log_level": "info",
        "mtu": 1500, "ipam": {"type": "calico-ipam"}, "policy": {"type": "k8s"},
        "policy_setup_timeout_seconds": 0,
    }  # fmt: skip
    single = parse_single(json.dumps(tree).encode())
    client.validate(single)
    with stage.pod() as pod:
        to = attachment(pod)
        result = client.add(single, to)
        assert set(result) == {"cniVersion", "ip4", "dns"}
        assert result["cniVersion"] == "0.1.0"
        client.delete(single, to)
    stage.node.assert_clean()


@checks("CRO-06", "TIM-04", "TIM-03")
def our_deadlines_are_below_theirs(stage: Stage) -> None:
    from cni.node.daemon_context import DATASTORE_SECONDS, RELEASE_SECONDS
    from cni.python_plugin import call

    add, delete = call.DEADLINE, call.DEADLINES[b"DEL"]
    assert add < 90
    assert delete < 30
    assert add > DATASTORE_SECONDS
    assert delete > RELEASE_SECONDS


# Settings of Calico


@checks("CAL-07")
def the_mtu_has_its_order(stage: Stage) -> None:
    file: Path = stage.node.settings.mtu_file
    with stage.pod() as pod:
        error = stage.error("ADD", pod, config={"require_mtu_file": True})
        assert (error["code"], str(file) in error["msg"]) == (11, True)
        try:
            file.write_text("1380\n")
            for config, mtu in (
                ({}, 1380),
                ({"mtu": 1350}, 1350),
                ({"require_mtu_file": True}, 1380),
            ):
                stage.add(pod, config=config)
                assert f"mtu {mtu}" in pod.run("ip", "link", "show", "eth0")
                stage.delete(pod)
            stage.add(pod, config={"num_queues": 2, "device_type": "veth"})
            assert "numtxqueues 2" in pod.run("ip", "-d", "link", "show", "eth0")
            stage.delete(pod)
            assert stage.error("ADD", pod, config={"device_type": "tap"})["code"] in (2, 7)
        finally:
            file.unlink(missing_ok=True)
    stage.node.assert_clean()


@checks("CAL-17", "CAL-14")
def a_network_without_a_policy_engine_has_a_profile(stage: Stage) -> None:
    node = stage.node
    key = "/calico/resources/v3/projectcalico.org/profiles/"
    config = {"name": f"plain-{stage.build.label}", "policy": None}
    with stage.added("", container="c1", config=config):
        (profile,) = node.stored(f"{key}plain-").values()
        spec = profile["spec"]
        assert spec["egress"] == [{"action": "Allow", "destination": {}, "source": {}}] or (
            spec["egress"][0]["action"] == "Allow"
        )
        assert spec["ingress"][0]["source"]["selector"] == f"has({config['name']})"
        assert config["name"] in spec["labelsToApply"]
        (endpoint,) = node.endpoints().values()
        assert endpoint["spec"]["profiles"] == [config["name"]]
        before = node.stored(f"{key}plain-")
    with stage.added("", container="c2", config=config):
        assert node.stored(f"{key}plain-") == before, "never updated"
    node.etcd.ctl("del", "--prefix", f"{key}plain-")


checks.shown(test_daemon_faults.test_a_failure_of_the_wiring_is_undone, "CAL-35", step="create")
test_conformance = checks.items()
