"""The lab as an ordinary user: made, entered by later commands, gone without a trace, or refused.

The tests run as root, so the ordinary user is 65534 by setpriv(1), who owns nothing here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lab import proc, rootless
from tests.support.host import output, snapshot
from tests.support.patience import HANG

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]


@pytest.fixture
def own_base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for nobody's record (pytest's own directories are root's)."""
    place = Path(tempfile.mkdtemp(prefix="muslin-lab-test-", dir="/tmp"))
    os.chown(place, 65534, 65534)
    monkeypatch.setenv("MUSLIN_LAB_DIR", str(place))
    monkeypatch.setenv("HOME", "/")
    yield place
    record = place / "house.json"
    if record.exists():
        os.kill(json.loads(record.read_text())["pid"], 9)
    shutil.rmtree(place)


def lab(*words: str, prefix: Sequence[str] = NOBODY) -> subprocess.CompletedProcess[str]:
    """One `./run lab` of nobody."""
    command = [*prefix, sys.executable, "-m", "lab", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)


@contextlib.contextmanager
def user_namespace() -> Iterator[list[str]]:
    """A user namespace in which ids are what they are outside; yields how to enter it."""
    holder = subprocess.Popen(["unshare", "--user", "sleep", "3600"])
    try:
        place, outside = Path(f"/proc/{holder.pid}"), os.readlink("/proc/self/ns/user")
        proc.wait_until(
            lambda: os.readlink(place / "ns/user") != outside, "a user namespace", timeout=HANG
        )
        for table in "uid_map", "gid_map":
            (place / table).write_text("0 0 65536\n")
        yield ["nsenter", "-t", str(holder.pid), "--user", "-S", "0", "-G", "0", "--"]
    finally:
        holder.kill()
        holder.wait()


def relevant(line: str) -> bool:
    """What a lab could have left; other test runs share this host."""
    return "rootless" in line


def test_a_rootless_lab_lives_between_commands_and_leaves_nothing(own_base: Path) -> None:
    before = snapshot(relevant)
    name = ("--lab", "rootless")
    done = lab("up", "--bare", "--nodes", "2", *name)
    assert done.returncode == 0, done.stderr
    assert not [line for line in output("ip", "netns") if line.startswith("rootless-")]
    said = lab("exec", *name, "node1", "--", "sh", "-c", "id -u; pwd; exit 7")
    assert said.returncode == 7
    assert said.stdout.splitlines() == ["0", os.getcwd()]
    ping = ("ping", "-c1", f"-W{HANG:g}", "10.99.1.2")
    assert lab("exec", *name, "node1", "--", *ping).returncode == 0
    health = lab("exec", *name, "etcd", "--", "etcdctl", "endpoint", "health")
    assert health.returncode == 0
    assert "Established" not in lab("exec", *name, "router", "--", "birdc", "show", "pro").stdout
    status = json.loads(lab("status", "--json", *name).stdout)
    assert [machine["alive"] for machine in status["machines"]] == [True] * 4
    assert "already up" in lab("up", "--bare", *name).stderr
    assert lab("up", "--bare", "--nodes", "1", "--lab", "second").returncode == 0
    assert lab("down", *name).returncode == 0
    assert lab("status", "--lab", "second").returncode == 0
    house = json.loads((own_base / "house.json").read_text())
    assert lab("down", "--lab", "second").returncode == 0
    world = Path(f"/proc/{house['pid']}")
    proc.wait_until(lambda: not world.exists(), "the world's end", timeout=HANG)
    assert not (own_base / "house.json").exists()
    assert "no lab 'rootless' is up" in lab("status", *name).stderr
    assert "nothing to do" in lab("down", *name).stderr
    assert snapshot(relevant) == before


def test_a_kept_demo_is_in_the_world_that_lab_enters(own_base: Path) -> None:
    words = ["-m", "lab.demo", "--keep", "--until", "nodes", "--lab", "rootless"]
    done = subprocess.run(
        [*NOBODY, sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=10 * HANG,
    )
    assert done.returncode == 0, done.stdout
    told = [line.split() for line in done.stdout.splitlines() if line.startswith("./run lab ")]
    # The page is offered where its extra is installed.
    told = [words for words in told if words[2] != "web"]
    assert len(told) == 4
    for _, _, *typed in told:
        said = lab(*typed)
        assert said.returncode == 0, said.stderr
    assert not (own_base / "house.json").exists()


def test_root_keeps_no_rootless_demo(own_base: Path) -> None:
    words = ["-m", "lab.demo", "--keep", "--rootless"]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode == 1
    assert "error: --keep beside --rootless" in done.stderr


def test_a_dead_world_is_made_anew(own_base: Path) -> None:
    assert lab("up", "--bare", "--nodes", "1").returncode == 0
    pid = json.loads((own_base / "house.json").read_text())["pid"]
    os.kill(pid, 9)
    proc.wait_until(lambda: proc.start_time(pid) is None, "the world's end", timeout=HANG)
    assert "no lab 'lab' is up" in lab("status").stderr
    assert lab("up", "--bare", "--nodes", "1").returncode == 0
    assert lab("down").returncode == 0


def test_where_the_host_forbids_it_root_is_asked_for(own_base: Path) -> None:
    """The setting is made in a user namespace of the test's own, and counts inside that only."""
    with user_namespace() as inside:
        setting = "echo 0 >/proc/sys/user/max_user_namespaces"
        subprocess.run([*inside, "sh", "-c", setting], check=True)
        done = lab("up", "--bare", prefix=[*inside, *NOBODY])
    assert done.returncode == 1
    assert "error: this host does not let an ordinary user make a lab (unshare" in done.stderr
    assert "user.max_user_namespaces is 0" in done.stderr
    assert "Run the same command as root" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (own_base / "house.json").exists()


def test_a_directory_of_somebody_else_is_not_trusted(own_base: Path) -> None:
    own_base.chmod(0o755)
    assert "mode 0700" in lab("status").stderr


def test_settings_that_forbid_it_are_named() -> None:
    assert rootless.obstacles({"user/max_user_namespaces": "1000"}) == []
    assert rootless.obstacles({"kernel/apparmor_restrict_unprivileged_userns": "1"}) == [
        "kernel.apparmor_restrict_unprivileged_userns is 1"
    ]
