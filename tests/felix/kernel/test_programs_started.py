"""Which programs felix starts: none while nothing changes, one for a table that changes.

Every program that it could want is a script here, which notes its name and then does the work.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.felix.in_kernel import mode
from tests.felix.stage import allow
from tests.felix.world import World
from tests.support.patience import HANG, wait_for

NAMES = [
    *(f"{tool}-{kind}-{verb}" for tool in ("iptables", "ip6tables") for kind in ("nft", "legacy")
      for verb in ("save", "restore")),
    *(f"{tool}-{verb}" for tool in ("iptables", "ip6tables") for verb in ("save", "restore")),
    "iptables", "ip6tables", "ipset", "conntrack", "nft", "ip", "sysctl", "modprobe", "tc",
]  # fmt: skip
LONGEST = 5 * HANG
"""Seconds: where others take the processors, many looks meet a felix that waits for one."""


@pytest.mark.promise("PAIN-27")
@pytest.mark.promise("PAIN-26")
@pytest.mark.parametrize("backend", ["nft", "legacy", "nftables"])
def test_no_program_runs_while_nothing_changes_and_one_for_what_does(
    bare_world: World, backend: str
) -> None:
    world = bare_world
    log = noting(world)
    # Never read back: what is measured is what changes cause.
    intervals = ("IPTABLES", "NFTABLES", "ROUTE", "INTERFACE", "IPSETS")
    world.environment |= mode(backend) | {f"FELIX_{n}REFRESHINTERVAL": "0" for n in intervals}
    world.etcd.start()
    world.write_cluster()
    pods = [world.wire(f"cali{n}x", f"10.65.0.{n}", f"fd65::{n}") for n in range(1, 6)]
    for number, pod in enumerate(pods):
        world.put_endpoint(f"p{number}", pod, labels={"n": str(number)})
    put(world, 80)
    world.start_felix()
    world.wait_ready()
    wait_for(lambda: all(world.route(f"{pod.address}/32") for pod in pods))
    settled(log, world)

    assert world.process is not None
    before, read = log.read_text(), store_reads(world)
    spent = cpu(world.process.pid)
    world.ip("link add other type bridge")
    world.ip("address add 192.0.2.1/24 dev other")
    world.ip("link set other up")
    world.ip("route add 198.51.100.0/24 dev other")
    world.put("networksets", "nobody", "NetworkSet", {"nets": ["192.0.2.9/32"]}, "default")
    world.put_endpoint("p0", pods[0], labels={"n": "0"})
    time.sleep(4)
    world.ip("link del other")
    time.sleep(1)
    assert log.read_text() == before, "no program for what concerns no rule"
    # The start is the measure: it costs some twenty times as much on a machine of any speed.
    assert cpu(world.process.pid) - spent < spent / 2

    assert store_reads(world) == read, "events come by watches: nothing is listed again"

    put(world, 81)
    wait_for(lambda: "81" in world.chain("cali-pi-gnp/web"))
    settled(log, world)
    started = log.read_text()[len(before) :].split()
    assert len(started) <= 2, f"one for each family's filter table: {started}"
    assert (backend == "nftables") == (not started)
    assert store_reads(world) == read


def noting(world: World) -> Path:
    """Puts scripts in front of all programs; gives the file where they note their names."""
    folder, log = world.folder / "bin", world.folder / "started"
    folder.mkdir()
    log.touch()
    for name in NAMES:
        real = shutil.which(name, path="/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin")
        if real is not None:
            shim = folder / name
            shim.write_text(f'#!/bin/sh\necho {name} >> "{log}"\nexec {real} "$@"\n')
            shim.chmod(0o755)
    world.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    return log


def put(world: World, port: int) -> None:
    rules = [allow(protocol="TCP", destination={"ports": [port]})]
    spec = {"selector": "has(n)", "types": ["Ingress"], "ingress": rules}
    world.put("globalnetworkpolicies", "web", "GlobalNetworkPolicy", spec)


def store_reads(world: World) -> int:
    """How often the store was read, by etcd's own count; etcdctl's `put` reads nothing."""
    page = world.node.run("curl", "-s", "-m", str(HANG), f"{world.etcd.endpoint}/metrics")
    wanted = 'grpc_method="Range"'
    lines = [line for line in page.splitlines() if line.startswith("grpc_server_handled_total{")]
    assert lines
    return sum(int(float(line.split()[-1])) for line in lines if wanted in line)


def settled(log: Path, world: World) -> None:
    """Until nothing was started for three seconds in which felix slept whenever it was looked at:
    what nobody wants is swept long before. A felix that waits for a processor does not sleep.
    """
    assert world.process is not None
    last, quiet, end = log.read_text(), 0, time.monotonic() + LONGEST
    while quiet < 60:
        assert time.monotonic() < end, f"felix never rests: {last.split()[-5:]}"
        time.sleep(0.05)
        now = log.read_text()
        quiet = quiet + 1 if now == last and sleeps(world.process.pid) else 0
        last = now


def sleeps(pid: int) -> bool:
    """Whether all threads of a process wait for something."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return set(found) == {"S"}


def cpu(pid: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
