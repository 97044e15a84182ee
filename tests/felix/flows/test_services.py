"""FSV-1: the service behind an address and port."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from felix.flows.services import NONE, ServiceTable
from flows.record import Service
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.service_objects import (
    Ingress,
    LoadBalancer,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from libcalico.kubernetes.service_objects import Service as Stored

TCP, UDP = 6, 17


def stored(balanced: str = "", **spec: Any) -> Stored:
    status = ServiceStatus(LoadBalancer([Ingress(balanced)] if balanced else None))
    return Stored(spec=ServiceSpec(**spec), status=status)


def at(table: ServiceTable, address: str, port: int, protocol: int = TCP) -> Service:
    return table.service(ip_address(address).packed, port, protocol)


def test_every_address_of_a_service_leads_to_it() -> None:
    table = ServiceTable()
    ports = [ServicePort("http", "TCP", 80, 30080), ServicePort("dns", "UDP", 53)]
    web = stored(
        balanced="192.0.2.9",
        clusterIP="10.96.0.1",
        clusterIPs=["10.96.0.1", "fd96::1"],
        externalIPs=["192.0.2.1", "nonsense"],
        ports=ports,
    )
    table.put(Name("shop", "web"), web)
    http = Service("web", "shop", "http", 80)
    for address in ("10.96.0.1", "fd96::1", "192.0.2.1", "192.0.2.9"):
        assert at(table, address, 80) == http
    assert at(table, "10.96.0.1", 53, UDP) == Service("web", "shop", "dns", 53)
    assert at(table, "10.96.0.1", 53) == NONE
    assert at(table, "198.51.100.7", 30080) == http, "a port of any node"
    table.put(Name("shop", "web"), stored(clusterIP="None", ports=ports[:1]))
    assert at(table, "10.96.0.1", 80) == NONE
    table.gone(Name("shop", "web"))
    assert at(table, "198.51.100.7", 30080) == NONE
    assert len(table) == 0


@given(st.permutations(["a", "b", "c"]), st.sets(st.sampled_from(["a", "b", "c"])))
def test_what_is_told_of_one_address_depends_on_who_has_it(
    order: list[str], left: set[str]
) -> None:
    table = ServiceTable()
    for name in order:
        table.put(
            Name("shop", name), stored(clusterIP="10.96.0.1", ports=[ServicePort("", "TCP", 80)])
        )
    for name in order:
        if name in left:
            table.gone(Name("shop", name))
    there = sorted({"a", "b", "c"} - left)
    assert at(table, "10.96.0.1", 80).name == (there[0] if there else "")
