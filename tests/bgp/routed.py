"""Real felix below the bgp of a `world.Node`, and datagrams over the routes that it writes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from felix import ROUTE_PROTOCOL
from tests.bgp.world import ROUTER, Node, World
from tests.felix.launch import launched
from tests.support.netns import Namespace
from tests.support.patience import HANG, patient, wait_for

OURS = str(ROUTE_PROTOCOL)
PORT = 9000
INTERVAL = 0.01
SO_RCVBUFFORCE = 33  # linux, asm-generic/socket.h: beyond net.core.rmem_max
FIB = "/proc/thread-self/net/route"


@dataclass
class Felix:
    """Felix on a node; it stands where the node's `Ear` stood."""

    node: Node
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; does not wait."""
        self.node.ear.close()
        environment = {
            "PATH": os.environ["PATH"],
            "NODENAME": self.node.name,
            "DATASTORE_TYPE": "etcdv3",
            "ETCD_ENDPOINTS": f"http://{ROUTER}:2379",
            "FELIX_HEALTHENABLED": "true",
            "FELIX_IPTABLESBACKEND": "NFT",
            "no_proxy": "*",
        }
        command = self.node.space.command(
            *launched(self.node.run, sys.executable, "-m", "felix.main")
        )
        with self.node.log.with_name(f"{self.node.name}-felix.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until it is ready."""
        url = "http://localhost:9099/readiness"
        ask = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", url)
        ready = lambda: self.node.space.run(*ask, check=False) == "200"  # noqa: E731
        wait_for(ready, f"felix of {self.node.name} is ready")

    def stop(self) -> None:
        """Kill it."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(HANG)


def kernel_lines(space: Namespace) -> list[str]:
    """The IPv4 main table of a namespace as the kernel prints it."""
    return space.call(lambda: Path(FIB).read_text().splitlines()[1:])


def kernel_table(space: Namespace) -> dict[str, str]:
    """Destination -> the rest of the line, of routes written by felix."""
    lines = space.run("ip", "-4", "route", "show", "proto", OURS).splitlines()
    return {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line[0].isdigit()}


def use_pool(world: World, cidr: str = "10.64.0.0/10") -> None:
    """A cluster that is ready, and one pool without encapsulation."""
    ready = {"clusterGUID": "0", "datastoreReady": True}
    world.apply("ClusterInformation", "default", ready)
    spec = {"cidr": cidr, "ipipMode": "Never", "vxlanMode": "Never", "natOutgoing": False}
    world.apply("IPPool", "pool", spec)


@dataclass
class Stream:
    """Datagrams from one namespace to an address in another, a hundred a second, each counted."""

    source: Namespace
    target: Namespace
    address: str
    sent: int = 0
    refused: list[str] = field(default_factory=list)
    arrived: set[int] = field(default_factory=set)
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def lost(self) -> list[int]:
        """Numbers that did not arrive."""
        return sorted(set(range(self.sent)) - self.arrived)

    @contextmanager
    def running(self) -> Iterator[Stream]:
        """Sends within; afterwards waits for the last ones."""
        ear = self.target.call(self._bound)
        caller = self.source.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        hears = threading.Thread(target=self._hear, args=(ear,))
        sends = threading.Thread(target=self._send, args=(caller,))
        hears.start()
        sends.start()
        try:
            yield self
        finally:
            self._ended.set()
            sends.join()
            deadline = time.monotonic() + patient(2)
            while self.lost and time.monotonic() < deadline:
                time.sleep(0.05)
            ear.close()
            hears.join()
            caller.close()

    def _bound(self) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Nobody may take a full queue on a busy machine for a lost route.
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        made.bind((self.address, PORT))
        made.settimeout(0.1)
        return made

    def _send(self, caller: socket.socket) -> None:
        while not self._ended.wait(INTERVAL):
            number = self.sent
            self.sent += 1
            try:
                caller.sendto(str(number).encode(), (self.address, PORT))
            except OSError as error:
                self.refused.append(f"{number}: {error}")

    def _hear(self, ear: socket.socket) -> None:
        while True:
            try:
                self.arrived.add(int(ear.recv(100)))
            except TimeoutError:
                continue
            except OSError:
                return
