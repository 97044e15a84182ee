"""With another backend than bird the process is ready and speaks with nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from bgp.idle import backend
from tests.support.etcd import free_ports
from tests.support.patience import HANG


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "bird"),
        ({"CALICO_NETWORKING_BACKEND": "bird"}, "bird"),
        ({"CALICO_NETWORKING_BACKEND": "vxlan"}, "vxlan"),
        ({"CALICO_NETWORKING": "False"}, "none"),
    ],
)
def test_backend(environ: dict[str, str], expected: str) -> None:
    assert backend(environ) == expected


def test_it_is_ready_without_datastore_or_name(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    environ = {
        **os.environ,
        "CALICO_NETWORKING_BACKEND": "vxlan",
        "CALICO_BGP_HEALTH_PORT": str(port),
        "ETCD_ENDPOINTS": "http://127.0.0.1:1",
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bgp.main"], env=environ, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + HANG
        while True:
            try:
                with urllib.request.urlopen(f"http://localhost:{port}/readiness") as answer:
                    assert answer.status == 200
                    break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        assert not children.split()
    finally:
        process.terminate()
        assert process.wait(HANG) == 0
    assert "CALICO_NETWORKING_BACKEND is vxlan" in (tmp_path / "log").read_text()
