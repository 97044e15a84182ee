"""`ipam show`, `check`, `release`, `configure` and `split` on a real etcd."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ipam.admin import library
from ipam.admin.library import AssignRequest
from ipam.records.blocks import parse_address
from libcalico.datastore.interface import Datastore, Delete, Put
from libcalico.model import Handle, Node
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import HandleKey, ResourceKey
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.test_commands import P1, WEP, document
from tests.support.etcd import Etcd


def on_store(etcd: Etcd, act: Callable[[Datastore], Awaitable[Any]]) -> Any:
    """Do something in the datastore that no command does."""

    async def run() -> Any:
        async with etcd.connect() as store:
            return await act(store)

    return asyncio.run(run())


def assign(etcd: Etcd, node: str, pod: str, count: int = 1) -> list[str]:
    """Addresses of a pod, as its node would take them."""

    async def act(store: Datastore) -> list[str]:
        if await store.get(ResourceKey("Node", node)) is None:
            await store.commit([Put(ResourceKey("Node", node), Node(metadata=Metadata(name=node)))])
        attributes = {"node": node, "namespace": "default", "pod": pod}
        request = AssignRequest(node, f"k8s.{pod}", attributes, num4=count)
        result = await library.auto_assign(store, request)
        return [str(one.ip) for one in result.ipv4]

    return on_store(etcd, act)  # type: ignore[no-any-return]


@pytest.fixture
def pool(ctl: Ctl) -> Ctl:
    assert ctl("apply", "-f", "-", stdin=P1).code == 0
    return ctl


def test_show_pools_blocks_and_addresses(pool: Ctl, etcd: Etcd) -> None:
    address, *_ = assign(etcd, "node1", "web-0", 3)
    assert pool("ipam", "show").out == (
        "+----------+--------------+-----------+------------+--------------+--------------+\n"
        "| GROUPING |     CIDR     | IPS TOTAL | IPS IN USE | IPS RESERVED |   IPS FREE   |\n"
        "+----------+--------------+-----------+------------+--------------+--------------+\n"
        "| IP Pool  | 10.65.0.0/16 |     65536 | 3 (0%)     | 0 (0%)       | 65533 (100%) |\n"
        "+----------+--------------+-----------+------------+--------------+--------------+\n"
    )
    block = pool("ipam", "show", "--show-blocks").out.splitlines()[4].split("|")
    assert [cell.strip() for cell in block[3:-1]] == ["64", "3 (5%)", "0 (0%)", "61 (95%)"]
    assert pool("ipam", "show", "--ip", address).out == (
        f"IP {address} is in use\nHandle ID: k8s.web-0\nActive Owner Attributes:\n"
        "  namespace: default\n  node: node1\n  pod: web-0\n"
    )
    free = pool("ipam", "show", "--ip", "10.65.255.9")
    assert (free.code, free.out) == (0, "10.65.255.9 is not assigned\n")
    wrong = pool("ipam", "show", "--ip", "banana")
    assert (wrong.code, wrong.err) == (1, "--ip: 'banana' is not valid: an IPv4 or IPv6 address\n")


def test_show_reserved_addresses(pool: Ctl) -> None:
    reservation = document("IPReservation", "r", reservedCIDRs=["10.65.0.0/17", "10.65.0.1"])
    assert pool("apply", "-f", "-", stdin=reservation).err == ""
    row = pool("ipam", "show").out.splitlines()[3]
    assert [cell.strip() for cell in row.split("|")[4:-1]] == [
        "0 (0%)",
        "32768 (50%)",
        "32768 (50%)",
    ]


def test_check_finds_pods_of_a_deleted_node_without_allocation_and_with_one_address(
    pool: Ctl, etcd: Etcd
) -> None:
    (address,) = assign(etcd, "node1", "web-0")
    assert pool("apply", "-f", "-", stdin=document("Node", "node2")).err == ""
    first = WEP.replace("10.65.0.1/32", f"{address}/32")
    second = first.replace("web--0", "web--1").replace("web-0", "web-1")
    lost = first.replace("web--0", "web--2").replace("web-0", "web-2")
    for text in (first, second, lost.replace(f"{address}/32", "10.65.9.9/32")):
        assert pool("apply", "-f", "-", stdin=text).err == ""
    on_store(etcd, lambda store: store.commit([Delete(ResourceKey("Node", "node1"))]))
    told = pool("ipam", "check", "--show-problem-ips").out
    names = [f"Workload(default/node1-k8s-web--{number}-eth0)" for number in range(3)]
    for line in (
        f"  {address} has multiple owners: {names[0]} and {names[1]}",
        f"  10.65.9.9 in use by {names[2]} and in active IPAM pool but has no IPAM allocation",
        f"  {address} is allocated on node1, which is no Node",
        f"  10.65.9.9 is used by {names[2]} on node1, which is no Node",
        "Found 3 addresses and blocks of nodes that have no Node.",
    ):
        assert line in told.splitlines(), told


@pytest.mark.promise("F-32")
def test_check_is_quiet_about_a_sound_cluster_and_names_a_leak(
    pool: Ctl, etcd: Etcd, tmp_path: Path
) -> None:
    (address,) = assign(etcd, "node1", "web-0")
    endpoint = WEP.replace("10.65.0.1/32", f"{address}/32")
    assert pool("apply", "-f", "-", stdin=endpoint).err == ""
    sound = pool("ipam", "check")
    assert (sound.code, pool("ipam", "check", "--exit-code").code) == (0, 0)
    for line in (
        "Checking IPAM for inconsistencies...",
        "Found 1 IPAM blocks.",
        "IPAM blocks record 1 allocations.",
        "Found 0 node tunnel IPs.",
        "Found 1 workload IPs.",
        "Workloads and nodes are using 1 IPs.",
        "Check complete; found 0 problems.",
    ):
        assert line in sound.out.splitlines()
    (lost,) = assign(etcd, "node2", "gone")
    leaking = pool("ipam", "check", "--show-problem-ips", "-o", str(tmp_path / "report"))
    assert f"  {lost} leaked; attrs Main:k8s.gone Extra:namespace=default,node=node2,pod=gone" in (
        leaking.out.splitlines()
    )
    assert leaking.out.splitlines()[-1] == "Check complete; found 1 problems."
    asked = pool("ipam", "check", "--exit-code")
    assert (asked.code, asked.out.splitlines()[-1]) == (2, leaking.out.splitlines()[-1])
    report = json.loads((tmp_path / "report").read_text())
    assert set(report) == {
        "version", "clusterGUID", "datastoreLocked", "clusterInformationRevision", "clusterType",
        "allocations",
    }  # fmt: skip
    (kept,), (leaked,) = report["allocations"][address], report["allocations"][lost]
    assert (kept["inUse"], kept["owners"]) == (
        True,
        ["Workload(default/node1-k8s-web--0-eth0)"],
    )
    assert (leaked["inUse"], leaked["owners"], leaked["handle"]) == (False, None, "k8s.gone")
    everything = pool("ipam", "check", "--show-all-ips").out
    assert f"  {address} belongs to Workload(default/node1-k8s-web--0-eth0)" in everything
    assert f"  {address} allocated; attrs Main:k8s.web-0" in everything


def test_check_refuses_what_it_cannot_do(pool: Ctl) -> None:
    refused = pool("ipam", "check", "--kubeconfig", "/etc/kubeconfig")
    assert refused.code == 1
    assert "--kubeconfig is not served by this release" in refused.err


def test_release_one_address(pool: Ctl, etcd: Etcd) -> None:
    (address,) = assign(etcd, "node1", "web-0")
    released = pool("ipam", "release", "--ip", address)
    assert (released.code, released.out) == (0, f"Successfully released IP address {address}\n")
    again = pool("ipam", "release", "--ip", address)
    assert (again.code, again.err) == (1, f"IP address {address} is not assigned\n")
    assert pool("ipam", "release").code == 1
    assert etcd.keys("/calico/ipam/v2/handle/") == []


@pytest.mark.promise("F-32")
@pytest.mark.promise("PAIN-1")
def test_release_from_reports_frees_what_all_of_them_call_unused(
    pool: Ctl, etcd: Etcd, tmp_path: Path
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    (old,) = assign(etcd, "node1", "old")
    (anew,) = assign(etcd, "node1", "anew")
    on_store(etcd, lambda store: store.commit([Put(HandleKey("empty"), Handle(block={}))]))
    pool("ipam", "check", "-o", first)
    # Released and given out again: the same address, another allocation.
    on_store(etcd, lambda store: library.release_ips(store, [library.Release(parse_address(anew))]))
    on_store(
        etcd,
        lambda store: library.assign_ip(store, parse_address(anew), "node1", handle_id="k8s.x"),
    )
    (young,) = assign(etcd, "node1", "young")
    stale = pool("ipam", "release", "--from-report", first)
    assert "the datastore is not locked" in stale.err
    assert pool("datastore", "migrate", "lock").out == "Datastore locked.\n"
    stale = pool("ipam", "release", "--from-report", first, "--force")
    assert (stale.code, "stale" in stale.err) == (1, True)
    pool("ipam", "check", "-o", second)
    done = pool("ipam", "release", "--from-report", first, "--from-report", second)
    assert done.err == ""
    assert done.out.splitlines() == [
        "Releasing 1 old IPs...",
        "Released 1 IPs successfully",
        "Released 1 handles; 0 skipped.",
        "You may now unlock the data store.",
    ]
    assert pool("ipam", "show", "--ip", old).out == f"{old} is not assigned\n"
    for kept in (anew, young):
        assert "is in use" in pool("ipam", "show", "--ip", kept).out
    assert pool("ipam", "release", "--from-report", second).code == 0
    assert pool("ipam", "check").out.splitlines()[-1] == "Check complete; found 0 problems."


def test_release_from_a_report_of_elsewhere_is_refused(
    pool: Ctl, etcd: Etcd, tmp_path: Path
) -> None:
    (lost,) = assign(etcd, "node1", "gone")
    report = tmp_path / "report"
    pool("datastore", "migrate", "lock")
    pool("ipam", "check", "-o", str(report))
    tree = json.loads(report.read_text())

    def given(**changes: Any) -> Any:
        report.write_text(json.dumps(tree | changes))
        return pool("ipam", "release", "--from-report", str(report))

    assert "another cluster" in given(clusterGUID="other").err
    assert "version v3.1" in given(version="v3.1").err
    assert "$.allocations" in given(allocations={"x": 1}).err
    assert "cannot read the report" in pool("ipam", "release", "--from-report", "/nowhere").err
    assert pool("ipam", "show", "--ip", lost).out.startswith(f"IP {lost} is in use")
    report.write_text(json.dumps(tree | {"version": "v3.1"}))
    forced = pool("ipam", "release", "--force", "--from-report", str(report))
    assert forced.code == 0
    assert "WARNING" in forced.out


def test_configure_and_show_the_settings(ctl: Ctl) -> None:
    done = ctl("ipam", "configure", "--strictaffinity=true", "--max-blocks-per-host", "5")
    assert done.out == (
        "Successfully set StrictAffinity to: true\nSuccessfully set MaxBlocksPerHost to: 5\n"
    )
    more = ctl("ipam", "configure", "--kubevirt-ip-persistence=Disabled",
               "--ip-cooldown-seconds=30")  # fmt: skip
    assert more.code == 0
    shown = ctl("ipam", "show", "--show-configuration").out.splitlines()[3:-1]
    assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in shown] == [
        ["StrictAffinity", "true"],
        ["AutoAllocateBlocks", "true"],
        ["MaxBlocksPerHost", "5"],
        ["KubeVirtVMAddressPersistence", "Disabled"],
        ["IPCooldownSeconds", "30"],
    ]
    for arguments, told in (
        (["--strictaffinity=perhaps"], "--strictaffinity: 'perhaps'"),
        (["--strictaffinity=false"], "MaxBlocksPerHost requires StrictAffinity to be enabled"),
        (["--max-blocks-per-host=many"], "--max-blocks-per-host: 'many'"),
        (["--kubevirt-ip-persistence=yes"], "--kubevirt-ip-persistence: 'yes'"),
        (["--ip-cooldown-seconds=9999"], "9999"),
        ([], "at least one configuration option must be specified"),
    ):
        refused = ctl("ipam", "configure", *arguments)
        assert refused.code == 1
        assert told in refused.err


def test_show_borrowed(pool: Ctl, etcd: Etcd) -> None:
    (own,) = assign(etcd, "node1", "own")
    lent = parse_address(own) + 1

    async def lend(store: Datastore) -> None:
        await library.assign_ip(
            store, lent, "node2", handle_id="k8s.lent",
            attributes={"node": "node2", "namespace": "ns", "pod": "lent"},
        )  # fmt: skip

    on_store(etcd, lend)
    row = pool("ipam", "show", "--show-borrowed").out.splitlines()[3]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[:2] + cells[3:] == [str(lent), "node2", "node1", "pod", "ns/lent"]


@pytest.mark.promise("F-34")
def test_split(pool: Ctl, etcd: Etcd) -> None:
    (address,) = assign(etcd, "node1", "web-0")
    open_ = pool("ipam", "split", "4", "--name", "p1")
    assert (open_.code, "datastore is not locked" in open_.err) == (1, True)
    pool("datastore", "migrate", "lock")
    for arguments, told in (
        (["3", "--name", "p1"], "power of 2"),
        (["4096", "--name", "p1"], "holds only 1024 blocks"),
        (["4", "--name", "p9"], "unable to find an IP pool p9"),
        (["4"], "no name or CIDR provided"),
    ):
        refused = pool("ipam", "split", *arguments)
        assert (refused.code, told in refused.err) == (1, True), refused.err
    done = pool("ipam", "split", "4", "--cidr", "10.65.0.0/16")
    assert done.out.splitlines()[:2] == [
        "IP Pool p1 was successfully split into 4 smaller pools.",
        "Created split-p1-0 with CIDR 10.65.0.0/18.",
    ]
    pool("datastore", "migrate", "unlock")
    listed = json.loads(pool("get", "pools", "-o", "json").out)["items"]
    assert [item["metadata"]["name"] for item in listed] == [f"split-p1-{i}" for i in range(4)]
    assert all(item["spec"]["natOutgoing"] for item in listed)
    assert "is in use" in pool("ipam", "show", "--ip", address).out
    report = pool("ipam", "check").out
    assert "Found 0 in-use IPs that are not in active IP pools." in report
    assert assign(etcd, "node1", "web-1")[0] != address


@pytest.mark.promise("PAIN-5")
@pytest.mark.promise("PAIN-6")
def test_pools_that_collide_are_refused_and_three_free_ones_named(ctl: Ctl, etcd: Etcd) -> None:
    node = document("Node", "node1", bgp={"ipv4Address": "10.99.1.1/24"})
    services = document("BGPConfiguration", "default", serviceClusterIPs=[{"cidr": "10.96.0.0/16"}])
    assert ctl("apply", "-f", "-", stdin="\n---\n".join([P1, node, services])).code == 0
    for cidr, told in (
        ("10.99.0.0/16", "the network 10.99.1.0/24 of Node(node1)"),
        ("10.96.128.0/17", "the service range 10.96.0.0/16 of BGPConfiguration(default)"),
        ("10.65.64.0/18", "IPPool(p1) of 10.65.0.0/16"),
    ):
        refused = ctl("create", "-f", "-", stdin=document("IPPool", "p2", cidr=cidr))
        assert refused.code == 1
        assert told in refused.err
        offered = refused.err.partition("free are ")[2].partition(" (")[0].split(", ")
        assert len(offered) == 3
        made = ctl("create", "-f", "-", stdin=document("IPPool", "free", cidr=offered[0]))
        assert made.err == ""
        assert ctl("delete", "pool", "free").code == 0
    overlap = document("IPPool", "p2", cidr="10.99.0.0/16")
    assert ctl("create", "--allow-overlap", "-f", "-", stdin=overlap).code == 0
    assign(etcd, "node1", "web-0")
    for change in ({"cidr": "10.65.0.0/17"}, {"cidr": "10.65.0.0/16", "blockSize": 27}):
        refused = ctl("apply", "-f", "-", stdin=document("IPPool", "p1", **change))
        assert refused.code == 1
        assert "calicoctl ipam migrate" in refused.err


def test_a_disabled_pool_over_the_nodes_may_be_stored_but_not_enabled(ctl: Ctl) -> None:
    node = document("Node", "node1", bgp={"ipv4Address": "10.99.1.1/24"})
    assert ctl("apply", "-f", "-", stdin=node).code == 0
    disabled = document("IPPool", "lan", cidr="10.99.0.0/16", disabled=True)
    assert ctl("apply", "-f", "-", stdin=disabled).code == 0
    enabled = document("IPPool", "lan", cidr="10.99.0.0/16")
    refused = ctl("apply", "-f", "-", stdin=enabled)
    assert (refused.code, "overlaps the network" in refused.err) == (1, True)
    assert ctl("apply", "--allow-overlap", "-f", "-", stdin=enabled).code == 0


def test_check_of_an_uninitialised_datastore_says_so(ctl: Ctl, etcd: Etcd) -> None:
    on_store(
        etcd, lambda store: store.commit([Delete(ResourceKey("ClusterInformation", "default"))])
    )
    assert "ClusterInformation(default)" in ctl("ipam", "check").err
