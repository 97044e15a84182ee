"""`get caliconodestatus`: Calico's plain table, and what a report says in the wide one."""

from __future__ import annotations

import json

from tests.calicoctl.conftest import Ctl

PEERS = [
    {"peerIP": "10.0.0.2", "type": "NodeMesh", "state": "Established", "since": "17:11:42"},
    {"peerIP": "10.0.0.254", "type": "GlobalPeer", "state": "Idle", "since": "17:00:00"},
]
REPORT = {
    "apiVersion": "projectcalico.org/v3",
    "kind": "CalicoNodeStatus",
    "metadata": {"name": "r1"},
    "spec": {"node": "n1", "classes": ["Agent", "BGP", "Routes"], "updatePeriodSeconds": 0},
    "status": {
        "lastUpdated": "2026-11-27T20:00:00Z",
        "agent": {"birdV4": {"state": "Ready"}, "birdV6": {"state": "NotReady"}},
        "bgp": {"numberEstablishedV4": 1, "numberNotEstablishedV4": 1, "peersV4": PEERS},
        "routes": {"routesV4": [{"type": "FIB", "destination": "10.65.0.0/26"}]},
    },
}


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line]


def test_the_wide_table_says_what_the_report_says(ctl: Ctl) -> None:
    assert ctl("create", "-f", "-", stdin=json.dumps(REPORT)).code == 0
    heading, row = rows(ctl("get", "caliconodestatus", "r1", "-o", "wide").out)
    assert dict(zip(heading, row, strict=True)) == {
        "NAME": "r1",
        "NODE": "n1",
        "CLASSES": "Agent,BGP,Routes",
        "PERIOD": "once",
        "LAST-UPDATED": "2026-11-27T20:00:00Z",
        "AGENT": "NotReady",
        "V4-UP": "1/2",
        "V6-UP": "0/0",
        "ROUTES": "1",
        "DOWN": "10.0.0.254(Idle)",
    }


def test_the_plain_table_is_calicos_to_the_byte(ctl: Ctl) -> None:
    assert ctl("create", "-f", "-", stdin=json.dumps(REPORT)).code == 0
    assert ctl("get", "nodestatus").out == "NAME   NODE   \nr1     n1     \n\n"


def test_a_report_that_was_not_made_has_dashes(ctl: Ctl) -> None:
    asked = {**REPORT, "spec": {**REPORT["spec"], "classes": ["BGP"]}}  # type: ignore[dict-item]
    del asked["status"]
    assert ctl("create", "-f", "-", stdin=json.dumps(asked)).code == 0
    row = rows(ctl("get", "nodestatus", "-o", "wide").out)[1]
    assert row == ["r1", "n1", "BGP", "once", "never", "-", "-", "-", "-", "-"]
