"""Documents: what is opened up, and what is refused with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from calicoctl.documents import load_files, load_text
from libcalico.errors import MuslinError

POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata:
  name: p1
spec:
  cidr: 10.65.0.0/16
"""


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
- {kind: tier, apiVersion: projectcalico.org/v3, metadata: {name: t}, spec: {order: 10.5}}
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


def test_json_is_read_as_well() -> None:
    text = (
        '{"kind":"IPPool","apiVersion":"projectcalico.org/v3",'
        '"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/8"}}'
    )
    assert load_text(text, "f")[0].resource.spec.cidr == "10.0.0.0/8"


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
        "f: line 5: IPPool(p1): unknown field 'metadata.lables'",
        "f: line 6: IPPool(p1): metadata.labels[a]: 1",
        "f: line 9: IPPool(p1): spec.blockSize: 'big'",
        "f: line 10: IPPool(p1): spec.allowedUses: 'Workload'",
        "f: line 11: IPPool(p1): spec.natOutgoing: 'yes'",
        "f: line 12: IPPool(p1): unknown field 'spec.nat-outgoing'",
    ]


def test_directories(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.yaml").write_text(POOL)
    (tmp_path / "a.yml").write_text(POOL.replace("p1", "p0"))
    (tmp_path / "deep" / "c.json").write_text(POOL.replace("p1", "p2"))
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
