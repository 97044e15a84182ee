"""CHECK's comparisons on facts alone: nothing wrong gives nothing, each fault its own complaint."""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Callable
from ipaddress import ip_interface, ip_network
from typing import Any

import msgspec
import pytest

from cni.pods.endpoint import NETWORK_ANNOTATION
from cni.request.attachment import Attachment
from cni.request.errors import CNIError
from cni.verbs.attachment_state import HostSide, PodSide, Stored, remains
from cni.verbs.comparison import (
    Expected,
    expected_of,
    host_complaints,
    pod_complaints,
    stored_complaints,
)
from cni.veth.orphan_veths import HOST_MAC
from cni.veth.pod_end import GATEWAYS
from libcalico.model import Metadata, WorkloadEndpoint, WorkloadEndpointSpec
from linux.addresses import Address
from linux.link_values import INET6_CONF, INET_CONF, Link
from linux.neighbours import STALE, Neighbour
from linux.routes import NextHop, Route
from tests.cni.test_attachment import WEB, request

FOUR, SIX = ip_interface("10.65.0.7/32"), ip_interface("fd65::7/128")
MAC = "02:00:00:00:00:07"
POD, HOST = 2, 9
EXPECTED = Expected(WEB, (FOUR, SIX), MAC, 1500)


def table(places: dict[str, int], first: int, **values: int) -> bytes:
    numbers = [0] * 34
    for name, value in values.items():
        numbers[places[name] - first] = value
    return struct.pack("=34i", *numbers)


def link(**changes: Any) -> Link:
    usual: dict[str, Any] = {
        "index": POD,
        "name": "eth0",
        "mac": MAC,
        "mtu": 1500,
        "up": True,
        "running": True,
        "carrier": True,
        "loopback": False,
        "operstate": 6,
        "kind": "veth",
        "master": 0,
        "peer_index": HOST,
        "peer_netnsid": 0,
        "group": 0,
        "alias": "",
        "inet_conf": table(INET_CONF, 1, forwarding=1, proxy_arp=1, route_localnet=1),
        "inet6_conf": table(INET6_CONF, 0, forwarding=1, proxy_ndp=1),
    }
    return Link(**{**usual, **changes})


def gateway_routes(index: int) -> tuple[Route, ...]:
    four, six = GATEWAYS[4], GATEWAYS[6]
    return (
        Route(ip_network(four), (NextHop(None, index),)),
        Route(ip_network("0.0.0.0/0"), (NextHop(four, index),)),
        Route(ip_network("::/0"), (NextHop(six, index),)),
    )


GOOD_POD = PodSide(
    link(),
    frozenset({POD}),
    (Address(POD, FOUR), Address(POD, SIX)),
    gateway_routes(POD),
    tuple(Neighbour(POD, gateway, HOST_MAC) for gateway in GATEWAYS.values()),
)
GOOD_HOST = HostSide(
    link(index=HOST, name=WEB.host_interface, mac=HOST_MAC, peer_index=POD, alias=WEB.mark),
    {a.ip: Route(ip_network(a.ip), (NextHop(None, HOST),)) for a in (FOUR, SIX)},
)
GOOD_STORED = Stored(
    WorkloadEndpoint(
        metadata=Metadata(name=WEB.endpoint_key.name, namespace="default"),
        spec=WorkloadEndpointSpec(
            node="node1",
            containerID=WEB.container_id,
            interfaceName=WEB.host_interface,
            ipNetworks=[str(FOUR), str(SIX)],
            mac=MAC,
        ),
    ),
    frozenset({FOUR.ip, SIX.ip}),
)


def complaints(pod: PodSide = GOOD_POD, host: HostSide = GOOD_HOST, born: str = MAC) -> list[str]:
    found = [*pod_complaints(EXPECTED, pod, host, born), *host_complaints(EXPECTED, host)]
    return [complaint.text for complaint in found]


def test_what_is_as_add_left_it_gives_no_complaint() -> None:
    assert complaints() == []
    assert list(stored_complaints(EXPECTED, GOOD_STORED)) == []


def without(**less: Callable[[Any], bool]) -> PodSide:
    """The good pod's side without the facts that match."""
    kept = {
        name: tuple(fact for fact in getattr(GOOD_POD, name) if not matches(fact))
        for name, matches in less.items()
    }
    return dataclasses.replace(GOOD_POD, **kept)  # type: ignore[arg-type]


def having(attribute: str, value: object) -> Callable[[Any], bool]:
    return lambda fact: bool(getattr(fact, attribute) == value)


