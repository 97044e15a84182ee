"""Results of ADD in every version, on one node with the real daemon: sections 3, 4, 6, 8.

One walk per build: a dual-stack pod and an IPAM call in each of the seven versions, looked at in
the kernel while it stands; the checks of the shapes read what the walk saw.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import json
from dataclasses import dataclass
from typing import Any

from cni.request.result import SUPPORTED_VERSIONS
from cni.request.result_decoding import decode
from cni.request.result_encoding import as_document
from tests.cni import test_request, test_result
from tests.cni.world import CIDR4, CIDR6, result_of
from tests.cni_conformance.registry import Checks
from tests.cni_conformance.stage import Stage

checks = Checks()
for _promise, _id in (
    ("M-15", "RES-01"), ("M-49", "RES-01"), ("M-56", "CFG-19"), ("M-58", "RES-07"),
    ("M-59", "RES-10"), ("M-60", "RES-14"), ("M-110", "RES-22"),
):  # fmt: skip
    checks.promise(_promise, _id)
FLAT, TYPED, PLAIN = SUPPORTED_VERSIONS[:2], SUPPORTED_VERSIONS[2:5], SUPPORTED_VERSIONS[5:]
DUAL = {"ipam": {"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"}}


@dataclass(frozen=True)
class Seen:
    """One ADD: what was printed, and what stood in the kernel when it returned."""

    version: str
    raw: bytes
    result: dict[str, Any]
    netns: str
    pod_links: dict[str, Any]
    host_links: dict[str, Any]
    addresses: frozenset[str]
    ipam: dict[str, Any]


@functools.cache
def walk(stage: Stage, label: str) -> dict[str, Seen]:
    """ADD and DEL in each version, with `calico` and with `calico-ipam`."""
    assert label == stage.build.label
    found = {}
    for version in SUPPORTED_VERSIONS:
        config = DUAL | {"cniVersion": version, "mtu": 1400}
        with stage.pod() as pod:
            done = stage.cni("ADD", pod, config=config)
            result = result_of(done)
            inside = json.loads(pod.run("ip", "-j", "addr"))
            outside = json.loads(stage.node.space.run("ip", "-j", "link"))
            stage.delete(pod, config=config)
        ipam = result_of(stage.cni("ADD", None, config=config, plugin="calico-ipam", CNI_NETNS="b"))
        stage.delete(None, config=config, plugin="calico-ipam")
        found[version] = Seen(
            version,
            done.stdout,
            result,
            str(pod.path),
            {link["ifname"]: link for link in inside},
            {link["ifname"]: link for link in outside},
            frozenset(
                f"{a['local']}/{a['prefixlen']}" for link in inside for a in link["addr_info"]
            ),
            ipam,
        )
    stage.node.assert_clean()
    return found


def seen(stage: Stage, *versions: str) -> list[Seen]:
    """What the walk saw in these versions."""
    found = walk(stage, stage.build.label)
    return [found[version] for version in versions or SUPPORTED_VERSIONS]


# Output


@checks("OUT-01", "OUT-02", "OUT-14", "ADD-01", "ENV-12")
def stdout_is_one_object(stage: Stage) -> None:
    for each in seen(stage):
        assert each.raw.endswith(b"}\n")
        assert each.raw.count(b"\n") == 1
        assert isinstance(json.loads(each.raw), dict)
        assert {"UP", "LOWER_UP"} <= set(each.pod_links["eth0"]["flags"])


# Shapes


@checks("RES-01", "CFG-05", "CNV-01", "CNV-02", "CNV-12")
def the_version_is_the_requests(stage: Stage) -> None:
    for each in seen(stage):
        assert each.result["cniVersion"] == each.ipam["cniVersion"] == each.version
    with stage.pod() as pod:
        done = stage.cni("ADD", pod, config={"cniVersion": ""})
        assert result_of(done)["cniVersion"] == "0.2.0"
        assert set(result_of(done)) == {"cniVersion", "ip4", "dns"}
        stage.delete(pod, config={"cniVersion": ""})
    for versions in (FLAT, TYPED):
        shapes = [set(each.result) for each in seen(stage, *versions)]
        assert all(shape == shapes[0] for shape in shapes)


@checks("RES-02")
def flat_results(stage: Stage) -> None:
    for each in seen(stage, *FLAT):
        assert set(each.result) == {"cniVersion", "ip4", "ip6", "dns"}
        assert set(each.result["ip4"]) == set(each.result["ip6"]) == {"ip"}
        assert ipaddress.ip_interface(each.result["ip4"]["ip"]).version == 4
        assert set(each.ipam) <= {"cniVersion", "ip4", "ip6", "dns"}


@checks("RES-03", "RES-04", "RES-14")
def typed_results(stage: Stage) -> None:
    for each in seen(stage, *TYPED):
        assert set(each.result) == {"cniVersion", "interfaces", "ips", "dns"}
        assert [ip["version"] for ip in each.result["ips"]] == ["4", "6"]
        assert each.result["dns"] == {}
        assert [ip["version"] for ip in each.ipam["ips"]] == ["4", "6"]


@checks("RES-05", "RES-06", "RES-24", "CNV-03", "RES-18")
def plain_results(stage: Stage) -> None:
    older, newest = seen(stage, *PLAIN)
    for each in (older, newest):
        assert set(each.result) == {"cniVersion", "interfaces", "ips"}
        assert all("version" not in ip for ip in each.result["ips"])
    assert newest.result["interfaces"][1]["mtu"] == newest.pod_links["eth0"]["mtu"] == 1400
    assert all(
        "mtu" not in link for each in seen(stage, *TYPED) for link in each.result["interfaces"]
    )
    assert "mtu" not in older.result["interfaces"][1]


@checks("RES-07", "RES-09", "RES-12", "RES-19", "RES-21", "RES-23", "CAL-36")
def interfaces_are_those_of_the_kernel(stage: Stage) -> None:
    for each in seen(stage, *TYPED, *PLAIN):
        host, own = each.result["interfaces"]
        assert host["name"] in each.host_links
        assert "sandbox" not in host
        assert (own["name"], own["sandbox"]) == ("eth0", each.netns)
        assert own["mac"] == each.pod_links["eth0"]["address"] == own["mac"].lower()
        for ip in each.result["ips"]:
            assert type(ip["interface"]) is int
            assert ip["interface"] == 1
            assert ip["address"] in each.addresses
            assert "gateway" not in ip


@checks("RES-08", "RES-11", "RES-13", "CNV-10")
def addresses(stage: Stage) -> None:
    for each in seen(stage, *TYPED, *PLAIN):
        found = [ipaddress.ip_interface(ip["address"]) for ip in each.result["ips"]]
        assert [one.version for one in found] == [4, 6]
        assert found[0].ip in ipaddress.ip_network(CIDR4)
        assert found[1].ip in ipaddress.ip_network(CIDR6)
        assert all(one.network.num_addresses == 1 for one in found)


@checks("RES-10", "RES-20", "IPM-01", "IPM-02", "IPM-03")
def ipam_results_name_no_interface(stage: Stage) -> None:
    for each in seen(stage, *TYPED, *PLAIN):
        assert "interfaces" not in each.ipam
        assert all("interface" not in ip for ip in each.ipam["ips"])
        assert [ip["address"].rpartition("/")[2] for ip in each.ipam["ips"]] == ["28", "124"]


@checks("RES-22")
def keys_in_the_known_order(stage: Stage) -> None:
    order = ["cniVersion", "interfaces", "ips", "ip4", "ip6", "routes", "dns"]
    for each in seen(stage):
        assert list(each.result) == sorted(each.result, key=order.index)


@checks("RES-15", "CAP-07", "CFG-19")
def dns_of_configuration_and_runtime(stage: Stage) -> None:
    with stage.added(
        config={
            "dns": {"nameservers": ["10.0.0.1"], "search": ["a.example"], "domain": "example"},
            "runtimeConfig": {"dns": {"Servers": ["10.0.0.9"], "Searches": None}},
        }
    ) as (_, result):
        assert result["dns"] == {
            "nameservers": ["10.0.0.9"], "domain": "example", "search": ["a.example"]
        }  # fmt: skip
    with stage.pod() as pod:
        error = stage.error("ADD", pod, config={"dns": {"nameservers": "10.0.0.1"}})
        assert error["code"] == 7
        assert "dns" in error["msg"]


@checks("RES-16", "RES-17", "CNV-04", "CNV-05", "RES-18")
def routes_and_their_extras(stage: Stage) -> None:
    test_result.test_golden_ipam_result_is_read_and_written_back()
    test_result.test_route_extras_and_mtu_never_leak_into_older_versions()
    test_result.test_zero_is_written_only_where_it_means_something()
    test_result.test_wrong_family_labels_are_recomputed()


@checks("CNV-06", "CNV-07", "CNV-08", "CNV-09", "CNV-11")
def conversions(stage: Stage) -> None:
    test_result.test_flat_takes_the_first_of_a_family_and_sorts_routes_into_it()
    test_result.test_flat_cannot_hold_a_result_without_addresses()
    test_result.test_flat_is_read_as_listed_addresses()
    test_result.test_reading_forgives_nulls_missing_and_unknown_keys()
    # Flat to plain goes through typed, and back.
    for each in seen(stage, *FLAT):
        assert as_document(decode(each.result), each.version) == each.result


@checks("CNV-10", "CNV-14", "PRV-03")
def a_result_is_read_by_its_own_version(stage: Stage) -> None:
    test_result.test_a_result_is_read_by_its_own_version_or_the_default()
    test_result.test_mapped_addresses_become_ipv4()


@checks("CNV-13")
def round_trips(stage: Stage) -> None:
    for version in TYPED:
        for each in seen(stage, *PLAIN):
            old = as_document(decode(each.result), version)
            assert decode(old).ips == decode(each.result).ips
            assert as_document(decode(old), "1.0.0")["ips"] == each.result["ips"]


# CNI_ARGS


@checks("ARG-01", "ARG-02", "ARG-03", "ARG-04", "ARG-05", "ARG-06", "ARG-11", "ARG-13")
def arguments(stage: Stage) -> None:
    test_request.test_arguments_in_any_order_of_any_content()
    for command in ("ADD", "CHECK"):
        test_request.test_a_broken_pair_is_an_error_unless_told_to_ignore(command)
    for command in ("DEL", "GC", "STATUS"):
        test_request.test_a_broken_pair_never_stops_what_works_without_arguments(command)
    pod = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1"
    for text in (
        "", "A=1;", ";;", "A=b=c", f"{pod};IgnoreUnknown=1;FOO=bar", f"IgnoreUnknown=0;{pod};X=",
        f"{pod};K8S_POD_UID=u;K8S_POD_INFRA_CONTAINER_ID=z;X={'y' * 4000}",
        "IgnoreUnknown=TRUE;broken",
    ):  # fmt: skip
        with stage.pod() as space:
            stage.add(space, container="c1", CNI_ARGS=text)
            stage.delete(space, container="c1", CNI_ARGS=text)
    with stage.pod() as space:
        assert "invalid pair" in stage.error("ADD", space, CNI_ARGS="broken")["msg"]
    stage.node.assert_clean()


@checks("ARG-07", "ARG-10", "CAL-01", "CAL-13")
def orchestrators(stage: Stage) -> None:
    host = "cali" + hashlib.sha1(b"default.web-1").hexdigest()[:11]
    with stage.added() as (_, result):
        ((name, endpoint),) = stage.node.endpoints().items()
        assert name == "node1-k8s-web--1-eth0"
        spec = endpoint["spec"]
        assert (spec["orchestrator"], spec["pod"], spec["endpoint"]) == ("k8s", "web-1", "eth0")
        assert spec["profiles"][0] == "kns.default"
        assert spec["interfaceName"] == result["interfaces"][0]["name"] == host
        assert endpoint["metadata"]["labels"]["projectcalico.org/orchestrator"] == "k8s"
    with stage.added("", container="C1.x-y") as (_, result):
        ((name, endpoint),) = stage.node.endpoints().items()
        assert name == "node1-cni-C1.x--y-eth0"
        assert endpoint["spec"]["profiles"] == ["k8s-pod-network"]
        assert result["interfaces"][0]["name"] == "caliC1.x-y"


@checks("ARG-08", "ARG-09", "CAP-05", "IPM-09")
def requested_addresses(stage: Stage) -> None:
    test_request.test_requested_addresses_have_one_source()
    first, second, third = (CIDR4.replace(".0/24", f".{n}") for n in (200, 201, 202))

    def asked(**options: Any) -> str:
        with stage.added("", container="c1", **options) as (_, result):
            return str(result["ips"][0]["address"])

    args = {"CNI_ARGS": f"IP={first}/24"}
    assert asked(**args) == f"{first}/32"
    assert asked(**args) == f"{first}/32", "freed and asked again: given again"
    hint = {"args": {"cni": {"ips": [second]}}}
    assert asked(config=hint, **args) == f"{second}/32"
    declared = {"runtimeConfig": {"ips": [third]}}
    assert asked(config=hint | declared, **args) == f"{third}/32"
    with stage.added("", container="c1", **args), stage.pod() as other:
        taken = stage.error("ADD", other, "", container="c2", **args)
        assert first in taken["msg"]
    with stage.pod() as other:
        outside = stage.error("ADD", other, "", container="c2", CNI_ARGS="IP=192.0.2.7")
        assert "192.0.2.7" in outside["msg"]
    stage.node.assert_clean()


@checks("ARG-12", "CAP-10", "PRV-05", "PRV-06", "PRV-07", "DEL-07", "CFG-22")
def a_del_needs_nothing_but_identity(stage: Stage) -> None:
    good = {"cniVersion": "1.0.0"}
    cases: tuple[dict[str, Any], ...] = (
        {"name": ""},
        {"CNI_ARGS": ""},
        {"config": {"prevResult": None}},
        {"config": {"prevResult": {}}},
        {"config": {"prevResult": {"cniVersion": "9.9", "ips": 5}}},
        {"config": {"prevResult": {"cniVersion": "1.0.0"}}},
        {"config": {"cniVersion": "0.3.1"}},
        {"config": {"ipam": {"type": "calico-ipam", "ipv4_pools": ["gone"]}, "mtu": "x"}},
        {"config": {"ipam": 5, "policy": "x", "kubernetes": 7}},
    )
    for options in cases:
        with stage.pod() as pod:
            stage.add(pod, config=good, container="c1")
            stage.delete(pod, **{"name": "web-1", "container": "c1"} | options)
        if options.get("name") == "" or options.get("CNI_ARGS") == "":
            # Without the pod's name the endpoint is found by container only at the next sweep;
            # the addresses are free at once.
            assert stage.node.in_use() == 0
            stage.delete(None, container="c1")
        stage.node.assert_clean()


# Capabilities


@checks("CAP-02", "CAP-03", "CAP-04", "CAP-08", "CAP-09")
def capabilities_are_read_or_ignored(stage: Stage) -> None:
    runtime = {
        "portMappings": [
            {"HostPort": 8080, "ContainerPort": 80, "Protocol": "TCP", "HostIP": ""},
        ],
        "bandwidth": {"ingressRate": 10**6, "ingressBurst": 34359738359, "egressRate": 0,
                      "egressBurst": 4294967295},
        "ipRanges": [[{"subnet": "10.244.0.0/24"}]],
        "aliases": ["a"], "cgroupPath": "/x", "deviceID": "0000:00:00.0", "infinibandGUID": "",
        "dns": {"Servers": None, "Searches": None, "Options": None},
    }  # fmt: skip
    with stage.added(config={"runtimeConfig": runtime, "capabilities": {"x": True}}) as (_, result):
        assert result["ips"][0]["address"].endswith("/32")


@checks("CAP-06")
def the_mac_capability(stage: Stage) -> None:
    mac = "7e:11:22:33:44:55"
    with stage.added(config={"runtimeConfig": {"mac": mac}}) as (pod, result):
        assert result["interfaces"][1]["mac"] == mac
        assert mac in pod.run("ip", "link", "show", "eth0")
    with stage.pod() as pod:
        error = stage.error("ADD", pod, config={"runtimeConfig": {"mac": "nonsense"}})
        assert error["code"] == 7


# prevResult on ADD


@checks("PRV-01", "PRV-02", "VER-15")
def behind_another_plugin(stage: Stage) -> None:
    for version in (*TYPED, *PLAIN):
        with stage.pod() as pod:
            sandbox = str(pod.path)
            previous = {
                "cniVersion": version,
                "interfaces": [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": sandbox}],
                "ips": [{"address": "127.0.0.1/8", "interface": 0} | (
                    {"version": "4"} if version in TYPED else {})],
            }  # fmt: skip
            result = stage.add(pod, config={"cniVersion": version, "prevResult": previous})
            assert [link["name"] for link in result["interfaces"]][0::2] == ["lo", "eth0"]
            assert [ip["interface"] for ip in result["ips"]] == [0, 2]
            taken = {**previous, "interfaces": [{"name": "eth0", "sandbox": str(pod.path)}]}
            error = stage.error("ADD", pod, config={"cniVersion": version, "prevResult": taken})
            assert (error["code"], "eth0" in error["msg"]) == (7, True)
            bad = {"cniVersion": version, "prevResult": {"cniVersion": version, "ips": 5}}
            assert stage.error("ADD", pod, config=bad)["code"] == 6
            stage.delete(pod)
    stage.node.assert_clean()


@checks("CFG-09", "CFG-17", "IPM-08")
def what_cannot_be_acted_on_is_an_error(stage: Stage) -> None:
    with stage.pod() as pod:
        for ipam, code, words in (
            ({}, 7, "ipam.type"),
            ({"type": "calico-ipam", "ipv4_pools": ["nope"]}, 100, "does not exist"),
            ({"type": "calico-ipam", "ipv4_pools": ["300.0.0.0/8"]}, 100, "does not exist"),
            ({"type": "calico-ipam", "ipv4_pools": 5}, 7, "ipam.ipv4_pools"),
            ({"type": "calico-ipam", "assign_ipv4": "false"}, 7, "assign_ipv4"),
            ({"type": "no-such"}, 999, 'failed to find plugin "no-such"'),
        ):
            error = stage.error("ADD", pod, config={"ipam": ipam})
            assert (error["code"], words in error["msg"]) == (code, True), error
    stage.node.assert_clean()


@checks("CFG-18", "CFG-08", "CAL-21", "CAL-34")
def foreign_keys_are_ignored(stage: Stage) -> None:
    config = {
        "ipMasq": True, "unknown": {"deep": [1]}, "isGateway": True, "mode": "vxlan",
        "windows_use_single_network": True, "cluster_network": "10.0.0.0/8", "qps": 5,
        "args": {"org.apache.mesos": {"network_info": {}}}, "cni.dev/something": 1,
    }  # fmt: skip
    with stage.added(config=config) as (_, result):
        assert "cni.dev/something" not in result


test_conformance = checks.items()
