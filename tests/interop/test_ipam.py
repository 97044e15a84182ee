"""`calicoctl ipam` and `datastore migrate` of both on the same blocks, ours and Calico's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.calicoctl.conftest import Ctl, Done
from tests.calicoctl.test_ipam import assign
from tests.interop.conftest import Theirs
from tests.interop.driver import Driver
from tests.interop.stored import comparable, document, everything, restore
from tests.support.etcd import Etcd


@pytest.fixture
def cluster(theirs: Theirs, driver: Driver, etcd: Etcd) -> None:
    """Two pools, two nodes, and blocks that both libraries wrote."""
    references = {"orchRefs": [{"nodeName": "k", "orchestrator": "k8s"}]}
    for text in (
        document("Node", "ours", {"orchRefs": [{"nodeName": "k1", "orchestrator": "k8s"}]}),
        document("Node", "theirs", references),
        document("IPPool", "p4", {"cidr": "10.65.0.0/24", "blockSize": 28}),
        document("IPPool", "p6", {"cidr": "fd00:65::/112"}),
        document("KubeControllersConfiguration", "default", {"controllers": {}}),
    ):
        done = theirs("create", "-f", "-", stdin=text)
        assert done.code == 0, done.err
    for number in range(4):
        assign(etcd, "ours", f"o{number}", 1 + number % 2)
        attributes = {"node": "theirs", "namespace": "default", "pod": f"t{number}"}
        driver(
            "auto_assign",
            host="theirs",
            handle=f"k8s.t{number}",
            num4=1 + number % 2,
            num6=1,
            attrs=attributes,
        )


def allocations(etcd: Etcd) -> dict[str, bytes]:
    return {k: v for k, v in everything(etcd).items() if k.startswith("/calico/ipam/")}


@pytest.mark.interop
@pytest.mark.usefixtures("cluster")
def test_a_command_leaves_the_same_bytes_whoever_runs_it(
    ours: Ctl, theirs: Theirs, etcd: Etcd
) -> None:
    before = everything(etcd)
    held = [
        f"{block['cidr'].rpartition('/')[0]}"
        for key, raw in before.items()
        if "/assignment/ipv4/" in key
        for block in [json.loads(raw)]
    ]
    assert len(held) == 2
    for arguments in (
        ("ipam", "release", f"--ip={held[0]}"),
        ("ipam", "release", f"--ip={held[1]}"),
        ("ipam", "release", "--ip=10.65.0.255"),
        ("ipam", "release", "--ip=192.0.2.1"),
        ("ipam", "show", f"--ip={held[0]}"),
        ("ipam", "show", "--ip=10.65.0.255"),
        ("ipam", "configure", "--strictaffinity=true"),
        ("ipam", "configure", "--strictaffinity=true", "--max-blocks-per-host=5"),
        ("ipam", "configure", "--kubevirt-ip-persistence=Disabled"),
        ("datastore", "migrate", "lock"),
        ("datastore", "migrate", "unlock"),
    ):
        results: list[tuple[Done, dict[str, bytes | None]]] = []
        for calicoctl in (theirs, ours):
            done = calicoctl(*arguments)
            after = {key: comparable(value) for key, value in everything(etcd).items()}
            results.append((done, after))
            restore(etcd, before)
        assert results[0] == results[1], arguments


@pytest.mark.interop
@pytest.mark.usefixtures("cluster")
def test_split_makes_the_same_pools(ours: Ctl, theirs: Theirs, etcd: Etcd) -> None:
    assert theirs("datastore", "migrate", "lock").code == 0
    before = everything(etcd)
    found = []
    for calicoctl in (theirs, ours):
        assert calicoctl("ipam", "split", "4", "--name=p4").code == 0
        found.append({key: comparable(value) for key, value in everything(etcd).items()})
        restore(etcd, before)
    assert found[0] == found[1]


def _tables(text: str) -> list[list[str]]:
    """The rows of a table without its rules and the column that came after v3.32."""
    rows = [row.split("|")[1:-1] for row in text.splitlines() if row.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows]
    drop = cells[0].index("IPS RESERVED") if "IPS RESERVED" in cells[0] else -1
    return [[cell for at, cell in enumerate(row) if at != drop] for row in cells]


@pytest.mark.interop
@pytest.mark.usefixtures("cluster")
def test_show_tells_the_same_numbers(ours: Ctl, theirs: Theirs) -> None:
    for flags in ((), ("--show-blocks",), ("--show-borrowed",)):
        they, we = theirs("ipam", "show", *flags), ours("ipam", "show", *flags)
        assert sorted(_tables(we.out)) == sorted(_tables(they.out))


def _sorted(tree: Any) -> Any:
    return json.loads(json.dumps(tree, sort_keys=True))


@pytest.mark.interop
@pytest.mark.usefixtures("cluster")
def test_reports_are_the_same_and_each_releases_from_the_others(
    ours: Ctl,
    theirs: Theirs,
    etcd: Etcd,
    tmp_path: Path,
    kubeconfig: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    theirs.environment["KUBECONFIG"] = kubeconfig
    assert theirs("datastore", "migrate", "lock").code == 0
    before = everything(etcd)
    reports = {}
    for name, calicoctl in (("theirs", theirs), ("ours", ours)):
        done = calicoctl("ipam", "check", "-o", str(tmp_path / name))
        assert done.code == 0, done.err
        reports[name] = _sorted(json.loads((tmp_path / name).read_text()))
    assert reports["ours"] == reports["theirs"]
    assert len(reports["ours"]["allocations"]) == 16
    for calicoctl, name in ((theirs, "ours"), (ours, "theirs")):
        done = calicoctl("ipam", "release", f"--from-report={tmp_path / name}")
        assert done.code == 0, done.err
        for key, raw in allocations(etcd).items():
            if "/assignment/" in key:
                assert not any(one is not None for one in json.loads(raw)["allocations"])
        restore(etcd, before)


@pytest.mark.promise("F-109")
@pytest.mark.interop
@pytest.mark.usefixtures("cluster")
def test_exports_are_the_same(ours: Ctl, theirs: Theirs) -> None:
    assert theirs("datastore", "migrate", "lock").code == 0
    they, we = theirs("datastore", "migrate", "export"), ours("datastore", "migrate", "export")
    assert they.code == we.code == 0
    assert we.out == they.out
