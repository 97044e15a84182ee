"""Calico's own programs beside ours: on one real etcd, and as aggregators of flows.

The tests need a folder with Calico's `calicoctl` (v3.32), `goldmane` and `whisker-backend`, and
with `ipam-driver` and `goldmane-driver` (small programs around Calico's libraries, their protocols
in docs/interop.md); the environment variable MUSLIN_INTEROP names it. Without it nothing here is
collected, and a test whose program lacks is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.calicoctl.conftest import Done, ctl
from tests.interop.driver import Driver
from tests.support.etcd import Etcd
from tests.support.patience import HANG

FOLDER = "MUSLIN_INTEROP"
ours = ctl
"""Our `calicoctl`, in this process."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these tests out where the programs are not at hand."""
    if os.environ.get(FOLDER):
        return
    here = f"{Path(__file__).parent}/"
    left_out = {item for item in items if str(item.path).startswith(here)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def program(name: str) -> str:
    """The path of a program of the folder; the test is skipped where it is not there."""
    path = Path(os.environ[FOLDER]) / name
    if not path.exists():
        pytest.skip(f"{FOLDER} has no {name}")
    return str(path)


class Theirs:
    """Calico's `calicoctl`: called like ours."""

    def __init__(self, path: str, etcd: Etcd, folder: Path) -> None:
        self._program, self._folder = path, folder
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **etcd.environment()}

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        done = subprocess.run(
            [self._program, *arguments],
            input=stdin.encode(),
            capture_output=True,
            cwd=self._folder,
            env=self.environment,
            timeout=HANG,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def theirs(etcd: Etcd, tmp_path: Path) -> Theirs:
    """Calico's `calicoctl` on the test's etcd."""
    return Theirs(program("calicoctl"), etcd, tmp_path)


DriverMaker = Callable[[], Driver]


@pytest.fixture
def drivers(etcd: Etcd, tmp_path: Path) -> Iterator[DriverMaker]:
    """Makes processes with Calico's IPAM library on the test's etcd."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **etcd.environment()}
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Driver(program("ipam-driver"), environment))


@pytest.fixture
def driver(drivers: DriverMaker) -> Driver:
    """One of them."""
    return drivers()


class _NoServices(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        empty = {"kind": "ServiceList", "apiVersion": "v1", "metadata": {}, "items": []}
        body = json.dumps(empty).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[str]:
    """A Kubernetes API with no Services, the one thing Calico's `ipam check` asks it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _NoServices)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = tmp_path / "kubeconfig"
    cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        "current-context": "c",
    }
    path.write_text(json.dumps(tree))
    yield str(path)
    server.shutdown()
    server.server_close()
