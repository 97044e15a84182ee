"""Every variable of the table: somebody reads it, it has a case here, and the page shows it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from bgp.serving import settings as bgp_settings
from cni.server.daemon import settings_from as cni_settings
from felix.config.parameters import PARAMETERS
from libcalico import apiconfig
from node import cni_token
from node.settings.environment import Settings, node_name, settings
from node.settings.variables import ENVIRONMENT, VARIABLES, rows

PAGE = Path(__file__).parents[2] / "docs" / "node.md"
TESTS = Path(__file__).parents[1]


def of(read: Callable[[Settings], Any]) -> Callable[[Mapping[str, str]], Any]:
    return lambda environ: read(settings(environ))


# name: value, what is looked at, what it must be then (and must not be without it)
CASES: dict[str, tuple[str, Callable[[Mapping[str, str]], Any], Any]] = {
    "NODENAME": ("n1", lambda e: node_name(e, "", "h"), "n1"),
    "HOSTNAME": ("N2", lambda e: node_name(e, "", "h"), "n2"),
    "CALICO_NODENAME_FILE": ("/x/name", of(lambda s: str(s.nodename_file)), "/x/name"),
    "CALICO_SHUTDOWN_TIMESTAMP_FILE": ("/x/down", of(lambda s: str(s.shutdown_file)), "/x/down"),
    "WAIT_FOR_DATASTORE": ("false", of(lambda s: s.wait_for_datastore), False),
    "CALICO_NETWORKING_BACKEND": ("vxlan", of(lambda s: s.backend), "vxlan"),
    "CALICO_NETWORKING": ("false", of(lambda s: s.backend), "none"),
    "IP": ("10.0.0.5/24", of(lambda s: str(s.ipv4.address)), "10.0.0.5/24"),
    "IP6": ("fd00::5", of(lambda s: str(s.ipv6.address)), "fd00::5/128"),
    "IP_AUTODETECTION_METHOD": ("can-reach=h", of(lambda s: s.ipv4.method), "can-reach=h"),
    "IP6_AUTODETECTION_METHOD": ("interface=e", of(lambda s: s.ipv6.method), "interface=e"),
    "DISABLE_NODE_IP_CHECK": ("true", of(lambda s: s.check_duplicates), False),
    "AUTODETECT_POLL_INTERVAL": ("1m30s", of(lambda s: s.poll_seconds), 90.0),
    "AS": ("1.10", of(lambda s: s.as_number), 65546),
    "CALICO_ROUTER_ID": ("hash", lambda e: bgp_settings(e).router_id, "hash"),
    "CALICO_K8S_NODE_REF": ("k1", of(lambda s: s.kubernetes_name("n1")), "k1"),
    "NO_DEFAULT_POOLS": ("true", of(lambda s: s.default_pools), False),
    "CALICO_IPV4POOL_CIDR": ("10.65.0.0/16", of(lambda s: s.pool4.cidr), "10.65.0.0/16"),
    "CALICO_IPV6POOL_CIDR": ("fd65::/48", of(lambda s: s.pool6.cidr), "fd65::/48"),
    "CALICO_IPV4POOL_BLOCK_SIZE": ("28", of(lambda s: s.pool4.block_size), 28),
    "CALICO_IPV6POOL_BLOCK_SIZE": ("120", of(lambda s: s.pool6.block_size), 120),
    "CALICO_IPV4POOL_IPIP": ("cross-subnet", of(lambda s: s.pool4.ipip_mode), "CrossSubnet"),
    "CALICO_IPV4POOL_VXLAN": ("ALWAYS", of(lambda s: s.pool4.vxlan_mode), "Always"),
    "CALICO_IPV6POOL_VXLAN": ("always", of(lambda s: s.pool6.vxlan_mode), "Always"),
    "CALICO_IPV4POOL_NAT_OUTGOING": ("n", of(lambda s: s.pool4.nat_outgoing), False),
    "CALICO_IPV6POOL_NAT_OUTGOING": ("anything", of(lambda s: s.pool6.nat_outgoing), True),
    "CALICO_IPV4POOL_NODE_SELECTOR": ("a == 'b'", of(lambda s: s.pool4.node_selector), "a == 'b'"),
    "CALICO_IPV6POOL_NODE_SELECTOR": ("a == 'b'", of(lambda s: s.pool6.node_selector), "a == 'b'"),
    "CALICO_IPV4POOL_DISABLE_BGP_EXPORT": ("true", of(lambda s: s.pool4.disable_bgp_export), True),
    "CALICO_IPV6POOL_DISABLE_BGP_EXPORT": ("true", of(lambda s: s.pool6.disable_bgp_export), True),
    "CALICO_POOL_ALLOW_OVERLAP": ("true", of(lambda s: s.allow_overlap), True),
    "CLUSTER_TYPE": ("k8s,bgp", of(lambda s: s.cluster_type), "k8s,bgp"),
    "CALICO_DISABLE_FILE_LOGGING": ("false", of(lambda s: str(s.log_dir)), "/var/log/calico"),
    "CALICO_LOG_DIR": ("/x/log", of(lambda s: str(s.log_dir)), "/x/log"),
    "CALICO_DISABLE_FELIX": ("true", of(lambda s: s.felix), False),
    "CALICO_MANAGE_CNI": ("false", of(lambda s: s.manage_cni), False),
    "CALICO_CNI_SERVICE_ACCOUNT": ("me", of(lambda s: s.cni_account), "me"),
    "CNI_NET_DIR": ("/x/net", lambda e: str(cni_token.folder(e)), "/x/net"),
    "CALICO_ADVERTISE_CLUSTER_IPS": (
        "10.96.0.0/16",
        lambda e: bgp_settings(e).cluster_ips,
        "10.96.0.0/16",
    ),
    "CALICO_CNI_HEALTHPORT": ("9196", lambda e: cni_settings(e).health_port, 9196),
    "FELIX_IPV6SUPPORT": ("false", of(lambda s: s.ipv6_support), False),
}
ELSEWHERE = {
    "DATASTORE_TYPE": "libcalico/test_apiconfig.py",
    "ETCD_*": "libcalico/test_apiconfig.py",
    "KUBECONFIG": "apiserver/test_bgp_sources.py",
    "K8S_*": "libcalico/test_apiconfig.py",
    "CALICO_API_GROUP": "libcalico/test_apiconfig.py",
    "CALICO_STARTUP_LOGLEVEL": "node/test_node_process.py",
    "CALICO_LOG_LEVEL": "node/test_node_process.py",
    "CALICO_LOG_FORMAT": "node/test_node_process.py",
    "FELIX_*": "felix/config/test_config.py",
    "CALICO_BGP_*": "bgp/test_limits.py",
    "CALICO_BIRD_CTL_DIR": "bgp/test_birdctl.py",
    "CALICO_CNI_CRI_SOCKET": "cni/test_collection.py",
    "NOTIFY_SOCKET": "node/units.py",
}
"""What the tests of other rooms and files show: the file names the variable."""

ALL = [(name, one) for one in VARIABLES for name in one.each()]


def test_every_variable_of_the_table_has_a_case() -> None:
    assert {name for name, _ in ALL} == set(CASES) | set(ELSEWHERE)
    for name, file in ELSEWHERE.items():
        # Of a family of names any one.
        assert name.removesuffix("*") in (TESTS / file).read_text(), f"{name} in {file}"


@pytest.mark.parametrize("name", CASES)
def test_a_variable_has_its_effect(name: str) -> None:
    value, read, wanted = CASES[name]
    assert read({name: value}) == wanted
    assert read({}) != wanted, "or the case shows nothing"


class Recorder(dict[str, str]):
    """An environment that knows what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return default


