"""Start-up in a network namespace of its own, with an etcd inside: what is registered, and when."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from libcalico.datastore.etcd.connection import Connection
from libcalico.errors import DatastoreUnavailable, InvalidValue
from node.start import startup
from node.start.node_object import register
from tests.node.world import RESOURCES, resource, start
from tests.support.etcd import Etcd


@pytest.mark.promise("M-193")
@pytest.mark.promise("M-202")
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
    # No default that would silence what `default` says; the empty word is always written.
    assert own == {"defaultEndpointToHostAction": "Return", "bpfLogLevel": ""}
    assert resource(etcd_inside, "bgpconfigurations/default") is not None
    assert resource(etcd_inside, "ipamconfigurations/default") is not None
    assert Path(environ["CALICO_NODENAME_FILE"]).read_text() == "node1"


@pytest.mark.promise("M-202")
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


def test_a_store_that_stops_answering_half_way_is_waited_for(
    etcd_inside: Etcd,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A write in doubt is one that may be done once more."""
    doubts = 0

    async def stopped_once(*arguments: Any) -> None:
        nonlocal doubts
        if doubts:
            return await register(*arguments)
        etcd_inside.pause()
        try:
            with monkeypatch.context() as hurry:
                hurry.setattr(Connection, "timeout", 1.0)  # no answer comes
                await register(*arguments)
        except DatastoreUnavailable:
            doubts += 1
            raise
        finally:
            etcd_inside.resume()

    monkeypatch.setattr("node.start.startup.register", stopped_once)
    with pytest.raises(DatastoreUnavailable):
        start(environ, WAIT_FOR_DATASTORE="false")
    doubts = 0
    assert start(environ, IP="10.99.1.1") == "node1"
    assert doubts == 1
    assert "waiting for the datastore" in caplog.text
    assert resource(etcd_inside, "nodes/node1")["spec"]["bgp"]["ipv4Address"] == "10.99.1.1/24"
    assert Path(environ["CALICO_NODENAME_FILE"]).read_text() == "node1"
