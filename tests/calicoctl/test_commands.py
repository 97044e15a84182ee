"""Every resource command on a real etcd: sentences, exit codes, and what is stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from libcalico.datastore.interface import Put
from libcalico.model import (
    ClusterInformation,
    ClusterInformationSpec,
    Metadata,
    ResourceKey,
)
from tests.calicoctl.conftest import Ctl
from tests.support.etcd import Etcd


def document(kind: str, name: str, **spec: Any) -> str:
    metadata = {"name": name} if name else {}
    return json.dumps(
        {
            "kind": kind,
            "apiVersion": "projectcalico.org/v3",
            "metadata": metadata,
            "spec": spec,
        }
    )


P1 = document("IPPool", "p1", cidr="10.65.0.0/16", natOutgoing=True)
P2 = document("IPPool", "p2", cidr="10.66.0.0/16")
TOR = document("BGPPeer", "tor", node="node1", peerIP="10.99.1.254", asNumber=64500)
WEP = document(
    "WorkloadEndpoint",
    "",
    node="node1",
    orchestrator="k8s",
    pod="web-0",
    endpoint="eth0",
    ipNetworks=["10.65.0.1/32"],
    interfaceName="cali0123456789a",
    profiles=["kns.default", "ksa.default.default"],
)


def stored(ctl: Ctl, *arguments: str) -> Any:
    return json.loads(ctl("get", *arguments, "-o", "json").out)


def test_create_get_replace_delete(ctl: Ctl) -> None:
    assert ctl("create", "-f", "-", stdin=P1).out == "Successfully created 1 'IPPool' resource(s)\n"
    again = ctl("create", "-f", "-", stdin=P1)
    assert (again.code, again.out) == (1, "")
    assert again.err == (
        "failed to create 'IPPool' resource: [resource already exists: IPPool(p1)]\n"
    )
    assert ctl("create", "-f", "-", "--skip-exists", stdin=P1).code == 0
    assert ctl("get", "pool", "p1").out == (
        "NAME   CIDR           SELECTOR   \np1     10.65.0.0/16   all()      \n\n"
    )
    changed = P1.replace('"natOutgoing": true', '"disabled": true')
    assert ctl("replace", "-f", "-", stdin=changed).code == 0
    spec = stored(ctl, "ippool", "p1")["spec"]
    assert spec["disabled"] is True
    assert "natOutgoing" not in spec
    assert ctl("replace", "-f", "-", stdin=P2).err == "resource does not exist: IPPool(p2)\n"
    assert ctl("delete", "ippool", "p1").out == "Successfully deleted 1 'IPPool' resource(s)\n"
    gone = ctl("delete", "ippool", "p1")
    assert (gone.code, gone.err) == (
        1,
        "failed to delete 'IPPool' resource: [resource does not exist: IPPool(p1)]\n",
    )
    assert ctl("delete", "ippool", "p1", "-s").code == 0


def test_apply_twice_keeps_identity(ctl: Ctl) -> None:
    assert ctl("apply", "-f", "-", stdin=f"{P1}\n---\n{TOR}").out == (
        "Successfully applied 2 resource(s)\n"
    )
    before = stored(ctl, "ippool", "p1")["metadata"]
    assert ctl("apply", "-f", "-", stdin=P1).code == 0
    after = stored(ctl, "ippool", "p1")["metadata"]
    assert {key: after[key] for key in ("uid", "creationTimestamp")} == {
        key: before[key] for key in ("uid", "creationTimestamp")
    }


def test_what_get_prints_can_be_applied(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=f"{P1}\n---\n{P2}\n---\n{TOR}")
    for kind in ("ippool", "bgppeer", "tier"):
        text = ctl("get", kind, "-o", "yaml").out
        assert ctl("apply", "-f", "-", stdin=text).code == 0, kind


@pytest.mark.promise("M-175")
def test_several_documents_from_standard_input_and_from_folders(ctl: Ctl, tmp_path: Path) -> None:
    here_document = f"---\n{P1}\n---\n# nothing here\n---\n{TOR}\n...\n"
    done = ctl("apply", "-f", "-", stdin=here_document)
    assert done.out == "Successfully applied 2 resource(s)\n"
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.yaml").write_text(P2)
    (tmp_path / "notes.txt").write_text("not a resource")
    (tmp_path / "sub" / "b.json").write_text(TOR)
    flat = ctl("apply", "-f", str(tmp_path))
    assert flat.out == "Successfully applied 1 'IPPool' resource(s)\n"
    assert ctl("apply", "-f", str(tmp_path), "-R").out == "Successfully applied 2 resource(s)\n"


@pytest.mark.promise("M-173")
def test_kinds_in_mixed_case(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=P1)
    for word in ("ipPool", "ippool", "IPPOOLS", "pool", "Pools", "ipp", "IPPs"):
        assert ctl("get", word).out == (
            "NAME   CIDR           SELECTOR   \np1     10.65.0.0/16   all()      \n\n"
        )
        assert ctl("get", word, "-o", "wide").out.split()[:4] == ["NAME", "CIDR", "NAT", "IPIPMODE"]


def test_every_resource_that_failed_is_named(ctl: Ctl) -> None:
    done = ctl("replace", "-f", "-", stdin=f"{P1}\n---\n{P2}\n---\n{TOR}")
    assert done.err == (
        "resource does not exist: IPPool(p1)\n"
        "resource does not exist: IPPool(p2)\n"
        "resource does not exist: BGPPeer(tor)\n"
    )
    ctl("apply", "-f", "-", stdin=P2)
    done = ctl("delete", "pool", "p1", "p2", "p3")
    assert done.out == "Partial success: deleted the first 1 out of 3 'IPPool' resources:\n"
    assert done.err == (
        "hit error: [resource does not exist: IPPool(p1); resource does not exist: IPPool(p3)]\n"
    )


def test_policies_of_the_kubernetes_api_are_left_to_it(ctl: Ctl) -> None:
    text = document("NetworkPolicy", "knp.default.web", selector="all()")
    for verb in ("create", "apply", "replace", "delete"):
        done = ctl(verb, "-f", "-", stdin=text)
        assert done.code == 1
        assert "must be managed through the kubernetes API" in done.err
    for words in (("patch", "-p", "{}"), ("label", "a=b")):
        done = ctl(words[0], "np", "knp.default.web", *words[1:])
        assert "must be managed through the kubernetes API" in done.err


def test_an_overlap_of_pools_is_refused_unless_it_is_wanted(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=P1)
    inside = document("IPPool", "inside", cidr="10.65.4.0/24")
    done = ctl("create", "-f", "-", stdin=inside)
    assert done.code == 1
    assert "spec.cidr: '10.65.4.0/24' is not valid: overlaps IPPool(p1)" in done.err
    assert ctl("create", "-f", "-", "--allow-overlap", stdin=inside).code == 0


def test_get_and_delete_by_file(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=f"{P1}\n---\n{TOR}")
    shown = ctl("get", "-f", "-", stdin=f"{P1}\n---\n{TOR}")
    assert [line.split()[0] for line in shown.out.splitlines() if line] == [
        "NAME",
        "p1",
        "NAME",
        "tor",
    ]
    # A file that says less than what is stored still names it.
    gone = ctl("delete", "-f", "-", stdin=f"{P1}\n---\n{TOR}")
    assert gone.out == "Successfully deleted 2 resource(s)\n"
    assert "p1" not in ctl("get", "pools").out


def test_an_old_resource_version_is_refused(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=P1)
    text = ctl("get", "ippool", "p1", "-o", "yaml").out
    ctl("apply", "-f", "-", stdin=P1.replace("true", "false"))
    old = ctl("replace", "-f", "-", stdin=text)
    assert old.code == 1
    assert "is out of date (latest: " in old.err


def test_bad_input_names_every_fault_and_writes_nothing(ctl: Ctl, etcd: Etcd) -> None:
    bad_pool = document("IPPool", "p9", cidr="10.65.0.0/33")
    bad_peer = document("BGPPeer", "x", peerIP="banana", asNumber=1)
    done = ctl("apply", "-f", "-", stdin=f"{P1}\n---\n{bad_pool}\n---\n{bad_peer}")
    assert done.code == 1
    assert done.out == ""
    assert "standard input: line 3: IPPool(p9): spec.cidr: '10.65.0.0/33' is not valid" in done.err
    assert "standard input: line 5: BGPPeer(x): spec.peerIP: 'banana' is not valid" in done.err
    assert etcd.keys("") == []


def test_unknown_fields_write_nothing(ctl: Ctl, etcd: Etcd) -> None:
    done = ctl("apply", "-f", "-", stdin=f"{P1}\n---\n{P2.replace('cidr', 'cdir')}")
    assert done.code == 1
    assert done.err.startswith("failed to execute command: standard input: line 3: IPPool(p2):")
    assert etcd.keys("") == []


def test_a_conflict_with_what_is_stored_is_a_partial_success(ctl: Ctl) -> None:
    clash = document("IPPool", "p3", cidr="10.65.1.0/24")
    done = ctl("create", "-f", "-", stdin=f"{P1}\n---\n{clash}\n---\n{P2}")
    assert done.code == 1
    assert done.out == "Partial success: created the first 2 out of 3 'IPPool' resources:\n"
    assert done.err.startswith("hit error: [IPPool(p3): spec.cidr: '10.65.1.0/24' is not valid")
    assert "IPPool(p1)" in done.err


def test_fixed_fields_of_a_pool(ctl: Ctl) -> None:
    ctl("create", "-f", "-", stdin=P1)
    for change in ('"cidr": "10.64.0.0/15"', '"cidr": "10.65.0.0/16", "blockSize": 28'):
        done = ctl("apply", "-f", "-", stdin=P1.replace('"cidr": "10.65.0.0/16"', change))
        assert done.code == 1
        assert "is fixed at" in done.err


def test_read_only_and_built_in_objects(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=P1)
    info = ctl("get", "clusterinfo", "default", "-o", "yaml").out
    for verb in ("apply", "replace", "delete"):
        done = ctl(verb, "-f", "-", stdin=info)
        assert done.code == 1
        assert "is not supported on ClusterInformation(default)" in done.err
    assert "built in" in ctl("delete", "tier", "default").err
    assert "not supported" in ctl("delete", "profile", "projectcalico-default-allow").err


def test_tables(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=f"{P1}\n---\n{TOR}\n---\n{WEP}")
    assert ctl("get", "weps").out == (
        "WORKLOAD   NODE    NETWORKS       INTERFACE         \n"
        "web-0      node1   10.65.0.1/32   cali0123456789a   \n\n"
    )
    assert ctl("get", "wep", "-A").out.startswith("NAMESPACE   WORKLOAD   NODE")
    assert ctl("get", "wep", "-n", "elsewhere").out.splitlines()[1:] == [""]
    assert ctl("get", "wep", "-o", "wide").out.splitlines()[1].split() == [
        "node1-k8s-web--0-eth0",
        "web-0",
        "node1",
        "10.65.0.1/32",
        "cali0123456789a",
        "kns.default,ksa.default.default",
    ]
    assert ctl("get", "bgppeers").out.splitlines()[1].split() == [
        "tor",
        "10.99.1.254",
        "node1",
        "64500",
    ]
    assert ctl("get", "pools", "-o", "wide").out.splitlines()[1].split() == [
        "p1",
        "10.65.0.0/16",
        "true",
        "Never",
        "Never",
        "false",
        "false",
        "all()",
        "Automatic",
    ]
    tiers = [line.split() for line in ctl("get", "tiers").out.splitlines()[1:4]]
    assert tiers == [["kube-admin", "1000"], ["default", "1e+06"], ["kube-baseline", "1e+07"]]
    custom = ctl("get", "pools", "-o", "custom-columns=cidr,NAME")
    assert custom.out.splitlines()[0].split() == ["CIDR", "NAME"]
    unknown = ctl("get", "pools", "-o", "custom-columns=FOO")
    assert unknown.err.startswith("unknown heading FOO, valid values are: ")


def test_node_table_shows_the_clusters_as_number(ctl: Ctl) -> None:
    node = document("Node", "n1", bgp={"ipv4Address": "10.99.1.1/24"})
    own = document("Node", "n2", bgp={"ipv4Address": "10.99.1.2/24", "asNumber": 65001})
    ctl("apply", "-f", "-", stdin=f"{node}\n---\n{own}")
    assert [line.split() for line in ctl("get", "nodes", "-o", "wide").out.splitlines()[1:3]] == [
        ["n1", "(64512)", "10.99.1.1/24"],
        ["n2", "65001", "10.99.1.2/24"],
    ]
    ctl("apply", "-f", "-", stdin=document("BGPConfiguration", "default", asNumber=64999))
    assert "(64999)" in ctl("get", "node", "n1", "-o", "wide").out


def test_yaml_and_json_shapes(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=f"{P1}\n---\n{P2}")
    one = yaml.safe_load(ctl("get", "pool", "p1", "-o", "yaml").out)
    assert one["kind"] == "IPPool"
    assert one["metadata"]["resourceVersion"].isdigit()
    listed = yaml.safe_load(ctl("get", "pools", "-o", "yaml").out)
    assert (listed["kind"], len(listed["items"])) == ("IPPoolList", 2)
    assert listed["metadata"]["resourceVersion"].isdigit()
    several = stored(ctl, "pool", "p1", "p2")
    assert [item["metadata"]["name"] for item in several] == ["p1", "p2"]
    text = ctl("get", "pool", "p1", "-o", "json").out
    assert not text.endswith("\n")
    assert text.startswith('{\n  "kind": "IPPool",\n  "apiVersion": "projectcalico.org/v3",\n')
    exported = yaml.safe_load(ctl("get", "pool", "p1", "-o", "yaml", "--export").out)
    assert set(exported["metadata"]) == {"name"}


def test_what_is_missing_is_told_beside_what_is_there(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=P1)
    done = ctl("get", "pool", "p1", "nope")
    assert done.code == 1
    assert "p1" in done.out
    assert done.err == "resource does not exist: IPPool(nope)\n"


def test_namespaces(ctl: Ctl) -> None:
    in_web = WEP.replace('"metadata": {}', '"metadata": {"namespace": "web"}')
    assert ctl("apply", "-f", "-", stdin=in_web).code == 0
    assert ctl("get", "wep", "node1-k8s-web--0-eth0").code == 1
    assert ctl("get", "wep", "node1-k8s-web--0-eth0", "-n", "web").code == 0
    found = stored(ctl, "wep", "node1-k8s-web--0-eth0", "-n", "web")
    assert found["metadata"]["labels"] == {
        "projectcalico.org/namespace": "web",
        "projectcalico.org/orchestrator": "k8s",
    }
    assert "web != other" in ctl("apply", "-f", "-", "-n", "other", stdin=in_web).err
    assert ctl("get", "pools", "-n", "web").err == "IPPool is not namespaced\n"
    assert "cannot use both" in ctl("get", "wep", "-n", "web", "-A").err
    misnamed = WEP.replace('"metadata": {}', '"metadata": {"name": "x"}')
    refused = ctl("apply", "-f", "-", stdin=misnamed)
    assert (refused.code, "metadata.name: 'x' is not valid" in refused.err) == (1, True)


def test_encryption_that_would_not_happen_is_refused(ctl: Ctl, etcd: Etcd) -> None:
    text = document("FelixConfiguration", "default", wireguardEnabled=True)
    done = ctl("apply", "-f", "-", stdin=text)
    assert (done.code, "spec.wireguardEnabled: True is not valid" in done.err) == (1, True)
    assert etcd.keys("") == []
    assert ctl("apply", "-f", "-", "--accept-unenforced", stdin=text).code == 0


def test_usage_errors_exit_1(ctl: Ctl) -> None:
    for arguments in (
        ("get",),
        ("get", "pool", "-f", "x"),
        ("create",),
        ("frobnicate",),
        ("get", "pool", "--nope"),
        ("get", "pool", "-o", "xml"),
        ("get", "pool", "-o", "go-template={{template}}"),
        ("get", "pool", "-o", "go-template-file=/nowhere/at/all"),
        ("delete", "pool"),
        ("apply", "-f", "-"),
    ):
        done = ctl(*arguments)
        assert (done.code, done.out) == (1, ""), arguments
        assert done.err, arguments
    assert ctl("apply", "-f", "-", "--skip-empty").out == "No resources specified\n"


def test_what_cannot_be_read_is_named_beside_what_can(ctl: Ctl, etcd: Etcd) -> None:
    root = "/calico/resources/v3/projectcalico.org"
    ctl("apply", "-f", "-", stdin=P1)
    etcd.put(f"{root}/ippools/broken", b'{"kind": "IPPool", "spec": {"cidr": 7}}')
    done = ctl("get", "pools")
    assert done.code == 1
    assert [line.split()[0] for line in done.out.splitlines() if line] == ["NAME", "p1"]
    assert "the datastore holds a value that cannot be read" in done.err
    assert "broken" in done.err
    # A part of a policy that cannot be read must not be changed: the rest is not known.
    etcd.put(
        f"{root}/globalnetworkpolicies/bad",
        b'{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3",'
        b'"metadata":{"name":"bad"},"spec":{"selector":"all()","ingress":7}}',
    )
    for command in (("patch", "gnp", "bad", "-p", "{}"), ("label", "gnp", "bad", "a=b")):
        assert "cannot be read" in ctl(*command).err
    good = document("GlobalNetworkPolicy", "bad", selector="all()")
    assert ctl("replace", "-f", "-", stdin=good).code == 0
    assert ctl("label", "gnp", "bad", "a=b").code == 0


@pytest.mark.parametrize(
    ("kind", "folder", "spec"),
    [
        ("IPPool", "ippools", {"cidr": "10.65.0.0/16"}),
        ("IPReservation", "ipreservations", {"reservedCIDRs": ["10.65.0.0/24"]}),
        ("BGPPeer", "bgppeers", {"peerIP": "10.99.1.254", "asNumber": 64500}),
        ("BGPConfiguration", "bgpconfigurations", {"asNumber": 64500}),
        ("BGPFilter", "bgpfilters", {}),
        ("Node", "nodes", {"bgp": {"ipv4Address": "10.99.1.1/24"}}),
    ],
)
@pytest.mark.parametrize("raw", [b"{", b'{"metadata":{"name":"default"},"spec":7}'])
def test_what_cannot_be_read_can_be_replaced_and_deleted(
    ctl: Ctl, etcd: Etcd, kind: str, folder: str, spec: dict[str, Any], raw: bytes
) -> None:
    path = f"/calico/resources/v3/projectcalico.org/{folder}/default"
    good = document(kind, "default", **spec)
    for verb in ("apply", "replace"):
        etcd.put(path, raw)
        assert "cannot be read" in ctl("get", kind, "default").err
        assert "cannot be read" in ctl("label", kind, "default", "a=b").err
        assert "already exists" in ctl("create", "-f", "-", stdin=good).err
        assert ctl(verb, "-f", "-", stdin=good).err == ""
        metadata = stored(ctl, kind, "default")["metadata"]
        assert metadata["uid"]
        assert metadata["creationTimestamp"]
    etcd.put(path, raw)
    done = ctl("delete", kind, "default")
    assert (done.code, done.err, etcd.get(path)) == (0, "", None)


def test_version_gate(ctl: Ctl, etcd: Etcd) -> None:
    async def older() -> None:
        async with etcd.connect() as store:
            info = ClusterInformation(
                metadata=Metadata(name="default"),
                spec=ClusterInformationSpec(calicoVersion="v3.30.2", clusterType="k8s,bgp"),
            )
            await store.commit([Put(ResourceKey("ClusterInformation", "default"), info)])

    asyncio.run(older())
    refused = ctl("get", "pools")
    assert (refused.code, refused.err) == (
        1,
        "version mismatch.\nClient Version:   v3.33.1\nCluster Version:  v3.30.2\n"
        "Use --allow-version-mismatch to override\n",
    )
    assert ctl("get", "pools", "--allow-version-mismatch").code == 0
    assert ctl("--allow-version-mismatch", "get", "pools").code == 0
    version = ctl("version")
    assert version.out.endswith("Cluster Version:   v3.30.2\nCluster Type:      k8s,bgp\n")
