"""calicoctl on the Kubernetes datastore: the same commands, the same output."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from calicoctl import datastream
from libcalico.model import AffinityKey, Block, BlockAffinity, BlockKey, Handle, HandleKey
from libcalico.model.keys import Key
from libcalico.model.resources.ipam import Attribute
from libcalico.process import paths
from tests.apiserver import kdd
from tests.calicoctl import test_every_kind as every
from tests.calicoctl.conftest import Ctl, in_this_process
from tests.support.apiserver import ADMIN, ApiServer

OF_KUBERNETES = frozenset({"Node", "Profile", "WorkloadEndpoint"})


@pytest.fixture
def ctl(
    api: ApiServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Ctl:
    """`ctl("get", "pools")` runs a command with a configuration file of this server."""
    kdd.install(api)
    kdd.clean(api)
    config = tmp_path / "calicoctl.cfg"
    config.write_text(
        "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata: {}\nspec:\n"
        f"  datastoreType: kubernetes\n  k8sAPIEndpoint: {api.url}\n"
        f"  k8sCAFile: {api.authority.cert}\n  k8sAPIToken: {ADMIN}\n"
    )
    config.chmod(0o600)
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", config)

    return in_this_process(monkeypatch, capfd)


@pytest.mark.promise("F-112")
@pytest.mark.parametrize("kind", sorted(set(every.CASES) - OF_KUBERNETES))
def test_every_kind_as_in_etcd(api: ApiServer, ctl: Ctl, kind: str) -> None:
    api.namespace("prod")
    if kind != "Tier":
        tier = "kind: Tier\napiVersion: projectcalico.org/v3\nmetadata: {name: default}\nspec: {}\n"
        assert ctl("apply", "-f", "-", stdin=tier).code == 0
    every.test_a_kind_from_create_to_delete(ctl, kind)


@pytest.mark.promise("F-112")
def test_what_kubernetes_has_is_shown_and_not_written(api: ApiServer, ctl: Ctl) -> None:
    kdd.node(api, "n1", "10.0.0.1")
    kdd.pod(api, "web-0", "n1")
    api.namespace("prod")
    policies = "/apis/networking.k8s.io/v1/namespaces/prod/networkpolicies"
    api.ensure(policies, {"metadata": {"name": "k"}, "spec": {"podSelector": {}}})
    assert "n1" in ctl("get", "nodes").out
    assert "n1-k8s-web--0-eth0" in ctl("get", "wep", "-o", "wide").out
    assert "kns.prod" in ctl("get", "profiles").out
    assert "knp.default.k" in ctl("get", "networkpolicy", "-n", "prod").out
    patched = ctl("patch", "node", "n1", "-p", '{"spec": {"bgp": {"asNumber": 64999}}}')
    assert patched.code == 0, patched.err
    told = api.call("GET", "/api/v1/nodes/n1")["metadata"]["annotations"]
    assert told["projectcalico.org/ASNumber"] == "64999"
    for arguments in (("delete", "node", "n1"), ("delete", "profile", "kns.prod")):
        refused = ctl(*arguments)
        assert refused.code == 1
        assert "Kubernetes" in refused.err


@pytest.mark.promise("F-112")
def test_ipam_commands(ctl: Ctl) -> None:
    pool = every.CASES["IPPool"]
    assert ctl("apply", "-f", "-", stdin=pool.document("IPPool")).code == 0
    assert ctl("ipam", "configure", "--strictaffinity=true").code == 0
    shown = ctl("ipam", "show", "--show-configuration")
    assert shown.code == 0, shown.err
    assert "StrictAffinity" in shown.out
    checked = ctl("ipam", "check")
    assert checked.code == 0, checked.err


@pytest.mark.promise("F-109")
def test_an_export_of_etcd_is_imported_once(api: ApiServer, ctl: Ctl, tmp_path: Path) -> None:
    kdd.node(api, "n1", "10.0.0.1")
    block = ip_network("10.65.0.0/26")
    records: dict[Key, Any] = {
        AffinityKey("n1", block): BlockAffinity(),
        BlockKey(block): Block(
            cidr=str(block),
            affinity="host:n1",
            allocations=[0, *[None] * 63],
            unallocated=list(range(1, 64)),
            attributes=[Attribute(handle_id="h")],
            sequenceNumber=1,
            sequenceNumberForAllocation={"0": 0},
        ),
        HandleKey("h"): Handle(block={str(block): 1}),
    }
    kinds = {"IPPool": every.CASES["IPPool"].document("IPPool"), "Node": NODE}
    lists: list[dict[str, object]] = [
        {
            "apiVersion": "projectcalico.org/v3",
            "kind": f"{kind}List",
            "items": [yaml.safe_load(text)],
        }
        for kind, text in kinds.items()
    ]
    cluster: dict[str, object] = {
        "kind": "ClusterInformation",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "default"},
        "spec": {"clusterGUID": "aa", "datastoreReady": False},
    }
    file = tmp_path / "export"
    file.write_text(datastream.render(lists, cluster, records))
    done = ctl("datastore", "migrate", "import", "-f", str(file))
    assert done.code == 0, done.err
    assert "Imported 2 resources, 3 records of IPAM" in done.out
    told = api.call("GET", "/api/v1/nodes/n1")["metadata"]["annotations"]
    assert told["projectcalico.org/IPv4Address"] == "10.0.0.1/24"
    stored = api.call("GET", f"{kdd.CRD}/ipamblocks/10-65-0-0-26")["spec"]
    assert stored["allocations"][0] == 0
    info = api.call("GET", f"{kdd.CRD}/clusterinformations/default")["spec"]
    assert (info["clusterGUID"], info["datastoreReady"]) == ("aa", False)
    again = ctl("datastore", "migrate", "import", "-f", str(file))
    assert again.code == 1
    assert "objects of Calico already: IPPool(" in again.err
    assert ctl("datastore", "migrate", "unlock").code == 0
    _a_node_is_not_emptied_when_it_may_not_be_deleted(api, ctl)


NODE = """kind: Node
apiVersion: projectcalico.org/v3
metadata: {name: n1}
spec: {bgp: {ipv4Address: 10.0.0.1/24}, orchRefs: [{nodeName: n1, orchestrator: k8s}]}
"""


def _a_node_is_not_emptied_when_it_may_not_be_deleted(api: ApiServer, ctl: Ctl) -> None:
    places = [f"{kdd.CRD}/{one}" for one in ("ipamblocks", "ipamhandles", "blockaffinities")]
    places.append("/api/v1/nodes")
    before = [api.call("GET", path)["items"] for path in places]
    assert all(before)
    refused = ctl("delete", "node", "n1")
    assert refused.code == 1
    assert "kubectl delete node" in refused.err
    assert [api.call("GET", path)["items"] for path in places] == before
