"""First-generation documents through the command line, on a real etcd (LEG-1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.calicoctl.conftest import Ctl
from tests.libcalico.test_legacy import CONFIG, POOL
from tests.support.etcd import Etcd

OTHER_MODE = POOL.replace("mode: always", "mode: cross-subnet")


def pools(ctl: Ctl) -> dict[str, dict[str, object]]:
    """Name and spec of every pool."""
    items = json.loads(ctl("get", "ippool", "-o", "json").out)["items"]
    return {item["metadata"]["name"]: item["spec"] for item in items}


@pytest.mark.promise("M-167")
@pytest.mark.promise("M-176")
@pytest.mark.promise("M-177")
def test_the_issues_pool_twice_and_with_another_mode(ctl: Ctl) -> None:
    first = ctl("apply", "-f", "-", stdin=POOL)
    assert first.code == 0, first.err
    assert "Successfully applied 1 'IPPool' resource(s)" in first.out
    assert ctl("apply", "-f", "-", stdin=POOL).code == 0
    found = pools(ctl)
    assert list(found) == ["192-168-0-0-16"]
    assert found["192-168-0-0-16"]["ipipMode"] == "Always"
    assert found["192-168-0-0-16"]["natOutgoing"] is True
    assert ctl("apply", "-f", "-", stdin=OTHER_MODE).code == 0
    found = pools(ctl)
    assert list(found) == ["192-168-0-0-16"]
    assert found["192-168-0-0-16"]["ipipMode"] == "CrossSubnet"


@pytest.mark.promise("M-177")
def test_a_pool_of_another_name_is_changed_not_doubled(ctl: Ctl) -> None:
    stored = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: default-ipv4-ippool}
spec: {cidr: 192.168.0.0/16, ipipMode: Never, vxlanMode: Always, blockSize: 24,
       nodeSelector: has(pods)}
"""
    assert ctl("create", "-f", "-", stdin=stored).code == 0
    before = json.loads(ctl("get", "pool", "default-ipv4-ippool", "-o", "json").out)
    for document, mode in (
        (POOL, "Always"),
        (OTHER_MODE, "CrossSubnet"),
        (OTHER_MODE, "CrossSubnet"),
    ):
        done = ctl("apply", "-f", "-", stdin=document)
        assert done.code == 0, done.err
        found = pools(ctl)
        assert list(found) == ["default-ipv4-ippool"]
        spec = found["default-ipv4-ippool"]
        assert (spec["ipipMode"], spec["vxlanMode"]) == (mode, "Never")
        assert (spec["blockSize"], spec["nodeSelector"]) == (24, "has(pods)")
        assert spec["natOutgoing"] is True
    after = json.loads(ctl("get", "pool", "default-ipv4-ippool", "-o", "json").out)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    off = POOL.replace("enabled: true", "enabled: false").replace(
        "nat-outgoing: true", "disabled: true"
    )
    assert ctl("replace", "-f", "-", stdin=off).code == 0
    spec = pools(ctl)["default-ipv4-ippool"]
    assert (spec["ipipMode"], spec["disabled"]) == ("Never", True)
    assert "natOutgoing" not in spec
    assert ctl("delete", "-f", "-", stdin=POOL).code == 0
    assert pools(ctl) == {}


def test_create_finds_the_pool_that_is_there(ctl: Ctl) -> None:
    assert ctl("create", "-f", "-", stdin=POOL).code == 0
    again = ctl("create", "-f", "-", stdin=POOL)
    assert again.code == 1
    assert "already exists" in again.err
    assert list(pools(ctl)) == ["192-168-0-0-16"]


@pytest.mark.promise("M-167")
def test_several_kinds_in_one_stream_in_any_letter_case(ctl: Ctl) -> None:
    stream = f"""\
{POOL}---
apiVersion: v1
kind: BGPPEER
metadata: {{scope: global, peerIP: 192.0.2.1}}
spec: {{asNumber: 64512}}
---
apiVersion: v1
kind: Policy
metadata: {{name: allow-web}}
spec: {{selector: "role == 'web'", ingress: [{{action: allow, protocol: tcp}}]}}
---
apiVersion: v1
kind: profile
metadata: {{name: web, tags: [web]}}
spec: {{ingress: [{{action: allow, source: {{tag: web}}}}]}}
"""
    done = ctl("apply", "-f", "-", stdin=stream)
    assert done.code == 0, done.err
    assert ctl("get", "bgppeer", "192-0-2-1").code == 0
    policy = json.loads(ctl("get", "gnp", "allow-web", "-o", "json").out)
    assert policy["spec"]["ingress"] == [{"action": "Allow", "protocol": "TCP"}]
    profile = json.loads(ctl("get", "profile", "web", "-o", "json").out)
    assert profile["spec"]["labelsToApply"] == {"web": ""}


def test_a_bad_document_stops_all_and_names_line_and_field(ctl: Ctl) -> None:
    bad = POOL.replace("nat-outgoing: true", "nat-outgoing: 1").replace("ipip:", "ipIp:")
    done = ctl("apply", "-f", "-", stdin=f"{POOL}---\n{bad}")
    assert done.code == 1
    assert "line 16: ipPool(192.168.0.0/16): unknown field 'spec.ipIp'" in done.err
    assert "line 19: ipPool(192.168.0.0/16): spec.nat-outgoing: 1 is not valid" in done.err
    assert pools(ctl) == {}


def test_the_client_configuration_is_no_resource(ctl: Ctl) -> None:
    done = ctl("apply", "-f", "-", stdin=CONFIG)
    assert done.code == 1
    assert "--config" in done.err


@pytest.mark.promise("M-169")
@pytest.mark.promise("M-170")
def test_a_v1_configuration_reaches_the_v3_store(ctl: Ctl, etcd: Etcd, tmp_path: Path) -> None:
    path = tmp_path / "calicoctl.cfg"
    path.write_text(
        "apiVersion: v1\nkind: calicoApiConfig\nmetadata:\nspec:\n"
        f'  datastoreType: "etcdv2"\n  etcdEndpoints: "{etcd.environment()["ETCD_ENDPOINTS"]}"\n'
    )
    done = ctl("get", "ipPool", "--config", str(path))
    assert done.code == 0, done.err
    assert done.err.count("etcdv2") == 1
    assert "etcdv2" not in done.out
    assert ctl("apply", "-f", "-", "--config", str(path), stdin=POOL).code == 0
    assert list(pools(ctl)) == ["192-168-0-0-16"]


def test_convert_opens_lists_and_shows_what_v1_becomes(ctl: Ctl) -> None:
    listed = (
        "apiVersion: v1\nkind: ipPoolList\nitems:\n"
        "- {apiVersion: v1, kind: ipPool, metadata: {cidr: 10.0.0.0/8}}\n"
        "- {metadata: {cidr: 192.168.0.0/16}, spec: {ipip: {enabled: true, mode: cross-subnet}}}\n"
    )
    done = ctl("convert", "-f", "-", stdin=listed)
    assert done.code == 0, done.err
    assert "name: 10-0-0-0-8" in done.out
    assert "ipipMode: CrossSubnet" in done.out
    assert "projectcalico.org/v3" in done.out
