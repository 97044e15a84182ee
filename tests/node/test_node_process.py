"""`calico-node` as a process: waiting, ending with a sentence, its agents and their ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from node.start import startup
from node.supervisor import agents
from tests.node.world import CALICO_NODE, RESOURCES, start
from tests.support.etcd import Etcd
from tests.support.netns import Namespace
from tests.support.patience import HANG, wait_for


def test_it_waits_for_the_datastore_and_says_so(
    etcd_inside: Etcd, environ: dict[str, str], tmp_path: Path
) -> None:
    etcd_inside.stop()
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*CALICO_NODE, "startup"], env=os.environ | environ, stderr=output
        )
    try:
        wait_for(lambda: "waiting for the datastore" in log.read_text())
        assert not Path(environ["CALICO_NODENAME_FILE"]).exists()
        etcd_inside.start()
        assert process.wait(HANG) == 0
    finally:
        process.kill()
        process.wait()
    assert Path(environ["CALICO_NODENAME_FILE"]).read_text() == "node1"


def test_wrong_settings_end_at_once_with_one_sentence(environ: dict[str, str]) -> None:
    done = subprocess.run(
        [*CALICO_NODE, "run"],
        env=os.environ | environ | {"CALICO_NETWORKING_BACKEND": "bgp"},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "calico-node: CALICO_NETWORKING_BACKEND: 'bgp' is not valid: allowed: bird, vxlan, none\n"
    )


def test_without_waiting_it_ends(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    """And the startup's own level and form of logs."""
    etcd_inside.stop()
    told = {
        "WAIT_FOR_DATASTORE": "false",
        "CALICO_STARTUP_LOGLEVEL": "ERROR",
        "CALICO_LOG_FORMAT": "json",
    }
    done = subprocess.run(
        [*CALICO_NODE, "startup"],
        env=os.environ | environ | told,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("calico-node: "), "no line of a log below ERROR"
    assert etcd_inside.endpoint.removeprefix("http://") in done.stderr
    etcd_inside.start()
    done = subprocess.run(
        [*CALICO_NODE, "startup"],
        # CALICO_LOG_LEVEL is for all processes and wins.
        env=os.environ | environ | told | {"CALICO_LOG_LEVEL": "INFO"},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=True,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert "this node is registered" in [line["message"] for line in lines]


@pytest.mark.promise("M-182")
@pytest.mark.promise("M-192")
def test_each_backend_starts_its_agents(environ: dict[str, str]) -> None:
    for backend, rooms in (
        ("bird", "felix bgp cni"),
        ("vxlan", "felix cni"),
        ("none", "felix cni"),
    ):
        _, chosen = startup.name_of(environ | {"CALICO_NETWORKING_BACKEND": backend})
        found = [one.name for one in agents(chosen.backend, felix=chosen.felix)]
        assert found == [f"calico-{room}" for room in rooms.split()]
    _, chosen = startup.name_of(environ | {"CALICO_DISABLE_FELIX": "true"})
    found = [one.name for one in agents(chosen.backend, felix=chosen.felix)]
    assert found == ["calico-bgp", "calico-cni"]


@pytest.fixture
def node_process(environ: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`calico-node run` with /run and /var/lib of its own, as on a machine of its own."""
    for name in ("run", "lib"):
        (tmp_path / name).mkdir(exist_ok=True)
    script = 'mount --bind "$0/run" /run && mount --bind "$0/lib" /var/lib && exec "$@"'
    with (tmp_path / "node.log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", script, str(tmp_path), *CALICO_NODE, "run"],
            env=os.environ | environ | {"IP": "autodetect", "NO_DEFAULT_POOLS": "true"},
            stdout=log,
            stderr=log,
        )
    yield process
    process.kill()
    process.wait()
    if os.environ.get("SHOW_LOGS"):
        print((tmp_path / "node.log").read_text())


AGENTS = {"calico-felix", "calico-bgp", "calico-cni"}


def children(parent: int) -> dict[str, int]:
    """Name as `ps` shows it to process id, of the agents that live; others come and go."""
    command = ["ps", "--ppid", str(parent), "-o", "pid=,args="]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[1]: int(row[0]) for row in rows if len(row) >= 2 and row[1] in AGENTS}


def _replaced(parent: int, name: str, pid: int) -> bool:
    return children(parent).get(name, pid) != pid


@pytest.mark.promise("M-118")
@pytest.mark.promise("M-211")
def test_the_nodes_processes_bear_their_names_and_come_back(
    node_process: subprocess.Popen[bytes], machine: Namespace
) -> None:
    wait_for(lambda: set(children(node_process.pid)) == AGENTS)
    own = Path(f"/proc/{node_process.pid}/cmdline").read_bytes()
    assert own.startswith(b"calico-node")
    first = children(node_process.pid)
    for name in sorted(AGENTS):
        os.kill(first[name], signal.SIGKILL)
        killed = time.monotonic()
        wait_for(partial(_replaced, node_process.pid, name, first[name]))
        print(f"{name} is back after {time.monotonic() - killed:.3f} s")
    routes = machine.run("ip", "route", "show", "table", "all")
    node_process.terminate()
    assert node_process.wait(HANG) == 0
    assert machine.run("ip", "route", "show", "table", "all") == routes


def test_a_known_node_starts_its_agents_without_the_datastore(
    environ: dict[str, str],
    etcd_inside: Etcd,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Registered once; then etcd is away when the supervisor starts, and comes back."""
    assert start(environ, IP="autodetect", NO_DEFAULT_POOLS="true") == "node1"
    etcd_inside.kill()
    log = tmp_path / "node.log"
    process: subprocess.Popen[bytes] = request.getfixturevalue("node_process")
    wait_for(lambda: set(children(process.pid)) == AGENTS)
    before = children(process.pid)
    etcd_inside.start()
    wait_for(lambda: "is registered" in log.read_text())
    assert children(process.pid) == before, "registering disturbs nobody"
    # It gives signs of life, and a Node that is deleted is there again.
    wait_for(lambda: etcd_inside.get("/calico/felix/v2/no-region/host/node1/machine"))
    wait_for(lambda: children(process.pid) == before)
    etcd_inside.delete(RESOURCES + "nodes/node1")
    wait_for(lambda: etcd_inside.get(RESOURCES + "nodes/node1"))
    process.terminate()
    assert process.wait(HANG) == 0
