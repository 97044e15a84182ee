"""`node status` of a node with trouble: reasons below the tables, wide, YAML, no BGP at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from calicoctl.commands.node import table as node
from calicoctl.node import processes
from libcalico.process import paths, status_file

PEERS = [
    {
        "address": "10.99.1.2", "type": "node-to-node mesh", "node": "n2", "state": "up",
        "since": "2026-01-01T17:11:42Z", "info": "Established", "asn": 64512,
        "received": 4, "refused": 1, "sent": 2, "graceful_restart": "yes", "cause": "",
    },
    {
        "address": "fd99::fe", "type": "global", "node": "", "state": "start",
        "since": "2026-01-01T09:00:00Z", "info": "Connect", "asn": 64500,
        "received": 0, "refused": 0, "sent": 0, "graceful_restart": "keeping routes",
        "cause": "refused", "seen": "fd99::fe refuses connections to port 179", "fix": "start it",
    },
]  # fmt: skip
BGP = {
    "peers": PEERS,
    "refused": [{"peer": "BGPPeer(x)", "reason": "spec.password: no secret"}],
    "draining": True,
    "start_complete": False,
    "conditions": [{"object": "BGP peer fd99::fe", "reason": "refused: so"}],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A status directory whose writers live."""
    monkeypatch.setattr(paths, "STATUS", tmp_path)
    everyone_lives: Any = lambda found, proc: True  # noqa: E731
    monkeypatch.setattr(processes, "alive", everyone_lives)
    status_file.write("felix", {"networking": "bird"})
    return tmp_path


def show(*arguments: str) -> str:
    outcome = CliRunner().invoke(node.node, ["status", *arguments], catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome.output


@pytest.mark.promise("PAIN-11", "PAIN-13")
def test_why_a_session_is_down_stands_below_calicos_tables(folder: Path) -> None:
    status_file.write("bgp", BGP)
    text = show()
    assert "| 10.99.1.2    | node-to-node mesh | up    | 2026-01-01 | Established |\n" in text
    assert text.endswith(
        "fd99::fe: refused: fd99::fe refuses connections to port 179; start it\n"
        "BGPPeer(x) is not held: spec.password: no secret\n"
        "This node drains: others take its routes last (calicoctl node bgp undrain).\n"
        "Graceful restart: waiting for the routes of the peers.\n"
    )


def test_wide_has_prefixes_and_graceful_restart(folder: Path) -> None:
    status_file.write("bgp", BGP)
    rows = {
        cells[0].strip(): [cell.strip() for cell in cells[5:]]
        for line in show("-o", "wide").splitlines()
        if len(cells := line.strip("|").split("|")) > 5
    }
    names = ["NODE", "AS", "RECEIVED", "REFUSED", "SENT", "GRACEFUL RESTART"]
    assert rows["PEER ADDRESS"] == names
    assert rows["10.99.1.2"] == ["n2", "64512", "4", "1", "2", "yes"]
    assert rows["fd99::fe"] == ["", "64500", "0", "0", "0", "keeping routes"]
    assert "| calico-bgp | BGP peer fd99::fe | refused: so |" in show("-o", "wide")


def test_json_and_yaml_say_the_same(folder: Path) -> None:
    status_file.write("bgp", BGP)
    tree = json.loads(show("-o", "json"))
    assert tree["peers"] == PEERS
    assert (tree["refused"], tree["draining"]) == (BGP["refused"], True)
    assert tree["conditions"][0]["process"] == "calico-bgp"
    again = yaml.safe_load(show("-o", "yaml"))
    del tree["processes"], again["processes"]
    assert again == tree


@pytest.mark.parametrize("backend", ["vxlan", "none"])
def test_a_node_without_bgp_says_so(folder: Path, backend: str) -> None:
    status_file.write("felix", {"networking": backend})
    assert show() == (
        "Calico process is running.\n"
        f"This node has no BGP (CALICO_NETWORKING_BACKEND={backend}): its routes to other nodes"
        " come from the datastore.\n"
    )
    assert json.loads(show("-o", "json"))["backend"] == backend
