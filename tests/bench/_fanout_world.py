"""etcd, proxies of it, and the process that stands for the nodes, for `./run bench fanout`.

A node is one connection with the watches that felix begins, byte for byte; what comes is counted
and thrown away (`_fanout_nodes.c`), so that the figures are those of store and proxies.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from felix.calc.graph import selections
from libcalico.datastore.etcd.watch_responses import Responses
from tests.bench._bgp_table import cpu
from tests.bench._snapshot_shape import Shape, endpoint
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import GrpcProxy

Json = dict[str, Any]
SOURCE = Path(__file__).with_name("_fanout_nodes.c")
SHAPE = Shape("markers", 100_000, 1_000)
NODES_A_PROXY = 200


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def resident(pid: int) -> float:
    """MiB that a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / (1 << 20)


def watches(revision: int) -> list[bytes]:
    """The create requests of a felix that goes on at a revision, as gRPC frames them. Pure."""
    made = (one.SerializeToString() for one in Responses(selections(), revision).requests())
    return [b"\0" + len(one).to_bytes(4, "big") + one for one in made]


def compiled(folder: Path, source: Path, *libraries: str) -> Path:
    """The program of a source beside this file."""
    program = folder / source.stem.strip("_")
    if not program.exists():
        subprocess.run(["gcc", "-O2", "-o", str(program), str(source), *libraries], check=True)
    return program


class Nodes:
    """The process that stands for all nodes."""

    def __init__(self, program: Path, requests: Path, addresses: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [str(program), str(requests), *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command: str) -> str:
        """The answer to one command."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise SystemExit(f"the nodes ended at: {command}")
        return answer

    def open(self, count: int, jitter_ms: int) -> float:
        """Connect so many nodes in all; seconds until all of their watches stand."""
        answer = self.ask(f"open {count} {jitter_ms}")
        if not answer.startswith(f"{count} of {count} "):
            raise SystemExit(f"not all nodes have their watches: {answer}")
        return float(answer.split()[-1]) / 1000

    def until(self, events: int, seconds: float, *, lost_too: bool = False) -> float:
        """Wait until each node has so many events since the mark; returns the seconds.

        `lost_too`: one whose connection has ended is not waited for.
        """
        answer = self.ask(f"until {events} {seconds * 1000:.0f} {lost_too:d}").split()
        if answer[0] != "0":
            raise SystemExit(f"{answer[0]} nodes lack events after {seconds:g} s")
        return float(answer[-1]) / 1000

    def report(self) -> Json:
        """What came since the mark."""
        found: Json = json.loads(self.ask("report"))
        return found

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


class World:
    """etcd with endpoints in it, `proxies` before it (none: nodes ask it directly), and nodes."""

    def __init__(self, etcd: Etcd, folder: Path, proxies: int) -> None:
        self.etcd, self._written = etcd, 0
        self.proxies = [
            GrpcProxy(folder / f"proxy{number}", [etcd.endpoint]).start()
            for number in range(proxies)
        ]
        ports = [proxy.port for proxy in self.proxies] or [etcd.port]
        self._requests = folder / "requests"
        self._requests.write_bytes(b"".join(watches(etcd.revision())))
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self.nodes = Nodes(compiled(folder, SOURCE), self._requests, addresses)

    def resume_at(self, revision: int) -> None:
        """Nodes that are opened from now on go on at a revision."""
        self._requests.write_bytes(b"".join(watches(revision)))
        self.nodes.ask(f"requests {self._requests}")

    def write(self, count: int, a_second: float = 0.0) -> None:
        """Change endpoints of other nodes, so many a second (0: as fast as it goes)."""
        begun = time.monotonic()
        for number in range(count):
            if a_second and (wait := begun + number / a_second - time.monotonic()) > 0:
                time.sleep(wait)
            self._written += 1
            key, value = endpoint(SHAPE, self._written % 100_000, f"other{self._written % 100}")
            stamp = b',"sent":"%020d"}' % time.monotonic_ns()
            self.etcd.put(key, value[:-1] + stamp)

    def used(self) -> Json:
        """Seconds of CPU and MiB of the store and of all proxies."""
        pids = [proxy.pid for proxy in self.proxies]
        return {
            "store_cpu_s": cpu([self.etcd.pid]),
            "proxies_cpu_s": cpu(pids),
            "store_rss_mib": round(resident(self.etcd.pid)),
            "proxies_rss_mib": round(sum(map(resident, pids))),
        }

    def end(self) -> None:
        """End nodes and proxies."""
        self.nodes.end()
        for proxy in self.proxies:
            proxy.kill()


@contextmanager
def world(folder: Path, proxies: int) -> Iterator[World]:
    """A store, its proxies and its nodes."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    etcd = Etcd(folder / f"etcd{proxies}", ["--quota-backend-bytes=4000000000"]).start()
    made: World | None = None
    try:
        made = World(etcd, folder, proxies)
        yield made
    finally:
        if made is not None:
            made.end()
        etcd.kill()
