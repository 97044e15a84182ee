"""calico-bgp holds passwords: no core dump of it, and no other process of its user reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bgp.session_lab import BIRD, Lab, peer, story
from tests.support.patience import until, wait_for


def limits(pid: int) -> str:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line for line in lines if line.startswith("Max core file size"))


WEAK = ["setpriv", "--bounding-set=-all,+net_bind_service", "--inh-caps=-all"]
"""No CAP_SYS_PTRACE, which sees everything; as much as the speaker has, no less."""


def readable(pid: int) -> bool:
    """Whether a process of our user without CAP_SYS_PTRACE may look into this one."""
    command = [*WEAK, "cat", f"/proc/{pid}/environ"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_agent(tmp_path: Path) -> None:
    """The real program, while it waits for its name or its datastore."""
    environment = {
        "PATH": os.environ["PATH"],
        "DATASTORE_TYPE": "etcdv3",
        "ETCD_ENDPOINTS": "http://127.0.0.1:1",
        "CALICO_BIRD_CTL_DIR": "none",
        "HOME": str(tmp_path),
    }
    with (tmp_path / "log").open("wb") as log:
        command = [*WEAK, sys.executable, "-m", "bgp.main"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_for(lambda: limits(process.pid).split()[4:6] == ["0", "0"], "no core dumps")
        wait_for(lambda: not readable(process.pid), "no look into it")
        other = subprocess.Popen([*WEAK, "sleep", "60"])
        try:
            wait_for(lambda: readable(other.pid), "any other process")
        finally:
            other.kill()
            other.wait()
    finally:
        process.kill()
        process.wait()


def test_its_speaker() -> None:
    async def body(lab: Lab) -> None:
        await lab.speaker.configure([peer(BIRD)])
        await until(lambda: lab.speaker.running, "started")
        pid = lab.speaker.child_pid
        assert pid is not None
        assert limits(pid).split()[4:6] == ["0", "0"]
        assert not readable(pid)

    story(body)