POD_FAULTS = {
    "interface eth0 is missing in the container": PodSide(),
    "interface eth0 in the container is down": dataclasses.replace(GOOD_POD, link=link(up=False)),
    f"interface eth0 is not the other end of {WEB.host_interface}": dataclasses.replace(
        GOOD_POD, link=link(peer_index=77)
    ),
    **{
        f"address {lost} is missing on eth0 in the container": without(
            addresses=having("interface", lost)
        )
        for lost in (FOUR, SIX)
    },
    "the route to 169.254.1.1 is missing in the container": without(
        routes=lambda r: r.dst.prefixlen == 32
    ),
    **{
        f"the default route via {gateway} is missing in the container": without(
            routes=having("gateway", gateway)
        )
        for gateway in GATEWAYS.values()
    },
    **{
        f"the permanent neighbour {gateway} is missing on eth0 in the container": without(
            neighbours=having("address", gateway)
        )
        for gateway in GATEWAYS.values()
    },
}


@pytest.mark.parametrize("text", POD_FAULTS)
def test_each_fault_of_the_containers_end_has_its_own_complaint(text: str) -> None:
    assert complaints(POD_FAULTS[text]) == [text]


def host_with(**changes: Any) -> HostSide:
    assert GOOD_HOST.link is not None
    return dataclasses.replace(GOOD_HOST, link=dataclasses.replace(GOOD_HOST.link, **changes))


NAME = WEB.host_interface
HOST_FAULTS = {
    f"host interface {NAME} is missing": dataclasses.replace(GOOD_HOST, link=None),
    f"host interface {NAME} belongs to another container (x/eth0)": host_with(alias="x/eth0"),
    f"host interface {NAME} is down": host_with(up=False),
    f"host interface {NAME} has the MAC {MAC}, not {HOST_MAC}": host_with(mac=MAC),
    f"host interface {NAME} has the MTU 1400, prevResult says 1500": host_with(mtu=1400),
    f"net.ipv4.conf.{NAME}.proxy_arp is not 1": host_with(
        inet_conf=table(INET_CONF, 1, forwarding=1, route_localnet=1)
    ),
    f"net.ipv6.conf.{NAME}.proxy_ndp is not 1": host_with(
        inet6_conf=table(INET6_CONF, 0, forwarding=1)
    ),
    f"the host has no route to {SIX.ip}": dataclasses.replace(
        GOOD_HOST, routes={**GOOD_HOST.routes, SIX.ip: None}
    ),
    f"the host's route to {FOUR.ip} does not lead to {NAME}": dataclasses.replace(
        GOOD_HOST,
        routes={**GOOD_HOST.routes, FOUR.ip: Route(ip_network(FOUR.ip), (NextHop(None, 5),))},
    ),
}


@pytest.mark.parametrize("text", HOST_FAULTS)
def test_each_fault_of_the_hosts_end_has_its_own_complaint(text: str) -> None:
    assert complaints(host=HOST_FAULTS[text]) == [text]


def endpoint_with(**changes: Any) -> Stored:
    assert GOOD_STORED.endpoint is not None
    spec = msgspec.structs.replace(GOOD_STORED.endpoint.spec, **changes)
    return dataclasses.replace(
        GOOD_STORED, endpoint=msgspec.structs.replace(GOOD_STORED.endpoint, spec=spec)
    )


STORED_FAULTS = {
    "does not exist": dataclasses.replace(GOOD_STORED, endpoint=None),
    "belongs to container other": endpoint_with(containerID="other"),
    "is on node node9": endpoint_with(node="node9"),
    "names the host interface cali0": endpoint_with(interfaceName="cali0"),
    f"lacks the address {SIX.ip}": endpoint_with(ipNetworks=[str(FOUR)]),
    f"address {FOUR.ip} is not allocated": dataclasses.replace(
        GOOD_STORED, addresses=frozenset({SIX.ip})
    ),
}


@pytest.mark.parametrize("text", STORED_FAULTS)
def test_each_fault_in_the_datastore_has_its_own_complaint(text: str) -> None:
    (found,) = stored_complaints(EXPECTED, STORED_FAULTS[text])
    assert text in found.text
    assert not found.settles


def test_addresses_that_no_pool_gave_are_not_looked_for_in_blocks() -> None:
    """The endpoint of such a container, and of no other, names its network."""
    held = dataclasses.replace(GOOD_STORED, addresses=frozenset())
    assert held.endpoint is not None
    notes = {NETWORK_ANNOTATION: "net"}
    meta = msgspec.structs.replace(held.endpoint.metadata, annotations=notes)
    told = dataclasses.replace(held, endpoint=msgspec.structs.replace(held.endpoint, metadata=meta))
    assert list(stored_complaints(EXPECTED, told)) == []
    others = dataclasses.replace(EXPECTED, attachment=dataclasses.replace(WEB, container_id="b"))
    assert "is not allocated" in next(stored_complaints(others, told)).text


