"""`node status` from status files: peers, families, and files whose writer is gone."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calicoctl.commands import node
from libcalico import paths, status_file
from libcalico.errors import MuslinError

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
PEERS = [
    {
        "address": "10.99.1.2",
        "type": "node-to-node mesh",
        "state": "up",
        "since": "2026-11-21T17:11:42+00:00",
        "info": "Established",
    },
    {
        "address": "10.99.1.254",
        "type": "node specific",
        "state": "start",
        "since": "2026-11-19T09:00:00Z",
        "info": "Active",
    },
]


def test_tables_of_both_families() -> None:
    assert node.peers_text(PEERS, NOW) == (
        "\nIPv4 BGP status\n"
        "+--------------+-------------------+-------+------------+-------------+\n"
        "| PEER ADDRESS |     PEER TYPE     | STATE |   SINCE    |    INFO     |\n"
        "+--------------+-------------------+-------+------------+-------------+\n"
        "| 10.99.1.2    | node-to-node mesh | up    | 17:11:42   | Established |\n"
        "| 10.99.1.254  | node specific     | start | 2026-11-19 | Active      |\n"
        "+--------------+-------------------+-------+------------+-------------+\n"
        "\nIPv6 BGP status\n"
        "No IPv6 peers found.\n"
        "\n"
    )


def test_a_pid_counts_only_with_our_name(tmp_path: Path) -> None:
    for pid, command in ((1, b"/sbin/init\0"), (2, b"calico-felix\0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(command)
    assert not node.alive({"pid": 1}, tmp_path)
    assert node.alive({"pid": 2}, tmp_path)
    assert not node.alive({"pid": 3}, tmp_path)
    assert not node.alive({}, tmp_path)


@pytest.fixture
def status_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "STATUS", tmp_path)
    return tmp_path


def show() -> str:
    outcome = CliRunner().invoke(node.node, ["status"], catch_exceptions=True)
    if outcome.exception and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.output


def test_nothing_written_yet(status_directory: Path) -> None:
    with pytest.raises(MuslinError, match=r"^Calico process is not running\."):
        show()


def test_a_file_of_a_dead_process_is_said_to_be_old(status_directory: Path) -> None:
    status_file.write("felix", {"pid": 2**22 + 1})
    with pytest.raises(MuslinError, match=r"not running\. calico-felix was last seen at 20"):
        show()


def test_a_dead_speaker_beside_a_living_felix(
    status_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status_file.write("felix", {})
    status_file.write("bgp", {"pid": 2**22 + 1, "peers": PEERS})
    monkeypatch.setattr(node, "alive", lambda found: found["pid"] == os.getpid())
    text = show()
    assert "Calico process is running." in text
    assert "The BGP backend process is not running. calico-bgp was last seen at" in text
    assert "10.99.1.2" not in text


def test_peers_are_shown(status_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status_file.write("felix", {})
    status_file.write("bgp", {"peers": PEERS})
    everyone_lives: Any = lambda found: True  # noqa: E731
    monkeypatch.setattr(node, "alive", everyone_lives)
    assert "| 10.99.1.2    | node-to-node mesh | up    |" in show()
