"""`lab up` and `lab down`: the host is as before, also after a crash, also with two labs at once.

Only bare labs here (machines, etcd, BIRD), a second each; tests/e2e does the same with
the agents. Other test runs may share the host: only lines that name this run's labs count, and
links, rules and sets, where a lab has no business at all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cluster, proc, state
from lab.errors import LabError
from tests.lab.conftest import quiet
from tests.support.host import links, of_a_lab, output
from tests.support.patience import HANG


@pytest.fixture
def own_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory that no other run uses."""
    monkeypatch.setenv("MUSLIN_LAB_DIR", str(tmp_path / "labs"))
    return tmp_path / "labs"


@pytest.fixture
def names(lab_name: str, own_base: Path) -> Iterator[tuple[str, str]]:
    """Two lab names, taken down afterwards whatever happened."""
    pair = f"{lab_name}-a", f"{lab_name}-b"
    yield pair
    for name in pair:
        cluster.down(name)


def traces(name: str) -> list[str]:
    """What the host shows of a lab: namespaces, processes, mounts."""
    found = [line for line in output("ip", "netns") if line.startswith(f"{name}-")]
    for pid in proc.all_pids():
        if proc.environment_of(pid).get(state.MARK_ENV) == name and proc.start_time(pid):
            found.append(f"{pid} {proc.command_of(pid)}")
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return found + [line for line in mounts if f"/{name}-" in line]


def test_down_leaves_no_trace(names: tuple[str, str], own_base: Path) -> None:
    before = set(links())
    lab = cluster.up(names[0], agents_too=False, say=quiet)
    assert len([line for line in traces(lab.name) if "-node" in line]) >= 3
    lab.nodes[0].start(["sleep", "1000"])
    inside = lab.router.run(["ip", "-o", "link"]).stdout.splitlines()
    assert [line for line in inside if of_a_lab(line.split(":")[1])], "it has such links"
    assert not [link for link in links() if link not in before and of_a_lab(link)]
    assert cluster.down(lab.name)
    assert traces(lab.name) == []
    assert not own_base.exists()
    assert not cluster.down(lab.name)


def test_a_lab_that_is_up_is_not_made_again(names: tuple[str, str]) -> None:
    cluster.up(names[0], nodes=1, agents_too=False, say=quiet)
    with pytest.raises(LabError, match="already up"):
        cluster.up(names[0], nodes=1, agents_too=False, say=quiet)


def test_two_labs_live_side_by_side_with_the_same_addresses(names: tuple[str, str]) -> None:
    labs = [cluster.up(name, nodes=2, agents_too=False, say=quiet) for name in names]
    for number, lab in enumerate(labs):
        endpoint = f"--endpoints={lab.plan.etcd_endpoint}"
        lab.nodes[0].run(["etcdctl", endpoint, "put", "/lab", str(number)])
    for number, lab in enumerate(labs):
        endpoint = f"--endpoints={lab.plan.etcd_endpoint}"
        said = lab.nodes[1].run(["etcdctl", endpoint, "get", "--print-value-only", "/lab"])
        assert said.stdout.strip() == str(number)
    cluster.down(labs[0].name)
    assert labs[1].nodes[0].run(["ping", "-c1", "-W60", "10.99.1.2"]).returncode == 0
    assert traces(labs[0].name) == []


def test_flat_nodes_meet_without_the_router(names: tuple[str, str]) -> None:
    lab = cluster.up(names[0], nodes=3, topology="flat", agents_too=False, say=quiet)
    text = lab.nodes[0].run(["traceroute", "-n", "-q1", "-w60", "10.99.1.3"]).stdout
    assert [line.split()[1] for line in text.splitlines()[1:]] == ["10.99.1.3"]
    assert lab.router.run(["birdc", "show", "protocols"]).stdout.count(" BGP ") == 3


@pytest.mark.parametrize("made", [0, 1, 4])
def test_down_cleans_up_after_a_crash_of_the_tool(names: tuple[str, str], made: int) -> None:
    """The tool is killed when so many machines are there, then `down` runs in another process.

    With what it started last: an `ip netns add` that went on would add one after `down`.
    """
    name = names[0]
    running = subprocess.Popen(
        [sys.executable, "-m", "lab", "up", "--bare", "--lab", name],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    proc.wait_until(
        lambda: len([line for line in traces(name) if line.startswith(f"{name}-")]) >= made,
        f"{made} machines",
        timeout=HANG,
        every=0.005,
    )
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    command = [sys.executable, "-m", "lab", "down", "--lab", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert traces(name) == []
    assert state.load(name) is None


def test_down_works_when_the_holders_are_dead(names: tuple[str, str]) -> None:
    lab = cluster.up(names[0], nodes=2, agents_too=False, say=quiet)
    lab.nodes[0].start(["sleep", "1000"])
    for record in lab.state.machines.values():
        os.kill(record.pid, signal.SIGKILL)
    cluster.down(lab.name)
    assert traces(lab.name) == []


def test_a_failed_up_takes_everything_down_again(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.router.configuration", lambda *_: "this is no configuration")
    with pytest.raises(LabError, match="bird"):
        cluster.up(names[0], agents_too=False, say=quiet)
    assert traces(names[0]) == []
    assert state.load(names[0]) is None


@pytest.mark.parametrize("name", ["", "-x", "A", "a/b", "x" * 40, ".."])
def test_names_that_cannot_be_a_prefix_are_refused(name: str, own_base: Path) -> None:
    with pytest.raises(LabError, match="allowed are a-z"):
        cluster.up(name, agents_too=False, say=quiet)
    assert not own_base.exists()


def test_a_namespace_in_the_way_is_named_and_left_alone(lab_name: str, own_base: Path) -> None:
    netns = f"{lab_name}-router"
    proc.run(["ip", "netns", "add", netns])
    try:
        with pytest.raises(LabError, match=f"network namespace {netns} exists already"):
            cluster.up(lab_name, agents_too=False, say=quiet)
        assert netns in " ".join(output("ip", "netns"))
        assert not own_base.exists()
    finally:
        proc.run(["ip", "netns", "delete", netns])
