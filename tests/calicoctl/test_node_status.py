"""`node status` from status files: peers, families, and files whose writer is gone."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calicoctl.commands.node import table as node
from calicoctl.node import bird, processes, report
from libcalico.errors import MuslinError
from libcalico.process import paths, status_file

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


@pytest.mark.promise("M-174")
def test_tables_of_both_families() -> None:
    assert report.peers_text(PEERS, NOW) == (
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
    assert not processes.alive({"pid": 1}, tmp_path)
    assert processes.alive({"pid": 2}, tmp_path)
    assert not processes.alive({"pid": 3}, tmp_path)
    assert not processes.alive({}, tmp_path)


@pytest.fixture
def status_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "STATUS", tmp_path)
    monkeypatch.setattr(bird, "FOLDERS", (tmp_path,))
    # Another test's lab may run agents in this network namespace.
    monkeypatch.setattr(processes, "running_here", lambda names: None)
    return tmp_path


def show(*arguments: str) -> str:
    outcome = CliRunner().invoke(node.node, ["status", *arguments], catch_exceptions=True)
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
    monkeypatch.setattr(processes, "alive", lambda found, proc: found["pid"] == os.getpid())
    text = show()
    assert "Calico process is running." in text
    assert "The BGP backend process (BIRD) is not running. calico-bgp was last seen at" in text
    assert "10.99.1.2" not in text


def test_peers_are_shown(status_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status_file.write("felix", {})
    status_file.write("bgp", {"peers": PEERS})
    everyone_lives: Any = lambda found, proc: True  # noqa: E731
    monkeypatch.setattr(processes, "alive", everyone_lives)
    assert "| 10.99.1.2    | node-to-node mesh | up    |" in show()


@pytest.mark.promise("M-174", "F-105")
def test_without_root_and_as_json(status_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status_file.write("felix", {"version": "1.2"})
    status_file.write("bgp", {"peers": PEERS})
    everyone_lives: Any = lambda found, proc: True  # noqa: E731
    monkeypatch.setattr(processes, "alive", everyone_lives)
    for file in status_directory.iterdir():
        assert file.stat().st_mode & 0o777 == 0o644
    tree = json.loads(show("--output", "json"))
    assert tree["running"] is True
    assert tree["speaker"] == "muslin"
    assert tree["peers"] == PEERS
    assert tree["processes"]["calico-felix"]["version"] == "1.2"
    assert tree["processes"]["calico-cni"]["running"] is False


def test_json_of_a_node_that_does_not_run(status_directory: Path) -> None:
    outcome = CliRunner().invoke(node.node, ["status", "-o", "json"])
    assert outcome.exit_code == 1
    assert json.loads(outcome.output)["running"] is False


def test_a_pid_of_another_container_is_judged_by_the_files_age(tmp_path: Path) -> None:
    written = {"pid": 1, "pid_namespace": 4711, "time": "2026-11-21T17:59:50Z"}
    assert processes.judged("calico-felix", written, NOW, tmp_path).running
    written["time"] = "2026-11-21T17:58:00Z"
    assert not processes.judged("calico-felix", written, NOW, tmp_path).running
    del written["time"]
    assert not processes.judged("calico-felix", written, NOW, tmp_path).running


def test_calicos_own_felix_counts_by_its_name(tmp_path: Path) -> None:
    for pid, command in (
        (7, b"/usr/bin/python3\0-m\0felix"),
        (9, b"/bin/calico-node\0-bird-live"),
        (8, b"/bin/x\0-felix\0"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(command)
    names = frozenset({"calico-felix", "calico-node"})
    assert processes.running_here(names, tmp_path) == 8
    (tmp_path / "8" / "cmdline").unlink()
    assert processes.running_here(names, tmp_path) == 9
    assert processes.running_here(frozenset({"none"}), tmp_path) is None


def test_without_any_speaker_the_text_is_calicos(
    status_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "running_here", lambda names: 77)
    assert show() == (
        "Calico process is running.\nThe BGP backend process (BIRD) is not running.\n"
    )
