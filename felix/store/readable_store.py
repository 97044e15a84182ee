"""`/var/lib/calico/felix/last-readable`: the last readable version of each document of policy.

One file, for root only, one record a line: appended to in a thread soon after something changed,
synced once for all of it, and written anew when most of it is outdated. Nothing waits for it. The
first line names the cluster; of another cluster nothing is believed. A line that cannot be read is
said and left out, and the whole file where others could have written it.

Invariant RDS-1: what the file says of an object is a version that the datastore once had.
Tested in tests/felix/store/test_readable_store.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path

from felix.calc.last_readable import Remembered
from felix.store import readable_records
from felix.store.readable_records import Line
from libcalico.errors import InvalidValue
from libcalico.model import ResourceKey, codec
from libcalico.process import paths

PAUSE = 0.2
"""Seconds for which changes are gathered."""
AGAIN = 10.0
"""Seconds after which a write that failed is tried again."""
SLACK = 1 << 20
"""Bytes of outdated records that are always allowed."""

log = logging.getLogger(__name__)


class ReadableStore:
    """The file. `open` reads it, `believe` names the cluster it must be of, `run` writes it."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or paths.LAST_READABLE
        self._cluster: str | None = None
        self._stored_cluster: str | None = None
        self._marks: dict[ResourceKey, tuple[int, int]] = {}
        self._queue: dict[ResourceKey, Line] = {}
        self._wake = asyncio.Event()
        self._opened = self._foreign = self._writing = False
        self._anew = True
        self._size = self._live = 0
        self._one = threading.Lock()
        self.problem = ""

    @property
    def known(self) -> list[ResourceKey]:
        """The objects that the file has, or will have."""
        return list(self._marks)

    @property
    def waiting(self) -> bool:
        """Whether anything is not on the disk yet."""
        return bool(self._queue) or self._writing or (self._anew and self._cluster is not None)

    async def open(self) -> None:
        """Read the file; trouble is said, and counts as an empty file."""
        await asyncio.to_thread(self._open)
        self._opened = True

    def keep(self, key: ResourceKey, revision: int, raw: bytes) -> None:
        """This is the last readable version of an object; written later, if it is another one.

        Before `open` nothing is kept.
        """
        if not self._opened:
            return
        mark = (revision, zlib.crc32(raw))
        if self._marks.get(key) == mark:
            return
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return
        self._put(Line(key.kind, key.namespace, key.name, *mark, text), mark)

    def forget(self, key: ResourceKey) -> None:
        """Forget an object."""
        if key in self._marks:
            self._put(Line(key.kind, key.namespace, key.name, 0, 0, ""), None)

    def has_other(self, key: ResourceKey, revision: int, raw: bytes) -> bool:
        """Whether the file has a version of the object, and another one than this."""
        return self._marks.get(key, mark := (revision, zlib.crc32(raw))) != mark

    def believe(self, cluster: str) -> None:
        """Of this cluster the datastore is. What the file has of another one is not recalled;
        what the datastore itself does not have, its reader forgets.
        """
        if self._stored_cluster != cluster:
            self._foreign = self._stored_cluster is not None
            self._anew = True
            if self._foreign:
                log.warning("%s is of another cluster: not believed", self._path)
        self._cluster = cluster
        self._wake.set()

    async def recall(self, keys: Iterable[ResourceKey]) -> dict[ResourceKey, Remembered]:
        """What the file has of these objects; before anything is written."""
        known = frozenset() if self._foreign else frozenset(keys) & self._marks.keys()
        return await asyncio.to_thread(self._recall, known) if known else {}

    async def run(self) -> None:
        """Write what changed, until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(PAUSE)
            self._wake.clear()
            if self._cluster is None:
                continue
            taken, self._queue = self._queue, {}
            self._writing = True
            try:
                await asyncio.to_thread(self._write, taken, self._cluster)
            except OSError as error:
                self._queue = taken | self._queue
                self._anew = True
                self._trouble(f"cannot be written, a restart may lose what is in force: {error}")
                await asyncio.sleep(AGAIN)
                self._wake.set()
            except BaseException:
                self._queue = taken | self._queue
                raise
            else:
                self.problem = ""
            finally:
                self._writing = False

    def close(self) -> None:
        """Write what waits, now: the process ends."""
        if self._queue and self._cluster is not None:
            taken, self._queue = self._queue, {}
            try:
                self._write(taken, self._cluster)
            except OSError as error:
                self._trouble(f"cannot be written: {error}")

    def conditions(self) -> list[tuple[str, str]]:
        """What an operator must know."""
        return [(str(self._path), self.problem)] if self.problem else []

    def _put(self, line: Line, mark: tuple[int, int] | None) -> None:
        key = line.key
        if mark is None:
            del self._marks[key]
        else:
            self._marks[key] = mark
        self._queue[key] = line
        if self._cluster is not None:
            self._wake.set()

    def _trouble(self, text: str) -> None:
        if text != self.problem:
            self.problem = text
            log.warning("%s: %s", self._path, text)

    # -- in a thread, one at a time ---------------------------------------------------------------

    def _open(self) -> None:
        self._marks = {key: (line.revision, line.check) for key, line in self._read().items()}
        self._live = self._size

    def _read(self) -> dict[ResourceKey, Line]:
        """The last record of each object; none of an unbelievable file."""
        self._anew, self._stored_cluster, self._size = True, None, 0
        try:
            records = readable_records.read(self._path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s cannot be used, it is made anew: %s", self._path, error)
            return {}
        if records.bad:
            log.warning("%s: %d records cannot be read: left out", self._path, records.bad)
        self._stored_cluster, self._anew, self._size = (
            records.cluster,
            bool(records.bad),
            records.size,
        )
        return records.lines

    def _recall(self, keys: frozenset[ResourceKey]) -> dict[ResourceKey, Remembered]:
        remembered = {}
        for key, line in self._read().items():
            if key in keys:
                try:
                    value = codec.decode_value(key, line.raw.encode())
                except (InvalidValue, ValueError, RecursionError) as error:
                    log.warning("%s: left out: %s", self._path, error, extra={"object": str(key)})
                    continue
                remembered[key] = Remembered(line.revision, value)
        return remembered

    def _write(self, taken: dict[ResourceKey, Line], cluster: str) -> None:
        # A write that its task no longer waits for goes on.
        with self._one:
            self._written(taken, cluster)

    def _written(self, taken: dict[ResourceKey, Line], cluster: str) -> None:
        if not (self._anew or self._size > 2 * self._live + SLACK):
            self._size += readable_records.append(self._path, taken.values())
            return
        lines = self._read() | taken
        live = [line for line in lines.values() if line.raw]
        self._live = self._size = readable_records.replace(self._path, cluster, live)
        self._stored_cluster, self._anew = cluster, False
