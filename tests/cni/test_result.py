"""Results in every version: the golden results, round trips of random ones, bad input."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cni.request.errors import CNIError, Code, error_object
from cni.request.result import (
    DNS,
    FLAT,
    SUPPORTED_VERSIONS,
    TYPED,
    Interface,
    IPConfig,
    Result,
    Route,
)
from cni.request.result_decoding import decode
from cni.request.result_encoding import as_document, encode
from tests.size import examples


def at(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    return ipaddress.ip_interface(text)


GOLDEN = Result(
    interfaces=(
        Interface("cali0a1b2c3d4e5"),
        Interface("eth0", "7E:11:22:33:44:55", 1450, "/var/run/netns/testing"),
    ),
    ips=(
        IPConfig(at("192.168.10.5/32"), interface=1),
        IPConfig(at("fd00:10::5/128"), interface=1),
    ),
)
GOLDEN_FLAT = (
    '{"cniVersion":"%s","ip4":{"ip":"192.168.10.5/32"},"ip6":{"ip":"fd00:10::5/128"},"dns":{}}\n'
)
GOLDEN_TYPED = (
    '{"cniVersion":"%s","interfaces":[{"name":"cali0a1b2c3d4e5"},'
    '{"name":"eth0","mac":"7e:11:22:33:44:55","sandbox":"/var/run/netns/testing"}],'
    '"ips":[{"version":"4","interface":1,"address":"192.168.10.5/32"},'
    '{"version":"6","interface":1,"address":"fd00:10::5/128"}],"dns":{}}\n'
)
GOLDEN_PLAIN = (
    '{"cniVersion":"%s","interfaces":[{"name":"cali0a1b2c3d4e5"},'
    '{"name":"eth0","mac":"7e:11:22:33:44:55",%s"sandbox":"/var/run/netns/testing"}],'
    '"ips":[{"interface":1,"address":"192.168.10.5/32"},'
    '{"interface":1,"address":"fd00:10::5/128"}]}\n'
)
GOLDEN_IPAM = (
    '{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/26","gateway":"10.1.2.1"}],'
    '"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1","mtu":1400,"advmss":1360,"priority":100,'
    '"table":254,"scope":0}],"dns":{"nameservers":["10.96.0.10"],'
    '"search":["svc.cluster.local"],"options":["ndots:5"]}}\n'
)


@pytest.mark.promise("M-23")
@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_golden_attachment(version: str) -> None:
    if version in FLAT:
        expected = GOLDEN_FLAT % version
    elif version in TYPED:
        expected = GOLDEN_TYPED % version
    else:
        expected = GOLDEN_PLAIN % (version, '"mtu":1450,' if version == "1.1.0" else "")
    assert encode(GOLDEN, version).decode() == expected


def test_a_request_without_a_version_gets_the_flat_shape_labelled_0_2_0() -> None:
    assert encode(GOLDEN, "").decode() == GOLDEN_FLAT % "0.2.0"


def test_golden_ipam_result_is_read_and_written_back() -> None:
    assert encode(decode(GOLDEN_IPAM), "1.1.0").decode() == GOLDEN_IPAM


def test_route_extras_and_mtu_never_leak_into_older_versions() -> None:
    result = decode(GOLDEN_IPAM)
    for version in SUPPORTED_VERSIONS[:-1]:
        text = encode(result, version).decode()
        assert '"advmss"' not in text
        assert '"table"' not in text
        assert '"gw":"10.1.2.1"' in text


def test_zero_is_written_only_where_it_means_something() -> None:
    route = Route(at("10.0.0.0/8"), mtu=0, priority=0, table=0, scope=0)
    (written,) = as_document(Result(routes=(route,)), "1.1.0")["routes"]
    assert written == {"dst": "10.0.0.0/8", "table": 0, "scope": 0}
    (interface,) = as_document(Result(ips=(IPConfig(at("10.0.0.1/8"), interface=0),)), "1.0.0")[
        "ips"
    ]
    assert interface["interface"] == 0


def test_flat_takes_the_first_of_a_family_and_sorts_routes_into_it() -> None:
    result = Result(
        ips=(
            IPConfig(at("fd00::1/64"), ipaddress.ip_address("fd00::ffff")),
            IPConfig(at("10.0.0.1/24")),
            IPConfig(at("10.0.0.2/24")),
        ),
        routes=(
            Route(at("0.0.0.0/0"), ipaddress.ip_address("10.0.0.254"), mtu=9),
            Route(at("::/0")),
        ),
        dns=DNS(domain="d"),
    )
    assert as_document(result, "0.2.0") == {
        "cniVersion": "0.2.0",
        "ip4": {"ip": "10.0.0.1/24", "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.254"}]},
        "ip6": {"ip": "fd00::1/64", "gateway": "fd00::ffff", "routes": [{"dst": "::/0"}]},
        "dns": {"domain": "d"},
    }
    only_v6 = Result(ips=result.ips[:1], routes=result.routes)
    assert "ip4" not in as_document(only_v6, "0.1.0")


def test_flat_cannot_hold_a_result_without_addresses() -> None:
    with pytest.raises(CNIError, match="cannot convert: no valid IP addresses"):
        encode(Result(interfaces=(Interface("eth0"),)), "0.2.0")


def test_flat_is_read_as_listed_addresses() -> None:
    assert decode(encode(GOLDEN, "0.1.0")) == Result(
        ips=(IPConfig(at("192.168.10.5/32")), IPConfig(at("fd00:10::5/128")))
    )


def test_wrong_family_labels_are_recomputed() -> None:
    document = as_document(GOLDEN, "0.4.0")
    document["ips"][0]["version"] = "6"
    assert as_document(decode(document), "0.3.0")["ips"][0]["version"] == "4"


def test_a_result_is_read_by_its_own_version_or_the_default() -> None:
    for version in SUPPORTED_VERSIONS:
        document = as_document(GOLDEN, version)
        assert decode(document, "1.0.0").ips
        del document["cniVersion"]
        assert decode(document, version).ips == decode(as_document(GOLDEN, version)).ips
    with pytest.raises(CNIError, match=r"no converter for CNI result version 7.0.0 to 1.1.0"):
        decode({"cniVersion": "7.0.0"})
    with pytest.raises(CNIError, match=r"no converter for CNI result version 1.1.0 to 7.0.0"):
        encode(GOLDEN, "7.0.0")


def test_mapped_addresses_become_ipv4() -> None:
    document = {
        "cniVersion": "1.0.0",
        "ips": [{"address": "::ffff:10.0.0.1/128", "gateway": "::ffff:10.0.0.2"}],
    }
    assert decode(document).ips == (IPConfig(at("10.0.0.1/32"), ipaddress.ip_address("10.0.0.2")),)


def test_reading_forgives_nulls_missing_and_unknown_keys() -> None:
    for version in SUPPORTED_VERSIONS:
        empty: dict[str, Any] = {
            "cniVersion": version,
            "interfaces": None,
            "ips": None,
            "routes": None,
            "dns": None,
            "ip4": None,
            "x": [1],
        }
        assert decode(empty) == Result()
        assert decode({"cniVersion": version}) == Result()
    entry = {"address": "10.0.0.1/32", "gateway": "", "interface": 1.0, "extra": {}}
    assert decode({"cniVersion": "1.0.0", "ips": [entry]}).ips[0].interface == 1


BAD: list[dict[str, Any]] = [
    {"ips": {}},
    {"ips": [5]},
    {"ips": [{}]},
    {"ips": [{"address": "10.0.0.1"}]},
    {"ips": [{"address": "10.0.0.1/33"}]},
    {"ips": [{"address": "10.0.0.1/24", "interface": "0"}]},
    {"ips": [{"address": "10.0.0.1/24", "interface": True}]},
    {"ips": [{"address": "10.0.0.1/24", "gateway": "x"}]},
    {"interfaces": [{"name": 5}]},
    {"routes": [{"dst": "default"}]},
    {"dns": {"search": "x"}},
    {"dns": []},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_what_cannot_be_read_is_named(bad: dict[str, Any]) -> None:
    with pytest.raises(CNIError) as caught:
        decode({"cniVersion": "1.0.0"} | bad)
    assert caught.value.code == Code.DECODING_FAILURE
    assert caught.value.msg.startswith("could not parse a CNI result: ")


@pytest.mark.parametrize("bad", ["", "{", "[]", "null", b"\xff"])
def test_what_is_no_object_is_refused(bad: str | bytes) -> None:
    with pytest.raises(CNIError):
        decode(bad)


def test_error_object() -> None:
    error = CNIError(Code.TRY_AGAIN_LATER, "two\nlines", "more")
    assert json.loads(error_object(error, "0.4.0")) == {
        "cniVersion": "0.4.0",
        "code": 11,
        "msg": "two lines",
        "details": "more",
    }
    assert b"details" not in error_object(CNIError(100, "short"), "1.1.0")


v4 = st.builds(ipaddress.IPv4Interface, st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)))
v6 = st.builds(
    ipaddress.IPv6Interface, st.tuples(st.integers(2**120, 2**128 - 1), st.integers(0, 128))
)
cidrs = st.one_of(v4, v6)
gateways = st.none() | st.ip_addresses(v=4)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
names = st.text("abcdef0123456789", min_size=1, max_size=8)
interfaces = st.builds(Interface, names, st.just("") | st.just("7e:11:22:33:44:55"), sandbox=texts)
ips = st.builds(IPConfig, cidrs, gateways, st.none() | st.integers(0, 5))
plain_routes = st.builds(Route, cidrs, gateways)
full_routes = st.builds(
    Route,
    cidrs,
    gateways,
    st.integers(0, 9000),
    st.integers(0, 9000),
    st.integers(0, 2**31),
    st.none() | st.integers(0, 2**31),
    st.none() | st.integers(0, 255),
)
words = st.lists(texts, max_size=3).map(tuple)
dns = st.builds(DNS, words, texts, words, words)


def results(routes: st.SearchStrategy[Route]) -> st.SearchStrategy[Result]:
    def many(strategy: Any) -> Any:
        return st.lists(strategy, max_size=4).map(tuple)

    return st.builds(Result, many(interfaces), many(ips), many(routes), dns)


@settings(max_examples=examples(200), deadline=None)
@given(results(full_routes))
def test_the_newest_version_holds_everything(result: Result) -> None:
    assert decode(encode(result, "1.1.0")) == result


@settings(max_examples=examples(200), deadline=None)
@given(results(plain_routes), st.sampled_from(sorted(TYPED)))
def test_plain_to_typed_to_plain_is_the_identity(result: Result, version: str) -> None:
    plain = encode(result, "1.0.0")
    assert encode(decode(encode(decode(plain), version)), "1.0.0") == plain


@settings(max_examples=examples(200), deadline=None)
@given(results(full_routes), st.sampled_from(SUPPORTED_VERSIONS))
def test_each_version_has_only_its_own_keys(result: Result, version: str) -> None:
    if version in FLAT and not result.ips:
        return
    document = as_document(result, version)
    allowed = {"ip4", "ip6"} if version in FLAT else {"interfaces", "ips", "routes"}
    assert document.keys() <= allowed | {"cniVersion", "dns"}
    assert document["cniVersion"] == version
    for ip in document.get("ips", []):
        assert ("version" in ip) == (version in TYPED)
        assert "/" in ip["address"]
