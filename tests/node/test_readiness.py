"""When a node says that its network is there, and what it says when it goes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from libcalico.process import status_file
from node import readiness
from node.settings.environment import settings
from tests.support.patience import HANG

FELIX = {"in_sync": True, "ready": True}
BGP = {"start_complete": True, "peers": [{"address": "10.0.0.2", "state": "start"}]}


def agents(*names: str) -> dict[str, int]:
    return {f"calico-{name}": os.getpid() for name in names}


@pytest.mark.promise("PAIN-12")
def test_ready_are_the_agents_that_run_now_whatever_their_peers(tmp_path: Path) -> None:
    running = agents("felix", "bgp", "cni")
    assert not readiness.ready(running, tmp_path)
    status_file.write("felix", FELIX, tmp_path)
    assert not readiness.ready(running, tmp_path)
    assert readiness.ready(agents("felix", "cni"), tmp_path), "without BGP nobody waits for it"
    status_file.write("bgp", BGP, tmp_path)
    assert readiness.ready(running, tmp_path), "a peer that is down is no reason"
    assert not readiness.ready(running | {"calico-felix": 1}, tmp_path), "an earlier felix said so"
    assert not readiness.ready({}, tmp_path)


def test_the_same_number_in_another_container_is_another_process(tmp_path: Path) -> None:
    status_file.write("felix", FELIX, tmp_path)
    file = tmp_path / "felix.json"
    mine = json.loads(file.read_text())
    assert readiness.ready(agents("felix"), tmp_path)
    file.write_text(json.dumps(mine | {"pid_namespace": mine["pid_namespace"] + 1}))
    assert not readiness.ready(agents("felix"), tmp_path)


def test_a_speaker_in_another_container_counts_since_this_one_began(tmp_path: Path) -> None:
    status_file.write("felix", FELIX, tmp_path)
    running = agents("felix")
    assert not readiness.ready(running, tmp_path, ("bgp",)), "it has said nothing"
    status_file.write("bgp", BGP | {"start_complete": False}, tmp_path)
    assert not readiness.ready(running, tmp_path, ("bgp",))
    status_file.write("bgp", BGP, tmp_path)
    wrote = readiness.mark("bgp", tmp_path)
    assert wrote is not None
    assert readiness.ready(running, tmp_path, ("bgp",))
    assert not readiness.ready(running, tmp_path, ("bgp",), {"bgp": wrote}), "an earlier one said"
    status_file.write("bgp", BGP, tmp_path)
    # The clock was set back by an hour meanwhile: a boot before NTP had its say.
    hour_ago = time.time() - 3600
    os.utime(tmp_path / "bgp.json", (hour_ago, hour_ago))
    assert readiness.ready(running, tmp_path, ("bgp",), {"bgp": wrote})


@pytest.mark.parametrize(
    ("file", "said"),
    [("felix", FELIX | {"ready": False}), ("felix", {"ready": True}), ("bgp", {})],
)
def test_an_agent_that_is_not_there_yet(tmp_path: Path, file: str, said: dict[str, Any]) -> None:
    status_file.write("felix", FELIX, tmp_path)
    status_file.write("bgp", BGP, tmp_path)
    status_file.write(file, said, tmp_path)
    assert not readiness.ready(agents("felix", "bgp"), tmp_path)


def test_without_kubernetes_or_with_backend_none_nothing_is_told() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "CALICO_NETWORKING_BACKEND": "none"}
    for environ in ({}, pod):
        asyncio.run(readiness.clear_when_ready(environ, "n1", settings(environ), dict))


def test_shutdown_notes_the_time_also_when_no_api_answers(tmp_path: Path) -> None:
    file = tmp_path / "lib" / "shutdownTS"
    done = subprocess.run(
        [sys.executable, "-m", "node.main", "shutdown"],
        env=os.environ
        | {
            "NODENAME": "n1",
            "CALICO_SHUTDOWN_TIMESTAMP_FILE": str(file),
            "K8S_API_ENDPOINT": "http://127.0.0.1:1",
        },
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0
    assert "NetworkUnavailable cannot be told to Kubernetes" in done.stderr
    assert file.read_text().endswith("Z")
    assert len(file.read_text()) == len("2026-08-22T10:00:00Z")
