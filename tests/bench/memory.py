"""`./run bench memory`: the memory of all programs of an idle node, on the Kubernetes datastore.

`calico-node run` on a real kube-apiserver (`./run k8s binaries`), by a service account as in our
manifest, with a neighbour that does not answer, and no pods. JSON: `results.NAME` = {pss_mib,
rss_mib} of each process, and `total_pss_mib`: pages that programs share count once (`man 5 proc`,
smaps_rollup), also where other processes have them. What felix runs for a moment is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from libcalico.process import paths
from tests.apiserver import kdd
from tests.apiserver.test_kdd_node import environment
from tests.bench._ending import in_order
from tests.bench._felix_world import Json
from tests.bench._reporting import add_arguments, conclude
from tests.bench.felix import table
from tests.cni.world import NODE, node_world
from tests.node.world import CALICO_NODE
from tests.support.apiserver import ApiServer
from tests.support.patience import HANG, wait_for

PROGRAMS = {"calico-node", "calico-felix", "calico-bgp", "calico-cni", "exabgp"}
RESTED = 35.0
"""Seconds after which every program has given back what its start left free."""
SCRIPT = 'mount --bind "$0/run" /run && mount --bind "$0/lib" /var/lib && exec "$@"'


def measure(folder: Path) -> Json:
    """A node that has come to rest."""
    with node_world(folder / "node") as _:
        server = ApiServer(folder / "api")
        try:
            server.start()
            kdd.install(server)
            kdd.node(server, NODE, "10.99.1.1")
            _neighbour(server)
            account = _account(server, folder / "run")
            with _running(folder, account) as node:
                wait_for(lambda: _programs(node).keys() >= PROGRAMS, "all programs", limit=HANG)
                time.sleep(RESTED)
                found = {name: _memory(pid) for name, pid in sorted(_programs(node).items())}
        finally:
            server.stop()
    total = sum(one["pss_mib"] for one in found.values())
    return {**found, "total_pss_mib": round(total, 1)}


def _neighbour(server: ApiServer) -> None:
    """Another node: with it the mesh has a session to hold, and ExaBGP runs."""
    kdd.node(server, "other", "10.99.1.2")
    address = {"metadata": {"annotations": {"projectcalico.org/IPv4Address": "10.99.1.2/24"}}}
    server.call("PATCH", "/api/v1/nodes/other", address, content="application/merge-patch+json")


def _account(server: ApiServer, run: Path) -> dict[str, str]:
    """The service account that the kubelet mounts into a pod, as our manifest has it."""
    known = environment(server)
    (user,) = json.loads(Path(known["KUBECONFIG"]).read_text())["users"]
    account = run / paths.SERVICE_ACCOUNT.relative_to("/var/run")
    account.mkdir(parents=True)
    (account / "token").write_text(user["user"]["token"])
    (account / "ca.crt").write_bytes(server.authority.cert.read_bytes())
    place = urlsplit(server.url)
    service = {"HOST": place.hostname, "PORT": place.port}
    return {
        "DATASTORE_TYPE": "kubernetes",
        **{f"KUBERNETES_SERVICE_{name}": str(value) for name, value in service.items()},
    }


@contextmanager
def _running(folder: Path, environ: dict[str, str]) -> Iterator[int]:
    """`calico-node run` with /run and /var/lib of its own; its process id."""
    for name in ("run", "lib"):
        (folder / name).mkdir(exist_ok=True)
    own = {"NODENAME": NODE, "IP": "10.99.1.1/24", "NO_DEFAULT_POOLS": "true"}
    with (folder / "node.log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", SCRIPT, str(folder), *CALICO_NODE, "run"],
            env=os.environ | environ | own,
            stdout=log,
            stderr=log,
        )
    try:
        yield process.pid
    except AssertionError:
        print((folder / "node.log").read_text()[-5000:], file=sys.stderr)
        raise
    finally:
        process.kill()
        process.wait()


def _programs(node: int) -> dict[str, int]:
    """Name to process id of a process and all below it."""
    text = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(maxsplit=2) for line in text.splitlines()]
    below, found = {node}, dict[str, int]()
    for pid, parent, name in rows:
        if int(pid) == node or int(parent) in below:
            below.add(int(pid))
            if name in PROGRAMS:
                found[name] = int(pid)
    return found


def _memory(pid: int) -> Json:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = dict(re.findall(r"^(Rss|Pss):\s+(\d+)", text, re.M))
    return {f"{name.lower()}_mib": round(int(size) / 1024, 1) for name, size in sizes.items()}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench memory", description=__doc__)
    add_arguments(parser)
    options = parser.parse_args()
    in_order()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder))
    conclude("memory", {"results": result}, options, lambda found: table(found["results"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
