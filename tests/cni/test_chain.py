"""Our result behind another's, and what configuration and runtime add of DNS."""

from __future__ import annotations

import json
from ipaddress import ip_interface
from typing import Any

import pytest

from cni.request.chain import chained, is_policy_only, previous_of, with_dns
from cni.request.errors import CNIError
from cni.request.request import Request, parse_request
from cni.request.result import DNS, Interface, IPConfig, Result, Route

NETNS = "/run/netns/x"


def request(**config: Any) -> Request:
    env = {
        "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": NETNS, "CNI_IFNAME": "eth0",
    }  # fmt: skip
    document = {"cniVersion": "1.0.0", "name": "net", "type": "calico"} | config
    return parse_request("calico", env, json.dumps(document))


def result(name: str, address: str, **more: Any) -> Result:
    return Result(
        (Interface(f"host-{name}"), Interface(name, sandbox=NETNS)),
        (IPConfig(ip_interface(address), interface=1),),
        **more,
    )


def test_what_was_before_stands_in_front_and_indexes_hold() -> None:
    route = Route(ip_interface("10.0.0.0/8"))
    before = result("net0", "10.1.0.1/24", routes=(route,), dns=DNS(("10.9.9.9",), "a"))
    own = result("eth0", "10.2.0.1/32", dns=DNS((), "b"))
    both = chained(before, own)
    assert [link.name for link in both.interfaces] == ["host-net0", "net0", "host-eth0", "eth0"]
    named = [(str(ip.address), both.interfaces[ip.interface or 0].name) for ip in both.ips]
    assert named == [("10.1.0.1/24", "net0"), ("10.2.0.1/32", "eth0")]
    assert both.routes == (route,)
    assert both.dns == DNS(("10.9.9.9",), "b")
    assert chained(None, own) == own


def test_dns_of_the_runtime_before_ipams_before_the_configurations() -> None:
    given = request(
        dns={"nameservers": ["1.1.1.1"], "domain": "conf", "search": ["conf"]},
        runtimeConfig={"dns": {"Servers": ["2.2.2.2"], "searches": None}},
    )
    own = Result(dns=DNS(("3.3.3.3",), "", ("ipam",)))
    assert with_dns(given, own).dns == DNS(("2.2.2.2",), "conf", ("ipam",))
    assert with_dns(request(), own) == own
    wrong: tuple[Any, ...] = (5, {"nameservers": "x"}, {"domain": []})
    for bad in wrong:
        with pytest.raises(CNIError) as caught:
            with_dns(request(dns=bad), own)
        assert (caught.value.code, "dns" in caught.value.msg) == (7, True)


def test_policy_only_needs_the_interface_and_no_ipam() -> None:
    there = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}]}
    other = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/y"}]}
    ipam = {"ipam": {"type": "calico-ipam"}}

    def judged(**config: Any) -> bool:
        asked = request(**config)
        return is_policy_only(asked, previous_of(asked))

    assert judged(prevResult=there)
    assert not judged(prevResult=other)
    assert not judged()
    assert not judged(prevResult=other, **ipam)
    with pytest.raises(CNIError) as caught:
        judged(prevResult=there, **ipam)
    assert caught.value.code == 7
    with pytest.raises(CNIError) as caught:
        judged(prevResult={"cniVersion": "1.0.0", "ips": 5})
    assert caught.value.code == 6
    assert previous_of(request(cniVersion="0.2.0", prevResult=there)) is None
