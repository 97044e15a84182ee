"""The real executable and its twin for tests, called as a runtime calls them; a small daemon.

done = call(plugin("calico"), {"CNI_COMMAND": "VERSION"}, b"")
done = call(exe.plugin(), ...)         # fixture `exe`: once the executable, once the twin
with Daemon(path, answer) as daemon:   # speaks cni.sock in a thread of its own
    ...
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from build_hook import EXECUTABLE, EXECUTABLE_SOURCE, ROOT, compile_executable
from cni import install
from cni.socket import accepting, channel, protocol
from tests import run_folder
from tests.support.patience import HANG

SANITIZERS = (
    "-std=c11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-D_GNU_SOURCE",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-DRETRY_MS=20",
)
QUICK = ("-std=c11", "-O1", "-D_GNU_SOURCE", "-DRETRY_MS=20")
SHORT = ("-std=c11", "-O1", "-D_GNU_SOURCE", "-DDEADLINE_MS=1000", "-DRETRY_MS=20")
LASTING = ("-std=c11", "-O1", "-D_GNU_SOURCE", "-DRETRY_MS=60000")
PIPE = 65536
"""What a pipe holds."""
BASE = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c0ffee",
    "CNI_NETNS": "/var/run/netns/testing",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin",
}
CONFIG = {
    "cniVersion": "1.0.0",
    "name": "net",
    "type": "calico",
    "ipam": {"type": "calico-ipam"},
}


@functools.cache
def _directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="muslin-cni-"))
    directory.chmod(0o755)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@functools.cache
def _shared() -> Path:
    """Where the processes of one run of tests find what another one has built."""
    run = Path(tempfile.gettempdir())
    if not (run / run_folder.LOCK).exists():
        return _directory()
    folder = run / "cni-built"
    folder.mkdir(mode=0o755, exist_ok=True)
    return folder


@functools.cache
def plugin(name: str = "calico") -> Path:
    """The executable as installed, under `name` (`calico` or `calico-ipam`)."""
    if not (_directory() / "calico").exists():
        assert compile_executable(), "no compiler"
        install.install_binaries(_directory(), EXECUTABLE)
    return _directory() / name


@functools.cache
def built(name: str, *flags: str, source: Path = EXECUTABLE_SOURCE) -> Path:
    """The executable built with gcc and more flags, for what the shipped one cannot be asked.

    `source` is another main file around it.
    """
    key = hashlib.sha256(repr((source, flags)).encode())
    for file in (source, *sorted(EXECUTABLE_SOURCE.parent.glob("*.[ch]"))):
        key.update(file.read_bytes())
    directory = _shared() / key.hexdigest()[:16]
    directory.mkdir(exist_ok=True)
    path = directory / "calico"
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            fresh = directory / "fresh"
            subprocess.run(["cc", *flags, "-o", str(fresh), str(source)], check=True, cwd=ROOT)
            shutil.copy(fresh, directory / "calico-ipam")
            fresh.rename(path)
    return directory / name


def sanitized(name: str = "calico") -> Path:
    """The executable with AddressSanitizer and UndefinedBehaviorSanitizer."""
    return built(name, *SANITIZERS)


def hasty(name: str = "calico") -> Path:
    """The executable that does not wait for a daemon that restarts."""
    return built(name, *QUICK)


def lasting(name: str = "calico") -> Path:
    """The executable that waits for a daemon as long as it lives."""
    return built(name, *LASTING)


def short(name: str = "calico") -> Path:
    """The executable with deadlines of a second."""
    return built(name, *SHORT)


@functools.cache
def twin(name: str = "calico") -> Path:
    """The Python twin as installed."""
    directory = _directory() / "twin"
    install.install_binaries(directory, twin=True)
    return directory / name


@functools.cache
def short_twin(name: str = "calico", deadline: str = "1.0", retry: str = "0.02 * 1") -> Path:
    """The Python twin with deadlines of a second."""
    text = twin(name).read_text()
    for before, after in (
        ("DEADLINE = 60.0", f"DEADLINE = {deadline}"),
        ("RETRY = 1", f"RETRY = {retry}"),
    ):
        assert text.count(f"\n{before}") == 1
        text = text.replace(f"\n{before}", f"\n{after}")
    directory = _directory() / f"twin-{deadline}-{retry[:2]}"
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def impatient_twin(name: str = "calico") -> Path:
    """The Python twin that does not wait for a daemon that restarts."""
    return short_twin(name, "60.0")


def lasting_twin(name: str = "calico") -> Path:
    """The Python twin that waits for a daemon as long as it lives."""
    return short_twin(name, "60.0", "60 * 1")


@dataclass(frozen=True)
class Build:
    """One of the two that a runtime may find, in its variants."""

    label: str
    plugin: Callable[..., Path]
    short: Callable[..., Path]
    strict: Callable[..., Path]
    hasty: Callable[..., Path]
    lasting: Callable[..., Path]

    @property
    def is_twin(self) -> bool:
        """Whether it is the slow one: a process of it takes some 40 ms."""
        return self.label == "twin"

    def within(self, seconds: int, name: str = "calico") -> Path:
        """One that gives up after so many seconds."""
        if self.is_twin:
            return short_twin(name, f"{seconds}.0")
        return built(name, *QUICK, f"-DDEADLINE_MS={seconds}000")

    def some(self, many: Sequence[T], count: int) -> Sequence[T]:
        """All cases, or for the twin in the fast tier about `count` of them, spread evenly."""
        if not self.is_twin or FULL_SIZE or len(many) <= count:
            return many
        return many[:: len(many) // count]


BUILDS = (
    Build("executable", plugin, short, sanitized, hasty, lasting),
    Build("twin", twin, short_twin, impatient_twin, impatient_twin, lasting_twin),
)
FULL_SIZE = bool(os.environ.get("MUSLIN_FULL_SIZE"))
T = TypeVar("T")


@dataclass(frozen=True)
class Done:
    """How one call ended."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def error(self) -> dict[str, Any]:
        """The error object, after checking that the call failed as the specification says."""
        assert self.status == 1, (self.status, self.stdout, self.stderr)
        document = json.loads(self.stdout)
        assert (
            {"cniVersion", "code", "msg"}
            <= document.keys()
            <= {
                "cniVersion",
                "code",
                "msg",
                "details",
            }
        )
        assert type(document["code"]) is int
        assert "\n" not in document["msg"]
        assert self.stdout.endswith(b"}\n")
        return dict(document)


