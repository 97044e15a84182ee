"""Documents: what is opened up, and what is refused with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from calicoctl.documents import load_files, load_text
from libcalico.errors import MuslinError
from libcalico.model import IPPool

POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata:
  name: p1
spec:
  cidr: 10.65.0.0/16
"""
LIST = "apiVersion: projectcalico.org/v3\nkind: {kind}\n{more}\n"
JSON = (
    '{"kind":"IPPool","apiVersion":"projectcalico.org/v3",'
    '"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/8"}}'
)


def test_several_documents_lists_and_sequences() -> None:
    listed = """\
kind: IPPoolList
apiVersion: projectcalico.org/v3
metadata: {resourceVersion: "5"}
items:
- metadata: {name: a}
  spec: {cidr: 10.0.0.0/16}
---
kind: List
apiVersion: v1
items:
- {kind: Node, apiVersion: projectcalico.org/v3, metadata: {name: n1}}
---
- {kind: Tier, apiVersion: projectcalico.org/v3, metadata: {name: t}, spec: {order: 10.5}}
"""
    documents = load_text(listed + "---\n" + POOL, "f")
    assert [(one.kind, one.name) for one in documents] == [
        ("IPPool", "a"),
        ("Node", "n1"),
        ("Tier", "t"),
        ("IPPool", "p1"),
    ]
    assert documents[0].place("spec.cidr") == "f: line 6"
    assert documents[3].place("spec.cidr") == "f: line 20"


def test_json_is_read_as_well(tmp_path: Path) -> None:
    pool = load_text(JSON, "f")[0].resource
    assert isinstance(pool, IPPool)
    assert pool.spec.cidr == "10.0.0.0/8"
    (tmp_path / "p.json").write_text(JSON)
    assert load_files(str(tmp_path))[0].name == "p"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (JSON.replace('/8"}', '/8",}'), "f: line 1, column 106: not valid JSON: "),
        (JSON.replace('"p"}', '"p",\n}'), "f: line 2, column 1: not valid JSON: "),
        (f"[{JSON},]", "not valid JSON: "),
        (POOL + f"---\n[{JSON},]", "f: line 8, column "),
        (JSON.replace('"10.0.0.0/8"', "ten"), "not valid JSON: "),
        (JSON.replace('"p"}', '"p","name":"q"}'), "metadata.name: this key stands here twice"),
    ],
)
def test_what_is_written_as_json_must_be_json(text: str, told: str) -> None:
    with pytest.raises(MuslinError) as error:
        load_text(text, "f")
    assert told in str(error.value)