def test_faults_add_up() -> None:
    """CNI-51: any two of different sides are both named."""
    for pod_text, host_text in itertools.product(POD_FAULTS, HOST_FAULTS):
        found = complaints(POD_FAULTS[pod_text], HOST_FAULTS[host_text])
        assert host_text in found
        assert pod_text in found or "other end" in pod_text


def test_what_others_do_on_purpose_is_no_fault() -> None:
    """CNI-52."""
    extra = dataclasses.replace(
        GOOD_POD,
        link=link(mtu=1300),
        addresses=(*GOOD_POD.addresses, Address(POD, ip_interface("192.0.2.1/24"))),
        routes=(*GOOD_POD.routes, Route(ip_network("192.0.2.0/24"), (NextHop(None, 5),))),
    )
    assert complaints(extra) == []
    # A sibling interface has taken over the default routes.
    sibling = dataclasses.replace(GOOD_POD, veths=frozenset({POD, 5}), routes=gateway_routes(5))
    assert complaints(sibling) == []
    foreign = dataclasses.replace(GOOD_POD, routes=gateway_routes(5))
    assert len(complaints(foreign)) == 3
    # A MAC changed by tuning costs the neighbours.
    tuned = dataclasses.replace(GOOD_POD, neighbours=())
    assert complaints(tuned, born="02:00:00:00:00:01") == []
    # Calico's plugin sets no neighbours, and no alias: proxy ARP answers.
    assert complaints(tuned, host_with(alias="")) == []
    assert len(complaints(tuned)) == 2
    aged = dataclasses.replace(
        GOOD_POD,
        neighbours=tuple(dataclasses.replace(n, state=STALE) for n in GOOD_POD.neighbours),
    )
    assert len(complaints(aged)) == 2


def test_what_remains_of_a_container() -> None:
    """CNI-53."""
    here = (WEB.mark, GOOD_HOST, GOOD_STORED, WEB.container_id)
    assert remains(*here) == [
        f"host interface {NAME}",
        f"WorkloadEndpoint {WEB.endpoint_key.name}",
        f"address {FOUR.ip}",
        f"address {SIX.ip}",
    ]
    assert remains(WEB.mark, HostSide(), Stored(), WEB.container_id) == []
    newer = dataclasses.replace(endpoint_with(containerID="newer"), addresses=frozenset())
    assert remains(WEB.mark, host_with(alias="newer/eth0"), newer, WEB.container_id) == []


def previous(**changes: Any) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "interfaces": [
            {"name": "cali0761ccbeace"},
            {"name": "eth0", "mac": MAC.upper(), "sandbox": "/n"},
            {"name": "eth0", "mac": HOST_MAC, "sandbox": "/other"},
        ],
        "ips": [
            {"address": "10.65.0.7/32", "interface": 1},
            {"address": "192.0.2.1/24", "interface": 2},
        ],
        **changes,
    }


def expected(document: dict[str, Any] | None) -> Expected:
    call = request({"prevResult": document}, "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1")
    return expected_of(call, Attachment("node1", "net", "c" * 64, "eth0", "default", "web-1"))


def test_only_our_part_of_prevresult_counts() -> None:
    """PRV-09."""
    found = expected(previous())
    assert (found.addresses, found.mac, found.host_mtu) == ((FOUR,), MAC, 0)
    assert found.families == [4]
    stated = previous(cniVersion="1.1.0")
    stated["interfaces"][0]["mtu"] = 1440
    assert expected(stated).host_mtu == 1440


@pytest.mark.parametrize(
    ("document", "code", "text"),
    [
        (None, 7, "Required prevResult missing"),
        ({}, 7, "Required prevResult missing"),
        (previous(ips=[]), 7, "prevResult lists no address of interface eth0"),
        (previous(interfaces=[{"name": "eth0"}]), 7, "prevResult lists no interface eth0"),
        (previous(ips=[{"address": "x"}]), 6, "could not parse prevResult: ips.address"),
        (previous(cniVersion="9"), 6, "could not parse prevResult: no converter"),
    ],
)
def test_prevresult_that_cannot_be_compared(document: Any, code: int, text: str) -> None:
    with pytest.raises(CNIError) as caught:
        expected(document)
    assert caught.value.code == code
    assert caught.value.msg.startswith(text)
