"""Every kind through create, both tables, YAML and back, templates and deletion, on a real etcd."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from calicoctl import aliases
from tests.calicoctl.conftest import Ctl


@dataclass(frozen=True)
class Case:
    """A document, and the rows that `-o ps` and `-o wide` print of it."""

    name: str
    spec: str
    ps: str
    wide: str = ""
    namespace: str = ""

    def document(self, kind: str) -> str:
        """The document, in YAML's flow style."""
        where = f", namespace: {self.namespace}" if self.namespace else ""
        return (
            f"kind: {kind}\napiVersion: projectcalico.org/v3\n"
            f"metadata: {{name: {self.name}{where}}}\nspec: {self.spec}\n"
        )


RULES = "ingress: [{action: Allow}]"
LONG = ", ".join(f"10.0.{index}.0/24" for index in range(9))
CUT = "10.0.0.0/24,10.0.1.0/24,10.0.2.0/24,10.0.3.0/24,10.0.4.0/24,10.0.5.0/24,10.0...."

CASES = {
    "BGPConfiguration": Case(
        "default",
        "{asNumber: 64513, nodeToNodeMeshEnabled: false}",
        "NAME LOGSEVERITY MESHENABLED ASNUMBER | default Info false 64513",
    ),
    "BGPFilter": Case(
        "f1",
        "{exportV4: [{action: Accept}, {action: Reject}], importV6: [{action: Reject}]}",
        "NAME NUMEXPORTV4 NUMIMPORTV4 NUMEXPORTV6 NUMIMPORTV6 | f1 2 0 0 1",
    ),
    "BGPPeer": Case(
        "tor",
        "{peerIP: 10.99.1.254, asNumber: 64500}",
        "NAME PEERIP NODE ASN | tor 10.99.1.254 (global) 64500",
    ),
    "CalicoNodeStatus": Case(
        "s1",
        "{node: node1, classes: [Agent, BGP], updatePeriodSeconds: 10}",
        "NAME NODE | s1 node1",
        "NAME NODE CLASSES PERIOD LAST-UPDATED AGENT V4-UP V6-UP ROUTES DOWN"
        " | s1 node1 Agent,BGP 10s never - - - - -",
    ),
    "FelixConfiguration": Case("default", "{logSeverityScreen: Info}", "NAME | default"),
    "GlobalNetworkPolicy": Case(
        "g1",
        f"{{selector: all(), order: 10.5, {RULES}}}",
        "NAME TIER | g1 default",
        "NAME TIER ORDER SELECTOR | g1 default 10.5 all()",
    ),
    "GlobalNetworkSet": Case(
        "set1", f"{{nets: [{LONG}]}}", "NAME | set1", f"NAME NETS | set1 {CUT}"
    ),
    "HostEndpoint": Case(
        "h1",
        "{node: node1, interfaceName: eth0, expectedIPs: [10.0.0.1, 10.0.0.2], profiles: [p]}",
        "NAME NODE | h1 node1",
        "NAME NODE INTERFACE IPS PROFILES | h1 node1 eth0 10.0.0.1,10.0.0.2 p",
    ),
    "IPAMConfiguration": Case(
        "default",
        "{strictAffinity: true, autoAllocateBlocks: true, maxBlocksPerHost: 4}",
        "NAME STRICTAFFINITY AUTOALLOCATEBLOCKS | default true true",
        "NAME STRICTAFFINITY AUTOALLOCATEBLOCKS MAXBLOCKSPERHOST | default true true 4",
    ),
    "IPPool": Case(
        "p1",
        "{cidr: 10.65.0.0/16, natOutgoing: true, ipipMode: CrossSubnet}",
        "NAME CIDR SELECTOR | p1 10.65.0.0/16 all()",
        "NAME CIDR NAT IPIPMODE VXLANMODE DISABLED DISABLEBGPEXPORT SELECTOR ASSIGNMENTMODE"
        " | p1 10.65.0.0/16 true CrossSubnet Never false false all() Automatic",
    ),
    "IPReservation": Case(
        "r1",
        "{reservedCIDRs: [10.65.0.1, 10.65.1.0/24]}",
        "NAME | r1",
        "NAME CIDRS | r1 10.65.0.1,10.65.1.0/24",
    ),
    "KubeControllersConfiguration": Case("default", "{controllers: {}}", "NAME | default"),
    "NetworkPolicy": Case(
        "n1",
        f"{{{RULES}}}",
        "NAMESPACE NAME TIER | prod n1 default",
        "NAMESPACE NAME TIER ORDER SELECTOR | prod n1 default <nil> _",
        "prod",
    ),
    "NetworkSet": Case(
        "set2",
        "{nets: [10.0.0.0/8]}",
        "NAMESPACE NAME | prod set2",
        "NAMESPACE NAME NETS | prod set2 10.0.0.0/8",
        "prod",
    ),
    "Node": Case(
        "node1",
        "{bgp: {ipv4Address: 10.99.1.1/24}}",
        "NAME | node1",
        "NAME ASN IPV4 IPV6 | node1 (64512) 10.99.1.1/24 _",
    ),
    "Profile": Case(
        "kns.prod",
        "{labelsToApply: {b: '2', a: '1'}}",
        "NAME | kns.prod",
        "NAME LABELS | kns.prod a=1,b=2",
    ),
    "StagedGlobalNetworkPolicy": Case(
        "sg1",
        f"{{selector: all(), {RULES}}}",
        "NAME TIER | sg1 default",
        "NAME TIER ORDER SELECTOR | sg1 default <nil> all()",
    ),
    "StagedKubernetesNetworkPolicy": Case(
        "sk1",
        "{podSelector: {matchLabels: {role: db}}}",
        "NAMESPACE NAME | prod sk1",
        "NAMESPACE NAME PODSELECTOR | prod sk1 &LabelSelector{MatchLabels:map[string]string"
        "{role:~db,},MatchExpressions:[]LabelSelectorRequirement{},}",
        "prod",
    ),
    "StagedNetworkPolicy": Case(
        "sn1",
        f"{{order: 5, {RULES}}}",
        "NAMESPACE NAME TIER | prod sn1 default",
        "NAMESPACE NAME TIER ORDER SELECTOR | prod sn1 default 5 _",
        "prod",
    ),
    "Tier": Case("secure", "{order: 1000000}", "NAME ORDER | secure 1e+06"),
    "WorkloadEndpoint": Case(
        "node1-k8s-web--0-eth0",
        "{node: node1, orchestrator: k8s, pod: web-0, endpoint: eth0, ipNetworks: [10.65.0.1/32],"
        " interfaceName: cali0123456789a, profiles: [kns.prod, ksa.prod.default]}",
        "NAMESPACE WORKLOAD NODE NETWORKS INTERFACE"
        " | prod web-0 node1 10.65.0.1/32 cali0123456789a",
        "NAMESPACE NAME WORKLOAD NODE NETWORKS INTERFACE PROFILES NATS"
        " | prod node1-k8s-web--0-eth0 web-0 node1 10.65.0.1/32 cali0123456789a"
        " kns.prod,ksa.prod.default _",
        "prod",
    ),
}