def test_a_json_file_holds_json(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(POOL)
    with pytest.raises(MuslinError, match=r"p.json: line 1, column 1: not valid JSON"):
        load_files(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (POOL.replace("cidr", "cdir"), "f: line 6: IPPool(p1): unknown field 'spec.cdir'"),
        (POOL + "  blockSize: big\n", "f: line 7: IPPool(p1): spec.blockSize: 'big'"),
        (POOL.replace("IPPool", "IPAMBlock"), "f: line 1: resource type 'IPAMBlock'"),
        (POOL.replace("IPPool", "Banana"), "'Banana' is not supported"),
        (POOL.replace("kind: IPPool\n", ""), "f: line 1: kind: no kind is given"),
        (POOL.replace("projectcalico.org/v3", "v2"), "apiVersion: 'v2' is not valid: must be"),
        (POOL.replace("projectcalico.org/v3", "v1"), "f: line 6: ipPool(): unknown field"),
        ("just text\n", "f: line 1: a resource must be a mapping"),
        (
            POOL.replace("IPPool", "IPPools"),
            "f: line 1: kind: 'IPPools' is not valid: write IPPool",
        ),
        (POOL.replace("IPPool", "ippool"), "f: line 1: kind: 'ippool' is not valid: write IPPool"),
        (POOL.replace("IPPool", "pools"), "f: line 1: kind: 'pools' is not valid: write IPPool"),
        (
            LIST.format(kind="IPPoolsList", more="items: []"),
            "f: line 2: IPPoolsList: kind: 'IPPools",
        ),
        (
            LIST.format(kind="IPPoolList", more="item: []"),
            "f: line 3: IPPoolList: unknown field 'it",
        ),
        (
            LIST.format(kind="IPPoolList", more="items: {}"),
            "f: line 3: IPPoolList: items: must be a",
        ),
        (
            LIST.format(kind="IPPoolList", more="items: [{kind: Node, metadata: {name: n}}]"),
            "f: line 3: kind: 'Node' is not valid: an item of IPPoolList is an IPPool",
        ),
        (
            LIST.format(kind="List", more="items: [{kind: pool}]"),
            "f: line 3: pool: apiVersion: None",
        ),
        (
            POOL.replace("  name: p1", "  name: p1\n  name: p2"),
            "metadata.name: this key stands here",
        ),
        (POOL.replace("name: p1", "name: p1\n  lables: {}"), "unknown field 'metadata.lables'"),
        (
            POOL + "---\n" + POOL.replace("IPPool", "BGPPeer").replace("cidr", "peer"),
            "f: line 13: BGPPeer(p1): unknown field 'spec.peer'",
        ),
    ],
)
def test_refusals_name_file_line_and_field(text: str, told: str) -> None:
    with pytest.raises(MuslinError) as error:
        load_text(text, "f")
    assert told in str(error.value)


def test_all_complaints_about_a_document_come_at_once() -> None:
    text = POOL.replace("name: p1", "name: p1\n  lables: {}\n  labels: {a: 1}") + (
        "  blockSize: big\n  allowedUses: Workload\n  natOutgoing: 'yes'\n  nat-outgoing: true\n"
    )
    with pytest.raises(MuslinError) as error:
        load_text(text, "f")
    told = str(error.value).split("; ")
    assert [one.split(" is not valid")[0] for one in told] == [
        "f: line 5: IPPool(p1): unknown field 'metadata.lables' (did you mean 'labels'?)",
        "f: line 6: IPPool(p1): metadata.labels[a]: 1",
        "f: line 9: IPPool(p1): spec.blockSize: 'big'",
        "f: line 10: IPPool(p1): spec.allowedUses: 'Workload'",
        "f: line 11: IPPool(p1): spec.natOutgoing: 'yes'",
        "f: line 12: IPPool(p1): unknown field 'spec.nat-outgoing' (did you mean 'natOutgoing'?)",
    ]


def test_directories(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.yaml").write_text(POOL)
    (tmp_path / "a.yml").write_text(POOL.replace("p1", "p0"))
    (tmp_path / "deep" / "c.json").write_text(JSON.replace('"p"', '"p2"'))
    (tmp_path / "notes.txt").write_text("no resource")
    assert [one.name for one in load_files(str(tmp_path))] == ["p0", "p1"]
    assert [one.name for one in load_files(str(tmp_path), recursive=True)] == ["p0", "p1", "p2"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MuslinError, match=r"cannot read .*nothing.yaml: No such file"):
        load_files(str(tmp_path / "nothing.yaml"))


def test_every_document_that_is_wrong_is_named(tmp_path: Path) -> None:
    head = "apiVersion: projectcalico.org/v3\n"
    good = f"{head}kind: Tier\nmetadata: {{name: t}}\n"
    (tmp_path / "a.yaml").write_text(f"{good}---\n{head}kind: Nodex\n---\n{good}spec: {{no: 1}}\n")
    (tmp_path / "b.yaml").write_text("kind: [\n")
    with pytest.raises(MuslinError) as caught:
        load_files(str(tmp_path))
    lines = str(caught.value).splitlines()
    assert "a.yaml: line 5: resource type 'Nodex'" in lines[0]
    assert "a.yaml: line 11: Tier(t): unknown field 'spec.no'" in lines[1]
    assert "b.yaml" in lines[2]
