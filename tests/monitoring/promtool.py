"""Programs of Debian's package prometheus: those installed, or the files of the package."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from manifests.image import cache
from tests.support.patience import HANG, wait_for
from tests.support.ports import free_ports
from tests.tiers import FULL_SIZE

PROGRAMS = ("promtool", "prometheus")


def find(name: str = "promtool") -> str | None:
    """Its path; fetched at full size alone, because the package is large."""
    if found := shutil.which(name):
        return found
    kept = cache.folder("promtool") / name
    if not kept.exists() and os.environ.get(FULL_SIZE) and shutil.which("apt-get"):
        _fetch(kept.parent)
    return str(kept) if kept.exists() else None


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target) as folder:
        command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", "prometheus"]
        if subprocess.run(command, cwd=folder, check=False).returncode != 0:
            return
        (package,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, Path(folder, "x")], check=True)
        for name in PROGRAMS:
            Path(folder, "x/usr/bin", name).replace(target / name)


@dataclass(frozen=True)
class Prometheus:
    """A running server, by its port on localhost."""

    port: int

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=HANG):
                return True
        except OSError:
            return False

    def ask(self, query: str) -> list[dict[str, Any]]:
        """What a query returns now; AssertionError where it is refused."""
        text = urllib.parse.urlencode({"query": query})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{text}"
        with urllib.request.urlopen(url, timeout=HANG) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        result: list[dict[str, Any]] = told["data"]["result"]
        return result


@contextlib.contextmanager
def prometheus(
    program: str, folder: Path, jobs: list[dict[str, Any]], every: str
) -> Iterator[Prometheus]:
    """A server that reads these jobs while the body runs; `every`: how often, such as `2s`."""
    (port,) = free_ports(1)
    settings = {"global": {"scrape_interval": every}, "scrape_configs": jobs}
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(settings))
    command = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        made = Prometheus(port)
        wait_for(made.is_ready, (folder / "prometheus.log").read_text)
        yield made
    finally:
        process.terminate()
        process.wait()
