"""Each query of each panel returns data, asked of Prometheus beside a lab in which things happen.

Two nodes and two reflectors: pods start and go, an ADD fails, a denied packet is watched, a
session is lost. The page of the controllers, which need an API server, is made by their code.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controllers import metrics
from controllers.addresses.collection import Collection
from controllers.addresses.counts import Counts
from flows.server.figures import Figures
from lab import pods, proc
from lab.errors import LabError
from libcalico.process import paths
from manifests.dashboards.grafana import BOARDS
from manifests.dashboards.values import Panel
from tests.lab_scenarios.scene import Scene, scene
from tests.monitoring import promtool
from tests.monitoring.pages import inside, served
from tests.monitoring.promtool import Prometheus, prometheus
from tests.size import FULL
from tests.support.patience import wait_for

pytestmark = pytest.mark.skipif(not FULL, reason="a lab for Prometheus: at full size")
ENVIRONMENT = {"FELIX_PROMETHEUSMETRICSENABLED": "true", "CALICO_CNI_HEALTHPORT": "9096"}
PORTS = {"felix": 9091, "bgp": 9097, "cni": 9096}
POOLS, REFLECTOR = "cni.projectcalico.org/ipv4pools", "10.99.0.11"
DROPS = f"{paths.LOG}/drops"
DENY = """\
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: closed}
spec: {selector: all(), types: [Ingress]}
"""
# What the panels of Calico's own dashboards ask of felix, without eBPF, Go and its flow collector.
# Source: https://github.com/projectcalico/calico/blob/master/manifests/grafana-dashboards.yaml
CALICOS = (
    *(
        f"max(felix_cluster_num_{name})"
        for name in ("host_endpoints", "hosts", "policies", "profiles", "tiers")
    ),
    "max(felix_cluster_num_workload_endpoints)",
    *(f"topk(5, felix_active_local_{name})" for name in ("endpoints", "policies", "selectors")),
    *(
        f'topk(5, {name}{{quantile="0.99"}})'
        for name in (
            "felix_calc_graph_update_time_seconds",
            "felix_int_dataplane_apply_time_seconds",
        )
    ),
    *(
        f"topk(5, rate(felix_{name}[1m]))"
        for name in (
            "calc_graph_update_time_seconds_count",
            "calc_graph_update_time_seconds_sum",
            "int_dataplane_apply_time_seconds_count",
            "int_dataplane_apply_time_seconds_sum",
            "nflog_buffer_overruns",
            "nflog_logs_received",
        )
    ),
    "topk(5, rate(felix_ipset_errors[1m]) + rate(felix_iptables_restore_errors[1m])"
    " + rate(felix_iptables_save_errors[1m]))",
    "topk(5, changes(felix_resyncs_started[1h]))",
    "topk(5, changes(process_start_time_seconds[1h]))",
    "topk(5, felix_ipsets_calico)",
    "topk(5, sum by (instance) (felix_iptables_rules))",
    "topk(5, process_open_fds)",
    "topk(5, process_resident_memory_bytes)",
    "topk(5, rate(process_cpu_seconds_total[1m]))",
)
PANELS = [(board.name, panel) for board in BOARDS for panel in board.panels]


def controllers_page() -> bytes:
    """As kube-controllers serve it, with one pool and one node."""
    counts = Counts(sizes={"pool": 64}, reserved={"pool": 2})
    for one in (counts.in_use, counts.borrowed, counts.blocks, counts.candidates):
        one["pool", "node1"] = 1
    queue = type("Queue", (list,), {"failing": 0})()
    part = SimpleNamespace(name="node", queue=queue, writes=0, in_sync=True)
    held = SimpleNamespace(counts=counts, released={("pool", "node1"): 3}, nodes_held=0)
    return metrics.render(works=True, parts=[part], collection=cast("Collection", held))


def goldmane_page() -> bytes:
    """As calico-goldmane serves it, after a flow that was allowed and one that was denied."""
    figures = Figures()
    for action in ("allow", "deny"):
        labels = (action, "destination", "NetworkPolicy", "default", "web", "front")
        figures.packets.inc(*labels, by=3)
        figures.connections.inc(*labels)
    return figures.registry.page()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = promtool.find("prometheus")
    if program is None:
        pytest.skip("no prometheus here, and its package cannot be fetched")
    with ExitStack() as stack:
        made = stack.enter_context(scene("external-reflectors", environment=ENVIRONMENT))
        pages = {
            (job, node.name): inside(node, port)
            for node in made.lab.nodes
            for job, port in PORTS.items()
        }
        pages["controllers", "controllers"] = controllers_page
        pages["goldmane", "goldmane"] = goldmane_page
        jobs = stack.enter_context(served(pages))
        folder: Path = tmp_path_factory.mktemp("prometheus")
        server = stack.enter_context(prometheus(program, folder, jobs, "2s"))
        # Rates are of what was counted between two readings.
        wait_for(lambda: len(server.ask("calico_cni_calls_total > 0")) >= len(made.lab.nodes))
        events(made, stack)
        yield server


def events(made: Scene, stack: ExitStack) -> None:
    """What the panels tell of."""
    node1, target = made.lab.nodes[0], made.on("node1")
    pods.remove(made.lab, made.add("short", "node1"))
    del made.pods["short"]
    with pytest.raises(LabError):
        pods.add(made.lab, "wrong", "node1", annotations={POOLS: '["no-such-pool"]'})
    made.apply(DENY)
    watcher = node1.start(["calicoctl", "node", "drops", "-f"], output=DROPS)
    stack.callback(watcher.wait)
    stack.callback(watcher.terminate)

    def told() -> bool:
        pods.ping(made.lab, made.on("node2"), target.address)
        return target.address in node1.path(DROPS).read_text()

    made.eventually(told, "a denied packet is told")
    machine = made.machine("reflector1")
    for pid in machine.pids():
        if proc.command_of(pid).startswith("bird "):
            os.kill(pid, signal.SIGKILL)
    made.eventually(
        lambda: made.sessions("node1").get(REFLECTOR, "Established") != "Established",
        "node1 has lost the reflector",
    )


def numbers(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what was not seen in ten minutes."""
    return [one for one in found if one["value"][1] != "NaN"]


@pytest.mark.promise("F-96")
@pytest.mark.parametrize(
    "panel", [panel for _, panel in PANELS], ids=[f"{name}: {p.title}" for name, p in PANELS]
)
def test_each_query_of_a_panel_returns_data(asked: Prometheus, panel: Panel) -> None:
    for query, legend in panel.queries:
        text = query.replace("$instance", ".*")
        found = wait_for(lambda text=text: numbers(asked.ask(text)), text)  # type: ignore[misc]
        for one in found:
            lacking = {
                name
                for name in ("instance", "job", "reason", "stage", "ippool", "type")
                if f"{{{{{name}}}}}" in legend and name not in one["metric"]
            }
            assert not lacking, f"{query}: the legend {legend} names what no line has"


@pytest.mark.parametrize("query", CALICOS)
def test_a_panel_of_calicos_shows_data(asked: Prometheus, query: str) -> None:
    wait_for(lambda: numbers(asked.ask(query)), query)


def test_a_query_for_what_no_page_has_returns_nothing(asked: Prometheus) -> None:
    """So that the test above cannot pass by accident."""
    assert wait_for(lambda: asked.ask("felix_resync_state"))
    assert asked.ask("felix_no_such_metric") == []
