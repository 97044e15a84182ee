"""`patch` and `label`: one resource changed in place, on a real etcd; the merge itself is pure."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from calicoctl.client import Client
from calicoctl.strategic import merged
from libcalico.errors import InvalidValue
from libcalico.model import ResourceKey
from tests.calicoctl.conftest import Ctl
from tests.support.etcd import Etcd

POOL = """\
kind: IPPool
apiVersion: projectcalico.org/v3
metadata: {name: p1, labels: {zone: a}, annotations: {why: test}}
spec: {cidr: 10.65.0.0/16, natOutgoing: true, allowedUses: [Workload, Tunnel]}
"""


def pool(ctl: Ctl) -> Any:
    return json.loads(ctl("get", "pool", "p1", "-o", "json").out)


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": {"b": 1}}, {"a": {"b": None}}, {"a": {}}),
        ({"a": {"b": 1}}, {"a": None}, {}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        (
            {"metadata": {"finalizers": ["x", "y"]}},
            {"metadata": {"finalizers": ["y", "z"]}},
            {"metadata": {"finalizers": ["x", "y", "z"]}},
        ),
        (
            {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}},
            {"metadata": {"ownerReferences": [{"uid": "1", "name": "b"}]}},
            {"metadata": {"ownerReferences": [{"uid": "1", "name": "b"}]}},
        ),
    ],
)
def test_a_strategic_merge(original: Any, patch: Any, result: Any) -> None:
    before = json.dumps(original)
    assert merged(original, patch) == result
    assert json.dumps(original) == before


def test_directives_that_are_not_served_are_named() -> None:
    with pytest.raises(InvalidValue, match=r"spec\.\$retainKeys"):
        merged({}, {"spec": {"$retainKeys": ["a"]}})
    with pytest.raises(InvalidValue, match=r"\$patch: 'banana'"):
        merged({}, {"$patch": "banana"})


@pytest.mark.parametrize("form", ["strategic", "merge", "json"])
def test_patch_changes_what_it_names(ctl: Ctl, form: str) -> None:
    ctl("apply", "-f", "-", stdin=POOL)
    before = pool(ctl)
    done = ctl("patch", "pool", "p1", "-t", form, "-p", '{"spec": {"natOutgoing": false}}')
    assert done.out == "Successfully patched 1 'IPPool' resource\n"
    assert ("strategic merge" in done.err) == (form == "json")
    after = pool(ctl)
    assert "natOutgoing" not in after["spec"]
    for field in ("uid", "creationTimestamp", "labels", "annotations"):
        assert after["metadata"][field] == before["metadata"][field]


def test_patch_as_yaml_unites_labels(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=POOL)
    assert ctl("patch", "ippool", "p1", "--patch", "metadata: {labels: {rack: r1}}").code == 0
    assert pool(ctl)["metadata"]["labels"] == {"zone": "a", "rack": "r1"}
    assert ctl("patch", "ippool", "p1", "--patch", "metadata: {labels: {zone: null}}").code == 0
    assert pool(ctl)["metadata"]["labels"] == {"rack": "r1"}


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ('{"spec": {"cidr": "10.66.0.0/16"}}', "spec.cidr: '10.66.0.0/16' is not valid: is fixed"),
        ('{"spec": {"ipipMode": "Sometimes"}}', "spec.ipipMode: 'Sometimes' is not valid"),
        ('{"spec": {"banana": 1}}', "banana"),
        ('{"spec": {"disabled": "yes"}}', "spec.disabled: 'yes' is not valid"),
        ('{"metadata": {"name": "p2"}}', "metadata.name: a patch cannot change it"),
        ('{"metadata": {"generation": 7}}', "metadata.generation: a patch cannot change it"),
        (
            '{"metadata": {"deletionTimestamp": "2026-08-22T10:11:12Z"}}',
            "metadata.deletionTimestamp: a patch cannot change it",
        ),
        ('{"metadata": {"selfLink": "/a"}}', "metadata.selfLink: a patch cannot change it"),
        ('{"metadata": {"managedFields": [{"manager": "x"}]}}', "metadata.managedFields: a patch"),
        ('{"kind": "Node"}', "kind: 'Node': a patch cannot change it"),
        ('{"metadata": {"resourceVersion": "1"}}', "resource version '1' is out of date"),
        ('[{"op": "remove", "path": "/spec/cidr"}]', "--patch must be one JSON or YAML mapping"),
        ("{", "--patch: line 2"),
    ],
)
def test_a_patch_that_does_not_fit_changes_nothing(ctl: Ctl, patch: str, told: str) -> None:
    ctl("apply", "-f", "-", stdin=POOL)
    before = pool(ctl)
    done = ctl("patch", "pool", "p1", "-p", patch)
    assert (done.code, done.out) == (1, "")
    assert told in done.err
    assert pool(ctl) == before


def test_patch_of_what_is_not_there_or_read_only(ctl: Ctl) -> None:
    done = ctl("patch", "pool", "p1", "-p", "{}")
    assert done.err == (
        "failed to patch 'IPPool' resource: [resource does not exist: IPPool(p1)]\n"
    )
    done = ctl("patch", "clusterinfo", "default", "-p", "{}")
    assert "is not supported on ClusterInformation(default)" in done.err


def test_two_writers_at_once_both_win(ctl: Ctl, etcd: Etcd, monkeypatch: Any) -> None:
    monkeypatch.setattr("calicoctl.client.RETRY_SECONDS", 0.01)
    ctl("apply", "-f", "-", stdin=POOL)
    key = ResourceKey("IPPool", "p1")
    tries = 0

    async def meet() -> None:
        async with etcd.connect() as store:
            client = Client(store)

            def change(stored: Any) -> Any:
                nonlocal tries
                tries += 1
                if tries == 1:
                    # Somebody else writes between our read and our write.
                    path = "/calico/resources/v3/projectcalico.org/ippools/p1"
                    etcd.put(path, (etcd.get(path) or b"").replace(b'"a"', b'"b"'))
                return stored

            await client.modify(key, change, "Patch")

    asyncio.run(meet())
    assert tries == 2
    assert pool(ctl)["metadata"]["labels"] == {"zone": "b"}


def test_labels(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=POOL)
    done = ctl("label", "ippools", "p1", "rack=r1")
    assert done.out == "Successfully set label rack on ippools p1\n"
    again = ctl("label", "ippools", "p1", "rack=r2")
    assert again.code == 1
    assert "key rack is already present" in again.err
    assert ctl("label", "ippools", "p1", "rack=r1").code == 0
    done = ctl("label", "ippools", "p1", "rack=r2", "--overwrite")
    assert done.out == "Successfully updated label rack on ippools p1\n"
    assert pool(ctl)["metadata"]["labels"] == {"zone": "a", "rack": "r2"}
    done = ctl("label", "ippools", "p1", "rack", "--remove")
    assert done.out == "Successfully removed label rack from ippools p1\n"
    assert pool(ctl)["metadata"]["labels"] == {"zone": "a"}
    gone = ctl("label", "ippools", "p1", "rack", "--remove")
    assert gone.code == 1
    assert "key rack does not exist" in gone.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("rack",), "give KEY=VALUE"),
        (("rack=r1", "--remove"), "the label's key alone"),
        (("rack", "--remove", "--overwrite"), "either --remove or --overwrite"),
        (("rack=not valid!",), "metadata.labels"),
    ],
)
def test_labels_that_make_no_sense(ctl: Ctl, arguments: tuple[str, ...], told: str) -> None:
    ctl("apply", "-f", "-", stdin=POOL)
    done = ctl("label", "pool", "p1", *arguments)
    assert (done.code, done.out) == (1, "")
    assert told in done.err
