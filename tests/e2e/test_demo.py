"""`./run demo` as a newcomer runs it, and the host afterwards.

One run holds the promises of the main job: pods reach each other over routes that BGP carried, the
wiring is the documents', agents may die under traffic, links may go, nothing is left behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from lab import cluster, proc, state
from lab.demo.__main__ import CHECKS
from tests.support.host import of_a_lab, output, snapshot

HANG = 900.0
"""Seconds after which a demo counts as hung."""


def relevant(line: str) -> bool:
    """Lines that a demo could have changed; other test runs may share this host."""
    return not line.startswith("/run/") or "calico" in line or "lab" in line or "demo" in line


@pytest.mark.promise("M-2")
@pytest.mark.promise("M-3")
@pytest.mark.promise("M-10")
@pytest.mark.promise("M-112")
@pytest.mark.promise("M-113")
@pytest.mark.promise("M-118")
@pytest.mark.promise("M-134")
@pytest.mark.promise("M-135")
@pytest.mark.promise("M-136")
@pytest.mark.promise("M-137")
@pytest.mark.promise("M-138")
@pytest.mark.promise("M-139")
@pytest.mark.promise("M-211")
@pytest.mark.promise("M-256")
@pytest.mark.promise("M-259")
@pytest.mark.promise("F-1")
@pytest.mark.promise("F-37")
@pytest.mark.promise("F-38")
@pytest.mark.promise("F-43")
@pytest.mark.promise("PAIN-25")
@pytest.mark.promise("ADV-10")
def test_the_demo_holds_every_check_and_leaves_the_host_as_it_was() -> None:
    before = snapshot(relevant)
    name = f"demo{os.getpid()}"
    done = subprocess.run(
        [sys.executable, "-m", "lab.demo", "--json", "--lab", name],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    report = json.loads(done.stdout)
    failed = [check for check in report["checks"] if not check["ok"]]
    assert not failed, "\n".join(f"{check['name']}:\n{check['detail']}" for check in failed)
    assert done.returncode == 0
    assert report["ok"] is True
    assert list(report) == ["ok", "checks"]
    assert [check["name"] for check in report["checks"]] == [name for name, _, _ in CHECKS]
    assert all(list(check) == ["name", "ok", "detail", "seconds"] for check in report["checks"])
    transcript = "\n".join(check["detail"] for check in report["checks"])
    for command in ("ip addr", "ip route", "ip neigh", "ip link", "route -n", "birdc", "etcdctl"):
        assert f"$ {command}" in transcript
    after = snapshot(relevant)
    for table, lines in before.items():
        gone = [line for line in lines if line not in after[table] and name in line]
        new = [line for line in after[table] if line not in lines and ours(table, line, name)]
        assert not gone, f"{table}: gone: {gone}"
        assert not new, f"{table}: new: {new}"


def ours(table: str, line: str, name: str) -> bool:
    """Whether a new line of the host's tables would be the demo's doing."""
    if table in ("ip netns", "mounts", "/run"):
        return name in line or "calico" in line
    return of_a_lab(line) if table == "ip link" else "cali" in line


def test_the_demo_runs_as_an_ordinary_user_in_one_unshare() -> None:
    """The checks up to the packets; root's part is only to become a user who owns nothing."""
    before = snapshot(relevant)
    name = f"less{os.getpid()}"
    command = [sys.executable, "-m", "lab.demo", "--rootless", "--json", "--lab", name]
    done = subprocess.run(
        [*command, "--until", "reachability"],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    report = json.loads(done.stdout)
    assert report["ok"] is True, done.stderr
    assert done.returncode == 0
    told = [check["name"] for check in report["checks"]]
    assert told == ["nodes", "pool", "wiring", "reachability"]
    assert not [line for line in output("ip", "netns") if line.startswith(f"{name}-")]
    for table, lines in snapshot(relevant).items():
        new = [line for line in lines if line not in before[table] and ours(table, line, name)]
        assert not new, f"{table}: new: {new}"


def test_an_interrupted_rootless_demo_leaves_no_process() -> None:
    name = f"lint{os.getpid()}"
    running = subprocess.Popen(
        [sys.executable, "-m", "lab.demo", "--rootless", "--lab", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if " is ready" in line:
            break
    running.send_signal(signal.SIGINT)
    assert "interrupted" in running.stdout.read()
    assert running.wait(HANG) == 1
    assert not [pid for pid in proc.all_pids() if name in proc.command_of(pid)]


def test_an_interrupted_demo_takes_its_lab_down() -> None:
    name = f"int{os.getpid()}"
    running = subprocess.Popen(
        [sys.executable, "-m", "lab.demo", "--lab", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("--- nodes:"):
            break
    running.send_signal(signal.SIGINT)
    rest = running.stdout.read()
    assert running.wait(HANG) == 1
    assert "interrupted" in rest
    assert state.load(name) is None
    assert not [line for line in output("ip", "netns") if line.startswith(f"{name}-")]


def test_a_lab_that_was_there_before_is_left_alone() -> None:
    name = f"old{os.getpid()}"
    cluster.up(name, nodes=1, agents_too=False, say=lambda _: None)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "lab.demo", "--json", "--lab", name],
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG,
        )
        assert done.returncode == 1
        report = json.loads(done.stdout)
        assert "already up" in report["checks"][0]["detail"]
        assert state.load(name) is not None
    finally:
        cluster.down(name)
