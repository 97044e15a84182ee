"""Dashboards as Grafana imports them, one file for each board.

Source: <https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/>.
Tested in tests/monitoring/test_monitoring.py.
"""

from __future__ import annotations

import json

from manifests.dashboards.cluster import CLUSTER
from manifests.dashboards.node import NODE
from manifests.dashboards.pods import PODS
from manifests.dashboards.policy import POLICY
from manifests.dashboards.values import Board, Panel

BOARDS = (CLUSTER, NODE, POLICY, PODS)

WIDTH, HEIGHT = 12, 8
COLUMNS = 24 // WIDTH
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA = 38


def files() -> dict[str, str]:
    """Every dashboard by its path below this folder."""
    return {f"monitoring/dashboard-{board.name}.json": text(board) for board in BOARDS}


def text(board: Board) -> str:
    """One dashboard as JSON."""
    return json.dumps(tree(board), indent=1, ensure_ascii=False) + "\n"


def tree(board: Board) -> dict[str, object]:
    """One dashboard; Grafana gives the id."""
    return {
        "uid": f"muslin-{board.name}",
        "title": board.title,
        "tags": ["calico", "muslin"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "templating": {"list": _variables()},
        "panels": [_panel(number, panel) for number, panel in enumerate(board.panels)],
    }


def _variables() -> list[dict[str, object]]:
    return [
        {
            "name": "datasource",
            "type": "datasource",
            "query": "prometheus",
            "label": "Data source",
        },
        {
            "name": "instance",
            "type": "query",
            "label": "Node",
            "datasource": SOURCE,
            "query": "label_values(felix_host, instance)",
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "refresh": 2,
        },
    ]


def _panel(number: int, panel: Panel) -> dict[str, object]:
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": row * HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "expr": query,
                "legendFormat": legend,
                "datasource": SOURCE,
            }
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }
