"""Every metric that a dashboard or an alert names is served by a process, with these labels."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

import cni.server.collection
import cni.server.restore
import cni.socket.trace
import controllers.metrics
from bgp.sessions.metrics import Metrics
from controllers.addresses.counts import Counts
from flows.server.figures import Figures
from libcalico.process.counters import REGISTRY, Registry
from manifests.dashboards import grafana
from manifests.image.wheels import ROOT
from tests.felix.world import METRICS_PORT, make_world
from tests.monitoring import promtool
from tests.monitoring.calicos_names import rows

if TYPE_CHECKING:
    from controllers.addresses.collection import Collection

FOLDER = ROOT / "manifests" / "monitoring"
DASHBOARDS = sorted(FOLDER.glob("dashboard-*.json"))
_NAME = re.compile(r"\b(?:felix|muslin|calico|ipam|process|goldmane)_[a-z_]+\b")
_LABELS = {
    *("instance", "severity", "ippool", "node", "peer", "reason", "code", "command", "stage"),
    *("job", "type", "controller"),
}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> dict[str, str]:
    """What is asked of Prometheus, by who asks."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                found[f"{path.name}: {panel['title']} {target['refId']}"] = target["expr"]
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of samples, as felix with a pod, and the code of the other processes, serve them."""
    own = Registry()
    bgp = Metrics(own)
    bgp.peer_ups["peer"] += 1
    assert cni.socket.trace.CALLS, (cni.server.collection.SWEEPS, cni.server.restore.LOST)
    counts = Counts(sizes={"pool": 64})
    for one in (counts.in_use, counts.borrowed, counts.blocks, counts.candidates):
        one["pool", "node"] = 1
    queue = type("Queue", (list,), {"failing": 0})()
    part = SimpleNamespace(name="node", queue=queue, writes=0, in_sync=True)
    collection = SimpleNamespace(counts=counts, released={("pool", "node"): 1}, nodes_held=0)
    text = own.page().decode() + REGISTRY.page().decode() + Figures().registry.page().decode()
    known = cast("Collection", collection)
    text += controllers.metrics.render(works=True, parts=[part], collection=known).decode()
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.etcd.start()
        world.write_cluster()
        world.start_felix()
        world.wait_ready()
        text += world.get("/metrics", METRICS_PORT)[1]
    # A metric with labels has no sample before its first use, but it has its type.
    typed = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    summaries = [name for name, kind in typed.items() if kind in ("summary", "histogram")]
    # Of the back end that this felix does not use; tests/felix/reports/test_metrics.py has both.
    other = {name for name, (place, _) in rows().items() if place == "nftables"}
    return {*typed, *other, *(f"{name}_{part}" for name in summaries for part in ("sum", "count"))}


@pytest.mark.promise("F-96")
def test_every_metric_that_is_asked_for_is_served(served: set[str]) -> None:
    asked = {
        (who, name)
        for who, expression in expressions().items()
        for name in _NAME.findall(expression)
        if name not in _LABELS
    }
    assert {one for one in asked if one[1] not in served} == set()
    assert len({name for _, name in asked}) > 30


@pytest.mark.promise("F-96")
def test_dashboards_are_complete() -> None:
    """Each has the data source as a variable, panels that do not overlap, and an unused id."""
    assert sorted(f"monitoring/{path.name}" for path in DASHBOARDS) == sorted(grafana.files())
    uids = set()
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        uids.add(board["uid"])
        variables = {one["name"] for one in board["templating"]["list"]}
        assert variables == {"datasource", "instance"}
        assert "id" not in board, "Grafana gives its own"
        places: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            grid = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(grid["x"], grid["x"] + grid["w"])
                for y in range(grid["y"], grid["y"] + grid["h"])
            }
            assert not cells & places, panel["title"]
            places |= cells
            assert all("$" not in t["expr"] or "$instance" in t["expr"] for t in panel["targets"])
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) >= 10
    assert len(uids) == len(DASHBOARDS) == 4


def test_dashboards_are_as_rendered() -> None:
    for name, text in grafana.files().items():
        assert (ROOT / "manifests" / name).read_text() == text, "./run manifests render"


def test_every_alert_has_its_runbook_and_its_test() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=\n## |\Z)", text, re.MULTILINE | re.DOTALL))
    tested = yaml.safe_load((FOLDER / "alerts-test.yaml").read_text())["tests"]
    names = [rule["alert"] for rule in rules()]
    assert len(names) == 16
    assert [one["alert_rule_test"][0]["alertname"] for one in tested] == names
    assert list(sections) == names
    for rule in rules():
        section = sections[rule["alert"]]
        assert f"`{rule['expr']}` for {rule['for']}, {rule['labels']['severity']}." in section
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert "\n1. " in section
    for name in re.findall(r"\]\(([a-z/-]+\.md)\)", text):
        assert Path(ROOT, "docs", name).exists(), name


@pytest.mark.promise("F-96")
@pytest.mark.parametrize(("what", "file"), [("check", "alerts.yaml"), ("test", "alerts-test.yaml")])
def test_prometheus_takes_the_alerts(what: str, file: str) -> None:
    """Each fires for what it is about, and not for what stands beside it."""
    program = promtool.find()
    if program is None:
        pytest.skip("no promtool here: apt-get install prometheus, or run this at full size")
    done = subprocess.run(
        [program, what, "rules", FOLDER / file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_can_read_the_expressions_of_the_dashboards(tmp_path: Path) -> None:
    program = promtool.find()
    if program is None:
        pytest.skip("no promtool here: apt-get install prometheus, or run this at full size")
    asked = {who: text for who, text in expressions().items() if who.startswith("dashboard")}
    recorded = [
        {"record": f"panel:{number}", "expr": text.replace("$instance", ".*")}
        for number, text in enumerate(asked.values())
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    done = subprocess.run(
        [program, "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
