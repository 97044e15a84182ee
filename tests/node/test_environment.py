"""Every variable that node start-up reads: what is taken, what is refused by name."""

from __future__ import annotations

from ipaddress import ip_interface
from pathlib import Path

import pytest

from libcalico.errors import InvalidValue
from node.settings.environment import AddressSetting, node_name, settings


def test_nothing_set_is_calicos_default() -> None:
    found = settings({})
    assert found.ipv4 == AddressSetting("", "first-found")
    assert found.ipv6 == AddressSetting("none", "first-found")
    assert (found.backend, found.as_number, found.default_pools) == ("bird", None, True)
    assert found.pool4.block_size == 26
    assert found.pool6.block_size == 122
    assert found.pool4.nat_outgoing
    assert not found.pool6.nat_outgoing
    assert found.pool4.node_selector == "all()"
    assert found.nodename_file == Path("/var/lib/calico/nodename")
    assert found.check_duplicates


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("autodetect", AddressSetting("autodetect")),
        ("none", AddressSetting("none")),
        ("10.0.0.5", AddressSetting("explicit", address=ip_interface("10.0.0.5/32"))),
        (
            "10.0.0.5/24",
            AddressSetting("explicit", address=ip_interface("10.0.0.5/24"), has_mask=True),
        ),
    ],
)
def test_ip(text: str, wish: AddressSetting) -> None:
    assert settings({"IP": text}).ipv4 == wish


def test_pool_variables() -> None:
    pool = settings(
        {
            "CALICO_IPV4POOL_CIDR": "10.65.0.0/16",
            "CALICO_IPV4POOL_BLOCK_SIZE": "28",
            "CALICO_IPV4POOL_IPIP": "cross-subnet",
            "CALICO_IPV4POOL_NAT_OUTGOING": "No",
            "CALICO_IPV4POOL_NODE_SELECTOR": "rack == 'a'",
            "CALICO_IPV4POOL_DISABLE_BGP_EXPORT": "true",
        }
    ).pool4
    assert (pool.cidr, pool.block_size, pool.ipip_mode) == ("10.65.0.0/16", 28, "CrossSubnet")
    assert (pool.vxlan_mode, pool.nat_outgoing) == ("Never", False)
    assert (pool.node_selector, pool.disable_bgp_export) == ("rack == 'a'", True)


def test_as_number_decimal_and_dotted() -> None:
    assert settings({"AS": "64512"}).as_number == 64512
    assert settings({"AS": "1.10"}).as_number == 65546


@pytest.mark.promise("M-194")
def test_logs_stay_on_standard_output_where_files_are_disabled() -> None:
    disabled, folder = {"CALICO_DISABLE_FILE_LOGGING": "true"}, {"CALICO_LOG_DIR": "/x"}
    assert settings(disabled | folder).log_dir is None
    assert settings(folder).log_dir == Path("/x")
    assert settings({}).log_dir is None


def test_the_old_way_to_switch_networking_off() -> None:
    assert settings({"CALICO_NETWORKING": "false"}).backend == "none"


@pytest.mark.parametrize(
    ("environ", "variable", "allowed"),
    [
        ({"CALICO_NETWORKING_BACKEND": "bgp"}, "CALICO_NETWORKING_BACKEND", "bird, vxlan, none"),
        ({"CALICO_ROUTER_ID": "hush"}, "CALICO_ROUTER_ID", "an IPv4 address, or hash"),
        ({"CALICO_ROUTER_ID": "fd00::1"}, "CALICO_ROUTER_ID", "an IPv4 address, or hash"),
        ({"IP": "banana"}, "IP", "autodetect, none, an IPv4 address"),
        ({"IP": "fd00::1"}, "IP", "IPv4"),
        ({"IP": "10.0.0.5/33"}, "IP", "IPv4"),
        ({"IP6": "10.0.0.5"}, "IP6", "IPv6"),
        ({"IP_AUTODETECTION_METHOD": "last"}, "IP_AUTODETECTION_METHOD", "can-reach=HOST"),
        ({"IP6_AUTODETECTION_METHOD": "cidr="}, "IP6_AUTODETECTION_METHOD", "cidr=CIDR"),
        ({"AUTODETECT_POLL_INTERVAL": "60"}, "AUTODETECT_POLL_INTERVAL", "1m30s"),
        ({"AUTODETECT_POLL_INTERVAL": "0s"}, "AUTODETECT_POLL_INTERVAL", "above zero"),
        ({"AS": "4294967296"}, "AS", "4294967295"),
        ({"AS": "x"}, "AS", "dotted"),
        ({"NO_DEFAULT_POOLS": "maybe"}, "NO_DEFAULT_POOLS", "true, false"),
        (
            {"NO_DEFAULT_POOLS": "true", "CALICO_IPV4POOL_CIDR": "10.0.0.0/8"},
            "CALICO_IPV4POOL_CIDR",
            "NO_DEFAULT_POOLS",
        ),
        ({"CALICO_IPV4POOL_BLOCK_SIZE": "33"}, "CALICO_IPV4POOL_BLOCK_SIZE", "20 to 32"),
        ({"CALICO_IPV6POOL_BLOCK_SIZE": "64"}, "CALICO_IPV6POOL_BLOCK_SIZE", "116 to 128"),
        ({"CALICO_IPV4POOL_IPIP": "sometimes"}, "CALICO_IPV4POOL_IPIP", "CrossSubnet"),
        ({"CALICO_IPV6POOL_IPIP": "Always"}, "CALICO_IPV6POOL_IPIP", "IPv4 only"),
        (
            {"CALICO_IPV4POOL_IPIP": "Always", "CALICO_IPV4POOL_VXLAN": "Always"},
            "CALICO_IPV4POOL_VXLAN",
            "not both",
        ),
    ],
)
def test_refused_by_name_with_what_is_allowed(
    environ: dict[str, str], variable: str, allowed: str
) -> None:
    with pytest.raises(InvalidValue) as error:
        settings(environ)
    assert error.value.field == variable
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    ("environ", "stored", "host", "name"),
    [
        ({"NODENAME": "n1", "HOSTNAME": "H"}, "old", "h", "n1"),
        ({"HOSTNAME": "H"}, "old\n", "h", "old"),
        ({"HOSTNAME": "Node-A"}, "", "h", "node-a"),
        ({}, "", "Node-B.example", "node-b.example"),
    ],
)
def test_the_nodes_name(environ: dict[str, str], stored: str, host: str, name: str) -> None:
    assert node_name(environ, stored, host) == name


@pytest.mark.parametrize("text", ["Upper", "a_b", "-a", "a-", "a..b", "a" * 254])
def test_a_bad_name_is_refused_with_its_source(text: str) -> None:
    with pytest.raises(InvalidValue, match="NODENAME"):
        node_name({"NODENAME": text}, "", "h")


@pytest.mark.parametrize("value", ["", "hash", "10.0.0.7"])
def test_the_speakers_router_id_passes(value: str) -> None:
    assert settings({"CALICO_ROUTER_ID": value}) == settings({})
