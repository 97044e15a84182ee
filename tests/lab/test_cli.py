"""`./run lab` as it is typed: words, options, exit codes, JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from lab import proc
from lab.cluster import Lab
from tests.support.patience import HANG


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    """One command line."""
    command = [sys.executable, "-m", "lab", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)


def test_exec_runs_in_the_callers_directory_with_its_exit_code(bare: Lab) -> None:
    done = lab("exec", "--lab", bare.name, "node1", "--", "sh", "-c", "hostname; pwd; exit 7")
    assert done.returncode == 7
    assert done.stdout.splitlines() == ["node1", os.getcwd()]
    shown = lab("exec", "--lab", bare.name, "router", "--", "birdc", "show", "protocols")
    assert "node1" in shown.stdout


def test_a_pod_by_command_line(bare: Lab) -> None:
    name = ("--lab", bare.name)
    done = lab(
        "pod",
        "add",
        "shell",
        *name,
        "--node",
        "node3",
        "--namespace",
        "web",
        "--label",
        "a=b",
        "--annotation",
        "c=d",
        "--port",
        "tcp:80",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("web/shell 10.65.1.")
    assert " ADD " in done.stdout
    assert lab("pod", "list", *name).stdout.split()[:3] == ["web", "shell", "node3"]
    done = lab("pod", "exec", "shell", *name, "--namespace", "web", "--", "ip", "-br", "addr")
    assert "eth0" in done.stdout
    status = json.loads(lab("status", "--json", *name).stdout)
    assert status["name"] == bare.name
    assert [pod["name"] for pod in status["pods"]] == ["shell"]
    assert [machine["alive"] for machine in status["machines"]] == [True] * 5
    assert lab("pod", "rm", "shell", *name, "--namespace", "web").returncode == 0
    assert lab("pod", "list", *name).stdout == ""


def test_link_by_command_line(bare: Lab) -> None:
    try:
        assert lab("link", "down", "node2", "--lab", bare.name).returncode == 0
        command = ["ip", "-br", "link", "show", "eth0"]
        proc.wait_until(
            lambda: "NO-CARRIER" in bare.machine("node2").run(command).stdout,
            "no carrier",
            timeout=HANG,
        )
    finally:
        assert lab("link", "up", "node2", "--lab", bare.name).returncode == 0


def test_mistakes_end_with_a_sentence(bare: Lab) -> None:
    for words, said in (
        (["status", "--lab", "nothere"], "no lab 'nothere' is up"),
        (["exec", "--lab", bare.name, "node9", "--", "true"], "no machine 'node9'"),
        (["pod", "add", "x", "--lab", bare.name, "--node", "node1", "--label", "x"], "KEY=VALUE"),
        (["link", "down", "router", "--lab", bare.name], "no node 'router'"),
    ):
        done = lab(*words)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert "nothing to do" in lab("down", "--lab", "nothere").stderr
