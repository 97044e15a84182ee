"""`calicoctl status` on a real etcd: what it reads, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import json
from ipaddress import ip_network

import pytest

from libcalico.datastore.interface import ABSENT, Change, Put
from libcalico.model.base.meta import now_text
from libcalico.model.keys import BlockKey, FelixStatusKey
from libcalico.model.resources.status import FelixStatus
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.status_world import block
from tests.calicoctl.test_bgp_plan import document
from tests.calicoctl.test_bgp_plan import node as node_document
from tests.support.etcd import Etcd
from tests.support.ports import free_ports

POOL = document("IPPool", "pool", cidr="10.65.0.0/16", blockSize=26, natOutgoing=True)


def written(etcd: Etcd, changes: list[Change]) -> None:
    async def write() -> None:
        async with etcd.connect() as store:
            for start in range(0, len(changes), 50):
                await store.commit(changes[start : start + 50])

    asyncio.run(write())


def signs(count: int) -> list[Change]:
    """felix of so many nodes gives signs of life."""
    return [
        Put(FelixStatusKey(f"n{number}", last=last), FelixStatus(now_text()))
        for number in range(1, count + 1)
        for last in (True, False)
    ]


def test_without_any_node(ctl: Ctl) -> None:
    done = ctl("status")
    assert done.code == 0
    assert done.out.startswith("Cluster without a version is unknown. Nodes: 0 (")
    assert ctl("status", "--exit-code").code == 2


def test_nodes_reports_and_pools_of_the_datastore(ctl: Ctl, etcd: Etcd) -> None:
    nodes = "".join(node_document(number) for number in (1, 2))
    assert ctl("apply", "-f", "-", stdin=nodes + POOL).code == 0
    full = block("10.65.0.0/26", 64)
    written(etcd, [*signs(1), Put(BlockKey(ip_network(full.cidr)), full, ABSENT)])
    told = json.loads(ctl("status", "-o", "json").out)
    assert [(one["name"], one["why"]) for one in told["nodes"]] == [
        ("n1", ["its sessions are not known"]),
        ("n2", ["nothing tells whether it lives: no agent has given a sign"]),
    ]
    assert [(one["name"], one["inUse"], one["blocks"]) for one in told["pools"]] == [
        ("pool", 64, 1)
    ]
    assert "--ask" in told["missing"][0]
    assert [one["name"] for one in json.loads(ctl("status", "--node", "n2", "-o", "json").out)[
        "nodes"]] == ["n2"]  # fmt: skip
    assert "grade: unknown\n" in ctl("status", "-o", "yaml").out


def test_asking_names_the_nodes_that_stay_silent(ctl: Ctl, etcd: Etcd) -> None:
    assert ctl("apply", "-f", "-", stdin=node_document(1)).code == 0
    done = ctl("status", "--ask", "0.2")
    assert (done.code, "Did not answer: n1" in done.out) == (0, True)
    assert "n1: it did not answer: no report within 0.2 s" in done.out
    assert not etcd.keys("/calico/resources/v3/projectcalico.org/caliconodestatuses/")


@pytest.mark.parametrize(("words", "complaint"), [
    (("--node", "nx"), "--node"), (("--ask", "0"), "--ask"), (("-o", "xml"), "xml"),
])  # fmt: skip
def test_bad_words_are_named(ctl: Ctl, words: tuple[str, str], complaint: str) -> None:
    done = ctl("status", *words)
    assert done.code == 1
    assert complaint in done.err


def test_a_broken_object_is_said_and_no_hindrance(ctl: Ctl, etcd: Etcd) -> None:
    assert ctl("apply", "-f", "-", stdin=node_document(1)).code == 0
    etcd.put("/calico/resources/v3/projectcalico.org/nodes/n9", "{no json")
    done = ctl("status")
    assert done.code == 0
    assert "n9" in done.out
    assert "cannot be read" in done.out


def test_calls_do_not_grow_with_every_node(ctl: Ctl, etcd: Etcd) -> None:
    count = 400
    nodes = "".join(
        document(
            "Node", f"n{number}", bgp={"ipv4Address": f"10.0.{number // 250}.{number % 250 + 1}/16"}
        )
        for number in range(1, count + 1)
    )
    assert ctl("apply", "-f", "-", stdin=nodes).code == 0
    written(etcd, signs(count))
    before = etcd.asked("Range") + etcd.asked("Txn")
    told = json.loads(ctl("status", "-o", "json").out)
    assert len(told["nodes"]) == count
    # 128 life signs a call, three of a node; one or two calls a kind.
    assert etcd.asked("Range") + etcd.asked("Txn") - before <= 3 * count / 128 + 20


def test_an_aggregator_that_is_not_there_is_said(ctl: Ctl) -> None:
    assert ctl("apply", "-f", "-", stdin=node_document(1)).code == 0
    (port,) = free_ports(1)
    done = ctl("status", "--aggregator", f"127.0.0.1:{port}")
    assert done.code == 0
    assert f"The nodes were not asked: aggregator 127.0.0.1:{port}" in done.out
    assert ctl("status", "--aggregator", "x:1", "--aggregator-ca", "ca.pem").code == 1