def expected(row: str) -> str:
    """The table of one row as Go's tabwriter sets it; `_` is an empty cell, `~` a space."""
    lines = [
        [cell.replace("~", " ") if cell != "_" else "" for cell in half.split()]
        for half in row.split(" | ")
    ]
    widths = [max(5, *(len(line[at]) + 3 for line in lines)) for at in range(len(lines[0]))]
    text = "".join(
        "".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + "\n"
        for line in lines
    )
    return text + "\n"


def test_every_kind_has_a_case() -> None:
    assert set(CASES) == set(aliases.SERVED) - aliases.READ_ONLY


@pytest.mark.promise("F-104")
@pytest.mark.parametrize("kind", CASES)
def test_a_kind_from_create_to_delete(ctl: Ctl, kind: str) -> None:
    case = CASES[kind]
    done = ctl("create", "-f", "-", stdin=case.document(kind))
    assert (done.code, done.out) == (0, f"Successfully created 1 '{kind}' resource(s)\n"), done.err
    where = ("-n", case.namespace) if case.namespace else ()
    assert ctl("get", kind.upper(), case.name, *where).out == expected(case.ps)
    wide = ctl("get", kind, case.name, "-o", "wide", *where).out
    assert wide == expected(case.wide or case.ps)

    shown = ctl("get", kind, case.name, "-o", "yaml", *where).out
    applied = ctl("apply", "-f", "-", stdin=shown)
    assert (applied.code, applied.out) == (0, f"Successfully applied 1 '{kind}' resource(s)\n")
    listed = json.loads(ctl("get", kind, "-o", "json", *where).out)
    assert listed["kind"] == f"{kind}List"
    assert case.name in [item["metadata"]["name"] for item in listed["items"]]
    # A List is opened up again.
    listed["items"] = [one for one in listed["items"] if one["metadata"]["name"] == case.name]
    assert ctl("validate", "-f", "-", stdin=json.dumps(listed)).code == 0

    template = "{{range .}}{{.Kind}} {{.ObjectMeta.Name}}{{end}}"
    found = ctl("get", kind, case.name, *where, "-o", f"go-template={template}")
    assert found.out == f"{kind} {case.name}"
    columns = ctl("get", kind, case.name, *where, "-o", "custom-columns=NAME")
    assert columns.out == expected(f"NAME | {case.name}")
    unknown = ctl("get", kind, case.name, *where, "-o", "custom-columns=BANANA")
    assert unknown.err.startswith("unknown heading BANANA, valid values are: ")

    patched = ctl(
        "patch", kind, case.name, *where, "-p", '{"metadata": {"annotations": {"x": "y"}}}'
    )
    assert patched.out == f"Successfully patched 1 '{kind}' resource\n", patched.err
    assert ctl("label", kind, case.name, *where, "team=a").code == 0
    assert ctl("delete", kind, case.name, *where).code == 0
    gone = ctl("get", kind, case.name, *where)
    assert (gone.code, "resource does not exist" in gone.err) == (1, True)


@pytest.mark.promise("F-104")
def test_all_kinds_in_one_stream_and_gone_by_the_same_stream(ctl: Ctl) -> None:
    stream = "---\n".join(case.document(kind) for kind, case in CASES.items())
    count = len(CASES)
    done = ctl("apply", "-f", "-", stdin=stream)
    assert done.out == f"Successfully applied {count} resource(s)\n", done.err
    assert ctl("replace", "-f", "-", stdin=stream).code == 0
    again = ctl("create", "-f", "-", stdin=stream)
    assert again.code == 1
    assert again.err.count("resource already exists") == count
    assert ctl("create", "-f", "-", "--skip-exists", stdin=stream).code == 0
    # In the opposite order: a tier must be empty before it goes.
    back = "---\n".join(case.document(kind) for kind, case in reversed(CASES.items()))
    gone = ctl("delete", "-f", "-", "-s", stdin=back)
    assert gone.out == f"Successfully deleted {count} resource(s)\n", gone.err
    missing = ctl("delete", "-f", "-", stdin=back)
    assert missing.err.count("resource does not exist") == count
