"""DELs that wait for the datastore: a small journal on disk.

A DEL must succeed for the runtime even while the datastore is away, or the pod hangs in
"terminating". What is local is removed at once; what has to be released in the datastore is
remembered here and done later, also after a reboot. The executable writes the same files when
the daemon itself is away (`cni.socket.protocol`, "PendingDelete").

Invariants (tests/cni/test_felix_client.py, tests/cni/test_daemon_faults.py):
  CNI-17  A record is on the disk (fsync of file and directory) before the DEL is answered.
  CNI-18  A record goes only after its release is committed; replaying one twice is harmless.
  CNI-19  The record of an ADD is replayed until `LATE_SECONDS` after its first success, also when
          DELs come meanwhile: a transaction that a hanging datastore swallowed may still be applied
          when it wakes up.
  CNI-22  Replaying never ends: a record that fails, for any reason, waits for its next turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import msgspec

from cni.request.errors import CNIError
from cni.request.request import Command, Request
from cni.socket import protocol
from cni.socket.trace import PENDING
from libcalico.errors import DatastoreUnavailable, MuslinError
from libcalico.process.backoff import Backoff
from linux.errors import KernelError

log = logging.getLogger(__name__)

RESCAN_SECONDS = 10.0
LATE_SECONDS = 20.0
UNFINISHED_SECONDS = 60.0
Replay = Callable[[protocol.PendingDelete, Path], Awaitable[None]]
"""Releases what a record names, unless its file is gone when it gets its turn."""


class DelQueue:
    """The records below one directory."""

    def __init__(
        self,
        directory: Path,
        replay: Replay,
        containers_changed: Callable[[Collection[str]], None] = lambda containers: None,
    ) -> None:
        """`containers_changed` gets, after each pass, the containers whose release still waits."""
        self._directory, self._replay = directory, replay
        self._containers_changed = containers_changed
        self._directory_text = f"{directory}/"
        self._wake = asyncio.Event()
        self._released_at: dict[str, float] = {}
        self._unfinished: dict[str, float] = {}
        self._stopped_at = ""

    def path_of(self, request: Request) -> Path:
        """Where the record of a request's attachment is."""
        return self._directory / _name_of(request)

    def holds(self, request: Request) -> bool:
        """Whether a release of this attachment is outstanding."""
        return os.path.exists(self._directory_text + _name_of(request))

    def record(self, request: Request) -> None:
        """Remember that this attachment is to be released. Blocks for an fsync; raises OSError.

        `request` is a DEL, or an ADD whose outcome is unknown. The record of an ADD stands for
        its DEL too (CNI-19).
        """
        target = self.path_of(request)
        if request.command is not Command.ADD and _is_of_add(target):
            return
        self._released_at.pop(target.name, None)
        env = dict(request.env)
        content = protocol.PendingDelete(
            protocol.VERSION, request.plugin, env, request.stdin, int(time.time())
        )
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.{os.getpid()}.{time.monotonic_ns()}")
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(content))
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(target)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def wake(self) -> None:
        """Replay soon: there is a record."""
        self._wake.set()

    def released(self, request: Request) -> None:
        """Remove the record of a released attachment, unless it is an ADD's (CNI-19)."""
        path = self.path_of(request)
        if not _is_of_add(path):
            path.unlink(missing_ok=True)

    def drop(self, request: Request) -> None:
        """Remove the record: the attachment is owned anew, and no earlier attempt can count."""
        name = _name_of(request)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._directory_text + name)
        self._released_at.pop(name, None)

    def count(self) -> int:
        """How many records wait."""
        return len(self._records())

    def _records(self) -> list[Path]:
        try:
            paths = sorted(self._directory.iterdir())
        except FileNotFoundError:
            return []
        return [path for path in paths if path.suffix == ".json" and path.name[0] != "."]

    def sweep(self) -> None:
        """Remove unfinished files of writers that are gone."""
        # By how long they were seen: the wall clock may jump while one is written.
        now = time.monotonic()
        with contextlib.suppress(FileNotFoundError):
            names = [path.name for path in self._directory.iterdir() if path.name[0] == "."]
            self._unfinished = {name: self._unfinished.get(name, now) for name in names}
            for name, since in self._unfinished.items():
                if now - since > UNFINISHED_SECONDS:
                    (self._directory / name).unlink(missing_ok=True)

    async def replay_all(self) -> bool:
        """Try every record once, while the datastore answers; False if one is left.

        The next pass begins behind the record that ended this one, so none keeps others back.
        """
        complete = True
        stopped_at, self._stopped_at = self._stopped_at, ""
        for path in sorted(self._records(), key=lambda p: (p.name <= stopped_at, p.name)):
            try:
                done = await self._replay_one(path)
            except (DatastoreUnavailable, TimeoutError) as error:
                log.info("DELs still wait: %s", str(error) or "timeout", extra={"at": path.name})
                self._stopped_at = path.name
                complete = False
                break
            except (MuslinError, KernelError, OSError) as error:
                log.info("a DEL still waits: %s", error, extra={"record": path.name})
                done = False
            except Exception:
                log.exception("a DEL failed unexpectedly", extra={"record": path.name})
                done = False
            complete = complete and done
        PENDING.set(self.count())
        self._containers_changed(set() if complete else self._containers())
        return complete

    def _containers(self) -> set[str]:
        """The containers of all records that are no late ADD's."""
        containers = set()
        for path in self._records():
            with contextlib.suppress(OSError, protocol.ProtocolError):
                data = _read(path)
                if data is not None and path.name not in self._released_at:
                    containers.add(protocol.decode_pending(data).env.get("CNI_CONTAINERID", ""))
        return containers - {""}

    async def _replay_one(self, path: Path) -> bool:
        data = _read(path)
        if data is None:
            return True
        try:
            record = protocol.decode_pending(data)
            await self._replay(record, path)
        except (protocol.ProtocolError, CNIError) as error:
            if isinstance(error, CNIError) and error.code == 11:
                raise
            log.error("a queued DEL is unusable, set aside: %s", error)
            path.rename(path.with_suffix(".bad"))
            return True
        if _read(path) != data:
            return not path.exists()  # another call wrote its own meanwhile
        if _command(record) == Command.ADD:
            now = time.monotonic()
            if now - self._released_at.setdefault(path.name, now) < LATE_SECONDS:
                return True
        path.unlink(missing_ok=True)
        self._released_at.pop(path.name, None)
        log.info("a remembered DEL is done", extra={"record": path.name})
        return True

    async def run(self) -> None:
        """Replay with back-off until cancelled; looks for new files now and then."""
        backoff = Backoff(initial=0.2, maximum=RESCAN_SECONDS)
        while True:
            self._wake.clear()
            try:
                self.sweep()
                complete = await self.replay_all()
            except OSError as error:
                log.error("the journal cannot be read: %s", error)
                complete = False
            if complete:
                backoff.reset()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RESCAN_SECONDS):
                        await self._wake.wait()
            else:
                await backoff.wait()


def _name_of(request: Request) -> str:
    return protocol.pending_name(
        request.plugin, request.config.name, request.container_id, request.ifname
    )


def _read(path: Path) -> bytes | None:
    """A record's bytes, None if there is none. Raises OSError, for a symbolic link too."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(protocol.MAX_FRAME)


def _command(record: protocol.PendingDelete) -> str:
    return record.env.get("CNI_COMMAND", "")


def _is_of_add(path: Path) -> bool:
    """Whether a readable record stands there that an ADD left (CNI-19)."""
    try:
        data = _read(path)
        return data is not None and _command(protocol.decode_pending(data)) == Command.ADD
    except (OSError, protocol.ProtocolError):
        return False