def read_by_start_up() -> set[str]:
    recorder = Recorder()
    settings(recorder)
    node_name(recorder, "", "h")
    return recorder.asked


def test_none_is_unread_and_none_is_read_that_the_table_lacks() -> None:
    asked = read_by_start_up()
    assert {name for name, one in ALL if one.reader == ENVIRONMENT} == asked - {
        "CALICO_ROUTER_ID",
        # Refused by name unless it says that there is none.
        "CALICO_IPV6POOL_IPIP",
    }
    for name, one in ALL:
        if one.reader != ENVIRONMENT and "*" not in name and name not in options():
            source = Path(str(importlib.import_module(one.reader).__file__)).read_text()
            assert name in source, f"{one.reader} reads {name}"


def options() -> set[str]:
    return {str(one.metadata["env"]) for one in fields(apiconfig.DatastoreConfig) if one.metadata}


def test_families_of_names_are_those_of_their_readers() -> None:
    assert {name for name in options() if name.startswith(("ETCD_", "K8S_"))}
    assert {"FELIX_HEALTHPORT", "FELIX_HEALTHHOST", "FELIX_HEALTHENABLED"} <= {
        one.env for one in PARAMETERS
    }


def code_reads() -> Iterator[str]:
    """Names in capitals that the code of this room takes out of an environment."""
    pattern = re.compile(r'environ(?:\.get\(|\[)\s*"([A-Z][A-Z0-9_]+)"')
    for file in (Path(__file__).parents[2] / "node").glob("*.py"):
        yield from pattern.findall(file.read_text())


def test_no_file_of_this_room_reads_another_variable() -> None:
    # The probes ask felix and bgp where those were told to listen.
    listeners = {"FELIX_HEALTHHOST", "FELIX_HEALTHPORT", "CALICO_BGP_HEALTH_PORT"}
    known = {name for name, _ in ALL} | {"KUBERNETES_SERVICE_HOST"} | listeners
    assert set(code_reads()) <= known


def test_the_page_shows_the_table() -> None:
    shown = PAGE.read_text().splitlines()
    missing = [row for row in rows() if row not in shown]
    assert not missing, (
        "python -c 'from node.settings.variables import rows; print(*rows(), sep=chr(10))'"
    )
