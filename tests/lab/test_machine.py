"""A machine: its own /run, /etc, /var, /opt and hostname; the host's tree stays untouched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from lab import machine, proc
from lab.cluster import Lab
from lab.demo import look
from lab.errors import LabError
from libcalico.process import paths
from tests.support.patience import HANG


def test_a_node_has_calicos_default_paths_and_they_are_its_own(bare: Lab) -> None:
    one, two = bare.nodes[:2]
    for directory in (
        paths.RUN,
        paths.LIB,
        paths.CONFIG,
        paths.CNI_BIN,
        paths.CNI_NET,
        paths.LOG,
        Path("/var/lib/cni"),
    ):
        one.run(["touch", str(directory / "only-here")])
        assert one.path(directory / "only-here").exists()
        assert not two.path(directory / "only-here").exists()
        assert not (directory / "only-here").exists()


def test_a_node_starts_without_the_hosts_cni_configuration(bare: Lab) -> None:
    assert bare.nodes[2].run(["ls", "/etc/cni/net.d"]).stdout.split() == ["10-reference.conflist"]
    assert "passwd" in bare.nodes[2].run(["ls", "/etc"]).stdout


def test_a_node_has_its_own_hostname(bare: Lab) -> None:
    assert [node.run(["hostname"]).stdout.strip() for node in bare.nodes] == [
        "node1",
        "node2",
        "node3",
    ]


def test_commands_in_a_machine_find_the_projects_programs(bare: Lab) -> None:
    path = bare.nodes[0].run(["sh", "-c", "command -v calicoctl"], check=False).stdout.strip()
    assert path.endswith("/bin/calicoctl")


def test_a_failing_command_is_told_with_what_it_said(bare: Lab) -> None:
    with pytest.raises(LabError, match=r"`nsenter .* ip link show nothing`.*does not exist"):
        bare.nodes[0].run(["ip", "link", "show", "nothing"])


def test_processes_are_found_by_machine(bare: Lab) -> None:
    node = bare.nodes[0]
    before = node.pids()
    running = node.start(["sleep", "1000"])
    try:
        # nsenter needs a moment before it is inside.
        proc.wait_until(
            lambda: running.pid in set(node.pids()) - set(before),
            "the process inside",
            timeout=HANG,
        )
        assert running.pid not in bare.nodes[1].pids()
    finally:
        running.kill()
        running.wait()


def test_a_child_that_has_run_no_program_yet_is_not_taken_for_its_parent(bare: Lab) -> None:
    """Until then it has its parent's title, and is gone from under it a moment later."""
    node = bare.nodes[0]
    code = "import os, time; print(os.fork(), flush=True); time.sleep(1000)"
    running = node.start([sys.executable, "-c", code])
    try:
        assert running.stdout is not None
        both = {running.pid, *(int(running.stdout.readline()) for _ in range(2))} - {0}
        assert both <= set(node.pids())
        assert look.processes(node, sys.executable) == [running.pid]
    finally:
        proc.kill_all(lambda: [pid for pid in both if proc.start_time(pid) is not None])
        running.wait()


def test_wait_http_says_what_came_instead(bare: Lab) -> None:
    with pytest.raises(LabError, match=re.escape("/readiness on port 9")):
        bare.nodes[0].wait_http(9, "/readiness", timeout=0.2)


def test_a_server_that_has_ended_is_not_waited_for(bare: Lab) -> None:
    ended = bare.nodes[0].start(["true"])
    with pytest.raises(LabError, match=f"process {ended.pid} has ended"):
        bare.nodes[0].wait_http(9, "/readiness", timeout=HANG, server=ended)
    ended.wait()


def test_a_line_of_a_pipe_is_waited_for_until_a_limit() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"ready\nand more\n")
        assert proc.line_of(reading, "a word") == b"ready\n"
        assert os.read(reading, 100) == b"and more\n", "nothing else is taken"
        os.write(writing, b"hal")
        with pytest.raises(LabError, match=r"a word: no word of it within 0\.1 s"):
            proc.line_of(reading, "a word", timeout=0.1)
        os.write(writing, b"f")
    finally:
        os.close(writing)
    assert proc.line_of(reading, "a word") == b"f", "what came before the end"
    os.close(reading)


def test_a_machine_whose_holder_hangs_is_given_up_and_says_where(
    lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = tmp_path / "holder.py"
    holder.write_text("import time; time.sleep(1000)")
    monkeypatch.setattr(machine, "HOLDER", holder)
    monkeypatch.setattr(proc, "line_of", partial(proc.line_of, timeout=0.5))
    try:
        with pytest.raises(
            LabError, match=r"machine n1: its file tree: no word .* state \w"
        ) as told:
            machine.create(lab_name, "n1")
        (pid,) = re.findall(r"process (\d+)", str(told.value))
        assert proc.start_time(int(pid)) is None, "nothing of it stays"
    finally:
        subprocess.run(["ip", "netns", "delete", f"{lab_name}-n1"], check=True)
