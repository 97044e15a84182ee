"""`datastore migrate` and `migrate-policy-names` on a real etcd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calicoctl import datastream
from calicoctl.commands.datastore.import_ import plan
from ipam.records import blocks
from libcalico.model import Block
from libcalico.model.keys import AffinityKey, BlockKey
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.test_commands import P1, document
from tests.calicoctl.test_ipam import assign
from tests.support.etcd import Etcd

NODE = document(
    "Node",
    "node1",
    bgp={"ipv4Address": "10.99.1.1/24"},
    orchRefs=[{"nodeName": "kube1", "orchestrator": "k8s"}],
)


def ready(ctl: Ctl) -> bool:
    tree = json.loads(ctl("get", "clusterinfo", "default", "-o", "json").out)
    return bool(tree["spec"]["datastoreReady"])


def test_lock_and_unlock(ctl: Ctl) -> None:
    # Locking makes the cluster information where there is none yet.
    assert ctl("datastore", "migrate", "lock").out == "Datastore locked.\n"
    assert not ready(ctl)
    assert ctl("datastore", "migrate", "lock").code == 0
    assert ctl("datastore", "migrate", "unlock").out == "Datastore unlocked.\n"
    assert ready(ctl)


def test_unlock_needs_something_to_unlock(ctl: Ctl) -> None:
    refused = ctl("datastore", "migrate", "unlock")
    assert (refused.code, "nothing to unlock" in refused.err) == (1, True)


@pytest.mark.promise("F-34")
def test_export_of_a_cluster_is_read_back_whole(ctl: Ctl, etcd: Etcd, tmp_path: Path) -> None:
    policy = json.loads(document("NetworkPolicy", "p", selector="all()"))
    policy["metadata"]["namespace"] = "web"
    assert ctl("apply", "-f", "-", stdin="\n---\n".join([P1, NODE, json.dumps(policy)])).err == ""
    (address,) = assign(etcd, "node1", "web-0")
    open_ = ctl("datastore", "migrate", "export")
    assert (open_.code, "datastore is not locked" in open_.err) == (1, True)
    ctl("datastore", "migrate", "lock")
    done = ctl("datastore", "migrate", "export")
    assert (done.code, done.err) == (0, "")
    stream = datastream.parse(done.out, "export")
    kinds = [(one.kind, one.name) for one in stream.resources]
    for expected in (("IPPool", "p1"), ("Node", "kube1"), ("NetworkPolicy", "p")):
        assert expected in kinds
    assert [name for kind, name in kinds if kind == "Tier"] == [
        "kube-admin",
        "default",
        "kube-baseline",
    ]
    (affinity,) = [key for key in stream.ipam if isinstance(key, AffinityKey)]
    assert affinity.host == "kube1"
    (block,) = [value for key, value in stream.ipam.items() if isinstance(key, BlockKey)]
    assert isinstance(block, Block)
    assert [str(one.address) for one in blocks.allocations(block)] == [address]
    assert plan(stream) == f"{len(kinds)} resources, 3 records of IPAM"

    file = tmp_path / "export"
    file.write_text(done.out)
    refused = ctl("datastore", "migrate", "import", "-f", str(file))
    assert (refused.code, "import needs kubernetes" in refused.err) == (1, True)


def test_export_refuses_a_node_that_kubernetes_does_not_know(ctl: Ctl) -> None:
    node = document("Node", "node1", bgp={"ipv4Address": "10.99.1.1/24"})
    assert ctl("apply", "-f", "-", stdin=node).code == 0
    ctl("datastore", "migrate", "lock")
    refused = ctl("datastore", "migrate", "export")
    assert (refused.code, refused.out) == (1, "")
    assert "node node1 missing a 'k8s' orchestrator reference" in refused.err


def test_import_reads_the_whole_file_before_it_asks_for_the_datastore(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctl("apply", "-f", "-", stdin=P1)
    ctl("datastore", "migrate", "lock")
    file = tmp_path / "export"
    file.write_text(ctl("datastore", "migrate", "export").out)
    monkeypatch.setenv("DATASTORE_TYPE", "kubernetes")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    refused = ctl("datastore", "migrate", "import", "-f", str(file))
    assert refused.code == 1
    assert "no Kubernetes API" in refused.err
    file.write_text(file.read_text().replace("10.65.0.0/16", "10.65.0.0/99"))
    assert "spec.cidr" in ctl("datastore", "migrate", "import", "-f", str(file)).err


def test_policies_of_older_releases_get_their_own_keys(ctl: Ctl, etcd: Etcd) -> None:
    root = "/calico/resources/v3/projectcalico.org/"
    old = f"{root}globalnetworkpolicies/default."

    def policy(name: str) -> str:
        return json.dumps(
            {
                "kind": "GlobalNetworkPolicy",
                "apiVersion": "projectcalico.org/v3",
                "metadata": {"name": name, "uid": "11111111-1111-1111-1111-111111111111"},
                "spec": {"tier": "default", "selector": "all()", "types": ["Ingress"]},
            }
        )

    ctl("apply", "-f", "-", stdin=P1)
    etcd.put(f"{old}web", policy("default.web"))
    etcd.put(f"{old}both", policy("default.both"))
    new = document("GlobalNetworkPolicy", "new", selector="all()")
    assert ctl("apply", "-f", "-", stdin=new).err == ""
    etcd.put(f"{root}globalnetworkpolicies/both", policy("both"))
    assert ctl("datastore", "migrate-policy-names").out == (
        "Policy name migration complete, migrated 2 policies.\n"
    )
    keys = [key.rpartition("/")[2] for key in etcd.keys(f"{root}globalnetworkpolicies/")]
    assert keys == ["both", "new", "web"]
    assert json.loads(ctl("get", "gnp", "web", "-o", "json").out)["metadata"]["uid"].startswith("1")
    assert "migrated 0 policies" in ctl("datastore", "migrate-policy-names").out
