"""The datastore that a configuration names, against the daemon's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cni.request.config import parse_config
from cni.request.errors import CNIError
from cni.request.stores import NOTHING, StoreCheck
from libcalico.apiconfig import ETCD, KUBERNETES, DatastoreConfig
from tests.support.certificates import Authority

OURS = DatastoreConfig(ETCD, etcd_endpoints="https://192.0.2.1:2379,https://[2001:db8::1]:2379")
NAME = {"name": "net", "cniVersion": "0.1.0"}


def check(
    document: Mapping[str, Any], ours: DatastoreConfig | None = OURS, host: Path = Path("/host")
) -> None:
    StoreCheck(ours, host)(parse_config({**NAME, **document}).store)


def refusal(document: Mapping[str, Any], ours: DatastoreConfig | None = OURS) -> str:
    with pytest.raises(CNIError) as caught:
        check(document, ours)
    assert caught.value.code == 7
    return caught.value.msg


def test_a_configuration_that_names_none_is_not_looked_at() -> None:
    assert parse_config({**NAME, "etcd_endpoints": "", "etcd_key_file": None}).store is NOTHING


@pytest.mark.promise("M-153")
@pytest.mark.parametrize(
    "named",
    [
        {"etcd_endpoints": "https://192.0.2.1:2379"},
        {"etcd_endpoints": "https://192.0.2.9:2379, https://192.0.2.1:2379"},
        {"etcd_endpoints": "https://192.0.2.1"},
        {"etcd_endpoints": "https://[2001:DB8:0::1]:2379"},
        {"etcd_authority": "192.0.2.1:2379", "etcd_scheme": "https"},
        {"etcd_authority": "192.0.2.9:2379", "etcd_endpoints": "https://192.0.2.1:2379"},
        {"datastore_type": "etcdv3"},
        {"datastore_type": "etcdv3", "etcd_endpoints": "https://192.0.2.1:2379"},
    ],
    ids=str,
)
def test_one_member_in_common_is_the_same_store(named: dict[str, str]) -> None:
    check(named)


@pytest.mark.promise("M-153")
@pytest.mark.parametrize(
    ("named", "key", "value"),
    [
        ({"etcd_endpoints": "https://192.0.2.2:2379"}, "etcd_endpoints", "https://192.0.2.2:2379"),
        ({"etcd_endpoints": "https://192.0.2.1:2380"}, "etcd_endpoints", "192.0.2.1:2380"),
        ({"etcd_endpoints": "http://me:canary@b:1"}, "etcd_endpoints", "http://b:1"),
        ({"etcd_authority": "192.0.2.2:2379"}, "etcd_endpoints", "192.0.2.2:2379"),
        ({"etcd_discovery_srv": "example.org"}, "etcd_discovery_srv", "example.org"),
        ({"datastore_type": "kubernetes"}, "datastore_type", "kubernetes"),
        ({"datastore_type": "consul"}, "datastore_type", "consul"),
    ],
    ids=str,
)
def test_another_store_is_refused_and_both_are_named(
    named: dict[str, str], key: str, value: str
) -> None:
    message = refusal(named)
    assert message.startswith(f"{key} names another datastore")
    assert value in message
    assert "etcdv3 at https://192.0.2.1:2379" in message
    assert "canary" not in message


def test_localhost_has_several_names() -> None:
    ours = DatastoreConfig(ETCD, etcd_endpoints="http://127.0.0.1:2379")
    for name in ("localhost", "127.0.0.1", "[::1]", "127.0.0.2"):
        check({"etcd_endpoints": f"http://{name}:2379"}, ours)
    assert "names another" in refusal({"etcd_endpoints": "http://localhost:2381"}, ours)


def test_etcd_is_another_store_than_kubernetes() -> None:
    ours = DatastoreConfig(KUBERNETES, k8s_api_endpoint="https://192.0.2.5:6443")
    check({"datastore_type": "kubernetes"}, ours)
    assert "kubernetes at https://192.0.2.5:6443" in refusal({"etcd_endpoints": "http://a:1"}, ours)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder, "ca")
    pair = authority.issue("cni", names=(), usage="clientAuth")
    return {
        "etcd_key_file": str(pair.key),
        "etcd_cert_file": str(pair.cert),
        "etcd_ca_cert_file": str(authority.cert),
    }


@pytest.mark.promise("M-154")
def test_files_must_be_there_and_usable(tls: dict[str, str], tmp_path: Path) -> None:
    check(tls)
    for key in tls:
        missing = str(tmp_path / "gone")
        message = refusal({**tls, key: missing})
        assert message == f"{key} cannot be read: {missing}: No such file or directory"
        empty = tmp_path / f"empty-{key}"
        empty.write_text("")
        assert str(empty) in refusal({**tls, key: str(empty)})


@pytest.mark.promise("M-154")
def test_a_file_that_is_replaced_is_looked_at_again(tls: dict[str, str], tmp_path: Path) -> None:
    copies = {key: tmp_path / key for key in tls}
    for key, path in tls.items():
        copies[key].write_bytes(Path(path).read_bytes())
    verify = StoreCheck(OURS)
    named = parse_config({**NAME, **{key: str(path) for key, path in copies.items()}}).store
    verify(named)
    verify(named)
    fresh = tmp_path / "fresh"
    fresh.write_text("nothing")
    os.replace(fresh, copies["etcd_cert_file"])
    with pytest.raises(CNIError, match="etcd_cert_file"):
        verify(named)


def test_files_of_the_host_are_found_from_a_container(tls: dict[str, str], tmp_path: Path) -> None:
    inside = tmp_path / "etc/cni/net.d/calico-tls"
    inside.mkdir(parents=True)
    named = {}
    for key, path in tls.items():
        (inside / key).write_bytes(Path(path).read_bytes())
        named[key] = f"/etc/cni/net.d/calico-tls/{key}"
    check(named, host=tmp_path)
    assert "etcd_key_file cannot be read" in refusal(named)
