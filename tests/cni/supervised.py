"""A daemon under a supervisor of its own, with a trap at any named instant of a call.

    python -m tests.cni.supervised SETTINGS_JSON ENDPOINT

The supervisor forks the daemon and forks the next one when that was killed, as systemd would, but
without the second that imports take. On stdin come traps, one a line: VERB INSTANT VICTIM, where
INSTANT is `before:PLACE` or `after:PLACE` and VICTIM `daemon`, `executable` (the one that calls)
or a process id. On stdout: `ready PID` of each daemon, `armed`, `sprung`. The end of stdin ends it.

Its daemons look at what they remember each half second. `LATE_SECONDS` in the environment says how
long the record of an ADD stays that may yet be carried out.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from cni.node import del_queue
from cni.node.daemon_context import Settings
from cni.node.felix_client import FelixClient
from cni.pods.pod_sources import PodSources
from cni.server import server
from cni.server.daemon import Daemon
from cni.server.server import Server
from cni.socket import protocol
from cni.socket.caller import Caller
from cni.verbs import add, datastore_release
from cni.veth import pod_end, veth_removal, wiring
from cni.veth.veth_removal import VethRemover
from ipam.allocator.service import NodeAllocator
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.process import logs
from linux import links
from tests.support.patience import HANG

PLACES: dict[str, tuple[Any, str]] = {
    "parse": (server, "parse_request"),
    "facts": (PodSources, "facts"),
    "taken": (wiring, "is_taken"),
    "submit": (NodeAllocator, "submit"),
    "offer": (FelixClient, "offer"),
    "create": (wiring, "create"),
    "made": (links, "made"),
    "configure": (pod_end, "configure"),
    "commit": (EtcdDatastore, "commit"),
    "in_force": (FelixClient, "in_force"),
    "result": (add, "_result"),
    "unplug": (VethRemover, "remove"),
    "remove": (veth_removal, "remove_all"),
    "release": (datastore_release, "release"),
    "flows": (datastore_release, "forget_flows"),
    "retract": (FelixClient, "retract"),
    "deliver": (Server, "_deliver"),
}


@dataclass
class Trap:
    """What the next call of a verb springs."""

    verb: str = ""
    instant: str = ""
    victim: str = ""
    caller: int = 0


trap = Trap()


def say(line: str) -> None:
    """To whoever set the trap."""
    os.write(1, f"{line}\n".encode())


def spring(instant: str) -> None:
    """Kill the victim, if this is the instant, and see it dead."""
    if not trap.caller or trap.instant != instant:
        return
    victims = {"daemon": os.getpid(), "executable": trap.caller}
    pid = victims.get(trap.victim) or int(trap.victim)
    trap.instant = ""
    say("sprung")
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        time.sleep(0.001)


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def set_up() -> None:
    """Let every place of the table ask whether it is its turn."""
    for name, (owner, attribute) in PLACES.items():
        setattr(owner, attribute, trapped(getattr(owner, attribute), name))
    real = Server._serve

    async def serve(
        self: Server, caller: Caller, message: protocol.Request, descriptor: int | None
    ) -> None:
        if message.env.get("CNI_COMMAND") == trap.verb:
            trap.caller = caller.channel.peer_pid
        await real(self, caller, message, descriptor)

    Server._serve = serve  # type: ignore[method-assign]


def trapped(real: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that asks before and after."""
    if inspect.iscoroutinefunction(real):

        @functools.wraps(real)
        async def waiting(*arguments: Any, **named: Any) -> Any:
            spring(f"before:{name}")
            found = await real(*arguments, **named)
            spring(f"after:{name}")
            return found

        return waiting

    @functools.wraps(real)
    def asking(*arguments: Any, **named: Any) -> Any:
        spring(f"before:{name}")
        found = real(*arguments, **named)
        spring(f"after:{name}")
        return found

    return asking


def listen() -> None:
    """Take the traps that came; none comes any more when the test has ended."""
    lines = os.read(0, 65536)
    if not lines:
        os._exit(0)
    trap.verb, trap.instant, trap.victim = lines.decode().split()
    trap.caller = 0
    say("armed")


async def serve(settings: Settings, endpoint: str) -> None:
    """One daemon."""
    logs.configure("cni", "DEBUG")
    store = await connect(
        DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, timeout=HANG)
    )
    daemon = Daemon(store, "node1", settings)
    serving = asyncio.create_task(daemon.run())
    asyncio.get_running_loop().add_reader(0, listen)
    await daemon.context.cluster.wait_in_sync()
    while not settings.socket.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    say(f"ready {os.getpid()}")
    await serving


def main() -> None:
    """Fork daemons until stdin ends."""
    settings = msgspec.json.decode(
        sys.argv[1], type=Settings, dec_hook=lambda kind, text: kind(text)
    )
    set_up()
    del_queue.RESCAN_SECONDS = 0.5
    del_queue.LATE_SECONDS = float(os.environ.get("LATE_SECONDS", del_queue.LATE_SECONDS))
    while True:
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(serve(settings, sys.argv[2]))
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            os._exit(1)


class Supervisor:
    """The test's end of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = 0
        """Of the daemon that was ready last."""
        self._lines: list[str] = []

    def arm(self, verb: str, instant: str, victim: str) -> None:
        """Set a trap; it is set when this returns."""
        assert self.process.stdin
        self.process.stdin.write(f"{verb} {instant} {victim}\n".encode())
        self.process.stdin.flush()
        self.wait_for("armed")

    def wait_for(self, word: str) -> None:
        """Wait for a line that begins so; earlier ones are dropped."""
        deadline = time.monotonic() + HANG
        while True:
            while self._lines:
                if self._lines.pop(0).startswith(word):
                    return
            assert self._read(deadline - time.monotonic()), f"no {word!r} in {HANG:.0f} s"

    def saw(self, word: str) -> bool:
        """Whether there is such a line now; earlier ones are dropped."""
        while self._read(0):
            pass
        found = any(line.startswith(word) for line in self._lines)
        self._lines.clear()
        return found

    def _read(self, seconds: float) -> bool:
        assert self.process.stdout
        end = self.process.stdout.fileno()
        if not select.select([end], [], [], max(seconds, 0))[0]:
            return False
        data = os.read(end, 65536)
        assert data, f"the supervisor ended: {self.process.wait()}"
        for line in data.decode().splitlines():
            self._lines.append(line)
            if line.startswith("ready"):
                self.pid = int(line.split()[1])
        return True


@contextmanager
def supervised(
    settings: Settings, endpoint: str, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Supervisor]:
    """A supervisor and its first daemon, until the end of the block; `log` gets stderr."""
    told = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in asdict(settings).items()
    }
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cni.supervised", msgspec.json.encode(told), endpoint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=Path(__file__).parent.parent.parent,
            env={"PATH": os.environ["PATH"], **(environment or {})},
        )
    supervisor = Supervisor(process)
    try:
        supervisor.wait_for("ready")
        yield supervisor
    finally:
        assert process.stdin
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
