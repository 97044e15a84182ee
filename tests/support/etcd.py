"""A real etcd of one member on free loopback ports, with its data in a folder of its own.

The data goes with the object that speaks for the server.

The session's server is shared and its keys are wiped before every test; a private server
can be killed, paused, restarted on its ports, or compacted.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from lab.datastore import ALONE
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore
from libcalico.errors import DatastoreUnavailable
from libcalico.model import HandleKey
from tests.support import gateway
from tests.support.own_process import OwnProcess
from tests.support.patience import HANG
from tests.support.ports import free_ports as free_ports

SMALL_QUOTA = "--quota-backend-bytes=3000000"
"""For `Etcd.fill`."""
MANY = ("--heartbeat-interval=50", "--election-timeout=500")
CALL = 30.0
"""Seconds of one call that shall succeed: more than by default, for the machine may be busy."""


class Etcd(OwnProcess):
    """One server. `endpoint` stays the same over restarts."""

    def __init__(self, folder: Path, extra: Sequence[str] = (), scheme: str = "http") -> None:
        self.folder = folder
        self.name = "test"
        self.program = "etcd"
        self._extra = list(extra)
        self._client, self._peer = free_ports(2)
        self.peer = f"http://127.0.0.1:{self._peer}"
        self.members = f"{self.name}={self.peer}"
        self.endpoint = f"{scheme}://127.0.0.1:{self._client}"
        self.ctl_flags: list[str] = []
        # 64 MB and more, whatever is stored; worlds of a session would hold them to its end.
        gone = weakref.finalize(self, shutil.rmtree, folder / "data", ignore_errors=True)
        gone.atexit = False  # a forked process ends, too

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self._client

    @property
    def reached(self) -> str:
        """The endpoint that clients are given."""
        return self.endpoint

    def start(self) -> Etcd:
        """Start, and wait until it answers."""
        self.launch()
        self.wait()
        return self

    def launch(self) -> None:
        """Start without waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self.program,
                    f"--name={self.name}",
                    f"--data-dir={self.folder / 'data'}",
                    f"--listen-client-urls={self.endpoint}",
                    f"--advertise-client-urls={self.endpoint}",
                    f"--listen-peer-urls={self.peer}",
                    f"--initial-advertise-peer-urls={self.peer}",
                    f"--initial-cluster={self.members}",
                    "--unsafe-no-fsync=true",
                    *(MANY if "," in self.members else ALONE),
                    *self._extra,
                ],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "ETCD_UNSUPPORTED_ARCH": ""},
            )

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            if not self.running:
                break
            if self._is_healthy():
                return
            time.sleep(0.02)
        raise RuntimeError("etcd did not start:\n" + (self.folder / "etcd.log").read_text()[-3000:])

    def _is_healthy(self) -> bool:
        if self._is_plain:
            try:
                _, answer = gateway.ask(self.port, "GET", "/health")
            except (OSError, http.client.HTTPException):
                return False
            if answer.get("health") == "true":
                return True
        # With an alarm, of a full disk say, /health says no, and yet it answers.
        return self._ask("endpoint", "health").returncode == 0

    def restart_with(self, *flags: str) -> None:
        """Restart with these flags more, until the next one."""
        kept = list(self._extra)
        self._extra += flags
        try:
            self.restart()
        finally:
            self._extra = kept

    def wipe(self) -> None:
        """Stop and lose all data, as a store that is set up anew."""
        self.stop()
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def save(self, file: Path) -> None:
        """A snapshot of all data, as an operator's backup makes it."""
        self.ctl("snapshot", "save", str(file))

    def put_back(self, file: Path, token: str = "etcd-cluster") -> None:
        """Stop, and make the data anew from a snapshot; `start` runs on it."""
        self.wipe()
        done = self._ask(
            "snapshot", "restore", str(file), f"--name={self.name}",
            f"--data-dir={self.folder / 'data'}", f"--initial-cluster={self.members}",
            f"--initial-advertise-peer-urls={self.peer}", f"--initial-cluster-token={token}",
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"etcdctl snapshot restore: {done.stderr.decode()}")

    def fill(self) -> None:
        """Write what is nobody's until the quota is used up; start it with a small one before."""
        for number in itertools.count():
            try:
                self.put(f"/filler/{number}", "x" * 1_000_000)
            except RuntimeError as error:
                if "database space exceeded" not in str(error):
                    raise
                return

    def make_room(self) -> None:
        """What an operator does about a full etcd."""
        self.delete("/filler/")
        self.compact()
        self.ctl("defrag")
        self.ctl("alarm", "disarm")

    def config(self, timeout: float = CALL) -> DatastoreConfig:
        """A configuration that reaches this server."""
        return DatastoreConfig(
            datastore_type="etcdv3", etcd_endpoints=self.endpoint, timeout=timeout
        )

    def environment(self) -> dict[str, str]:
        """The variables by which our programs find this server."""
        return {"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": self.endpoint}

    @asynccontextmanager
    async def connect(self, timeout: float = CALL) -> AsyncIterator[Datastore]:
        """A datastore on this server, closed in the end."""
        store = await connect(self.config(timeout))
        try:
            yield store
        finally:
            await store.close()

    def ctl(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """What etcdctl prints; usual words are asked without a process, which costs a hundred
        times more. Raises RuntimeError with what was said."""
        if self._is_plain and (told := gateway.told(self.port, arguments, stdin)) is not None:
            return told
        patience = f"{HANG:.0f}s"
        limits = (f"--command-timeout={patience}", f"--dial-timeout={patience}")
        done = self._ask(*limits, *arguments, stdin=stdin)
        if done.returncode != 0:
            raise RuntimeError(f"etcdctl {' '.join(arguments)}: {done.stderr.decode()}")
        return done.stdout

    def put(self, key: str, value: bytes | str) -> None:
        """Write one key."""
        raw = value if isinstance(value, bytes) else value.encode()
        self.ctl("put", key, stdin=raw)

    def get(self, key: str) -> bytes | None:
        """The value of one key, or None."""
        out = self.ctl("get", key, "--print-value-only")
        return out.removesuffix(b"\n") if out else None

    def delete(self, prefix: str) -> None:
        """Delete all keys with a prefix."""
        self.ctl("del", "--prefix", prefix)

    def keys(self, prefix: str = "/calico/") -> list[str]:
        """All keys with a prefix."""
        out = self.ctl("get", "--prefix", "--keys-only", prefix).decode()
        return [line for line in out.splitlines() if line]

    def revision(self) -> int:
        """The store's present revision."""
        out = json.loads(self.ctl("get", "/none", "--write-out=json"))
        return int(out["header"]["revision"])

    def sent(self) -> int:
        """Bytes that it has sent to its clients since it started."""
        (line,) = self._metrics("etcd_network_client_grpc_sent_bytes")
        return int(float(line.split()[-1]))

    def asked(self, method: str) -> int:
        """How many calls of a gRPC method it has got since it started."""
        lines = self._metrics("grpc_server_started_total")
        return sum(int(float(one.split()[-1])) for one in lines if f'"{method}"' in one)

    def _metrics(self, name: str) -> list[str]:
        with urllib.request.urlopen(f"{self.endpoint}/metrics", timeout=HANG) as answer:
            lines: list[str] = answer.read().decode().splitlines()
        return [one for one in lines if one.startswith(name)]

    def compact(self) -> int:
        """Forget all history before the present revision; returns it."""
        revision = self.revision()
        self.ctl("compact", str(revision))
        return revision

    def _ask(
        self, *arguments: str, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["etcdctl", f"--endpoints={self.endpoint}", *self.ctl_flags, *arguments],
            input=stdin if stdin is not None else b"",
            capture_output=True,
            env={"PATH": os.environ["PATH"], "ETCDCTL_API": "3"},
            timeout=2 * HANG,
        )

    @property
    def _is_plain(self) -> bool:
        """Whether it can be asked without certificates and users."""
        return self.endpoint.startswith("http:") and not self.ctl_flags


async def answering(store: Datastore) -> None:
    """Until a store has its connection whose calls have a short time, because they shall fail."""
    until = time.monotonic() + HANG
    while True:
        with contextlib.suppress(DatastoreUnavailable):
            await store.get(HandleKey("a"))
            return
        assert time.monotonic() < until, "never answered"
        await asyncio.sleep(0.02)


def first_asked(store: Datastore) -> str:
    """The endpoint that a store asks first, drawn by lot where none answered yet."""
    its = store._connection  # type: ignore[attr-defined]
    return str(its._all()[its._first].endpoint)


def begin_with(store: Datastore, endpoint: str) -> None:
    """Have a store ask this one of its endpoints first."""
    its = store._connection  # type: ignore[attr-defined]
    (its._first,) = (i for i, link in enumerate(its._all()) if link.endpoint == endpoint)


def make_cluster(folder: Path, size: int = 3, extra: Sequence[str] = ()) -> list[Etcd]:
    """The members of one cluster, started; the caller stops each."""
    made = [Etcd(folder / f"m{number}", extra) for number in range(size)]
    for number, one in enumerate(made):
        one.name = f"m{number}"
    members = ",".join(f"{one.name}={one.peer}" for one in made)
    for one in made:
        one.members = members
        one.launch()
    for one in made:
        one.wait()
    return made