def call(
    path: Path,
    env: Mapping[str, str],
    stdin: bytes | str | Mapping[str, Any] = b"",
    timeout: float = HANG,
    **options: Any,
) -> Done:
    """Run the executable with exactly `env` and wait for it.

    What a pipe holds lies in it before: no answer depends on when this process comes to write.
    """
    if isinstance(stdin, Mapping):
        stdin = json.dumps(stdin)
    if isinstance(stdin, str):
        stdin = stdin.encode("utf-8", "surrogateescape")
    encoded = {os.fsencode(key): os.fsencode(value) for key, value in env.items()}
    encoded.setdefault(b"ASAN_OPTIONS", b"detect_leaks=0")
    options |= {"env": encoded, "timeout": timeout}
    with contextlib.ExitStack() as stack:
        if len(stdin) > PIPE:
            options |= {"input": stdin}
        else:
            reading, writing = os.pipe()
            stack.callback(os.close, reading)
            os.write(writing, stdin)
            os.close(writing)
            options |= {"stdin": reading}
        done = subprocess.run([path], capture_output=True, check=False, **options)
    stderr = done.stderr.decode(errors="replace")
    assert "Sanitizer" not in stderr, stderr
    assert "runtime error" not in stderr, stderr
    return Done(done.returncode, done.stdout, stderr)


def away_from_daemon(tmp_path: Path) -> dict[str, str]:
    """The environment of a call whose daemon is away, with a queue of its own."""
    return BASE | {
        "CNI_CALICO_SOCKET": str(tmp_path / "none.sock"),
        "CNI_CALICO_PENDING": str(tmp_path / "calico" / "cni" / "pending"),
    }


def pending(env: Mapping[str, str]) -> list[Path]:
    """What lies in the queue of a call."""
    directory = Path(env["CNI_CALICO_PENDING"])
    return sorted(directory.iterdir()) if directory.exists() else []


def config(**changes: Any) -> dict[str, Any]:
    """The usual configuration with some members changed."""
    return CONFIG | changes


Handler = Callable[[channel.Channel, protocol.Request, int | None], Awaitable[None]]


class Daemon:
    """A daemon that greets, receives the request and leaves the rest to `handler`.

    Runs in a thread with its own loop. `requests` and `failures` are for the test to look at.
    """

    def __init__(self, path: Path, handler: Handler, version: int = protocol.VERSION) -> None:
        self.path, self.handler, self.version = path, handler, version
        self.requests: list[protocol.Request] = []
        self.failures: list[BaseException] = []
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        listener = accepting.listen(self.path)
        task = asyncio.create_task(accepting.serve(listener, self._handle))
        self._started.set()
        await self._stop.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.path.unlink(missing_ok=True)

    async def _handle(self, connection: channel.Channel) -> None:
        try:
            await connection.send(protocol.Hello("daemon", self.version, "test"))
            greeting = await connection.receive()
            assert greeting is not None
            assert isinstance(greeting[0], protocol.Hello)
            assert greeting[0].process == "executable"
            received = await connection.receive()
            if received is None:
                return
            request, descriptor = received
            assert isinstance(request, protocol.Request)
            self.requests.append(request)
            try:
                await self.handler(connection, request, descriptor)
            finally:
                if descriptor is not None:
                    os.close(descriptor)
        except (OSError, asyncio.CancelledError):
            raise
        except BaseException as error:
            self.failures.append(error)
            raise

    def __enter__(self) -> Daemon:
        self._thread.start()
        assert self._started.wait(HANG)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(HANG)
        assert not self.failures, self.failures


async def accept(connection: channel.Channel, request: protocol.Request, _: int | None) -> None:
    """A handler that finds everything good."""
    await connection.send(protocol.Result(0, '{"accepted":true}\n'))
    await connection.receive()
