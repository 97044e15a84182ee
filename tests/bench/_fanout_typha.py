"""Calico's Typha between the API server and its clients, for `./run bench fanout`.

MUSLIN_TYPHA names a folder with two programs that this repository neither contains nor makes:
`calico-typha`, Calico's, and `typha-clients ADDRESS COUNT`, so many clients of Calico's own library
(typha/pkg/syncclient, felix's kind). The latter answers each line of input by two numbers: how many
clients are in sync, and how many updates all of them have had.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.apiserver.kdd import CRD
from tests.bench._bgp_table import cpu
from tests.bench._fanout_api import ApiWorld, each
from tests.bench._fanout_world import Json, resident
from tests.support.apiserver import ADMIN
from tests.support.patience import HANG, wait_for
from tests.support.ports import free_ports

NAMED = "MUSLIN_TYPHA"
QUIET_S = 3.0
"""After which no more updates come."""
LIMIT_S = 900.0


class Typha:
    """A Typha and its clients."""

    def __init__(self, server: subprocess.Popen[bytes], clients: subprocess.Popen[str]) -> None:
        self.server, self._clients = server, clients

    def came(self) -> tuple[int, int]:
        """Clients in sync, and updates of all."""
        assert self._clients.stdin is not None
        assert self._clients.stdout is not None
        self._clients.stdin.write("\n")
        self._clients.stdin.flush()
        synced, updates = self._clients.stdout.readline().split()
        return int(synced), int(updates)

    def settled(self) -> int:
        """The updates, when no more come."""
        last = -1
        while (now := self.came()[1]) != last:
            last = now
            time.sleep(QUIET_S)
        return last


def typha(place: ApiWorld, folder: Path, changes: int, rate: float, unwatched: Json) -> Json:
    """As many clients as nodes, told by one Typha."""
    count = place.size
    with running(place, folder, count) as one:
        wait_for(lambda: one.came()[0] >= count, "all clients in sync", limit=LIMIT_S)
        updates = one.settled()
        before, used = place.used(), cpu([one.server.pid])
        place.write(changes, rate)
        updates = one.settled() - updates
        after, used = place.used(), cpu([one.server.pid]) - used
        memory = resident(one.server.pid)
    server_ms = (
        each(before, after, "server_cpu_s", changes, 1e3) - unwatched["server_ms_per_change"]
    )
    return {
        "updates_per_change": round(updates / count / changes, 2),
        "typha_us_per_change": round(used / count / changes * 1e6, 1),
        "all_us_per_change": round((used / changes * 1e6 + server_ms * 1e3) / count, 1),
        "typha_rss_mib": round(memory),
    }


@contextmanager
def running(place: ApiWorld, folder: Path, count: int) -> Iterator[Typha]:
    """Both programs, while this lasts."""
    programs = Path(os.environ[NAMED])
    (port,) = free_ports(1)
    body = {"metadata": {"name": "default"}, "spec": {"datastoreReady": True}}
    versioned = {"apiVersion": "crd.projectcalico.org/v1", "kind": "ClusterInformation", **body}
    place.api.ensure(f"{CRD}/clusterinformations", versioned)
    settings = {
        "DATASTORETYPE": "kubernetes",
        "SERVERHOST": "127.0.0.1",
        "SERVERPORT": str(port),
        "LOGSEVERITYSCREEN": "ERROR",
        "LOGFILEPATH": "none",
        "LOGSEVERITYSYS": "none",
    }
    environ = {"PATH": os.environ["PATH"], "KUBECONFIG": str(_kubeconfig(place, folder))}
    environ |= {f"TYPHA_{name}": value for name, value in settings.items()}
    with (folder / "typha.log").open("wb") as log:
        server = subprocess.Popen(
            [str(programs / "calico-typha"), "-c", "/none"], stdout=log, stderr=log, env=environ
        )
        try:
            wait_for(lambda: _listens(port), "Typha to listen", limit=HANG)
            words = [str(programs / "typha-clients"), f"127.0.0.1:{port}", str(count)]
            pipe = subprocess.PIPE
            clients = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=log, text=True)
            try:
                yield Typha(server, clients)
            finally:
                clients.kill()
                clients.wait()
        finally:
            server.kill()
            server.wait()


def _listens(port: int) -> bool:
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    return any(f":{port:04X} " in line and " 0A " in line for line in table.splitlines())


def _kubeconfig(place: ApiWorld, folder: Path) -> Path:
    ca = str(place.api.authority.cert)
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": place.api.url, "certificate-authority": ca}}
        ],
        "users": [{"name": "u", "user": {"token": ADMIN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(whole))
    return file
