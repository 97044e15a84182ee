"""One file per endpoint that is in force: Calico's own CNI plugin waits for these.

Names and content: libcalico/endpoint_files.py. A file is written when its endpoint comes into
force, perhaps a moment later. It is removed at once when the endpoint is no longer in force,
because Calico's plugin starts a pod as soon as it finds the file. When felix ends, no endpoint is
kept in force, so the files and their directory go.

Invariants:
  EPF-1  What keeps one file from being written or removed keeps no other from it.
  EPF-2  A felix that has ended in order leaves no file and no directory, so what is there speaks of
         a felix that runs, or of one that was killed and whose socket stays.
Tested in tests/felix/reports/test_status.py.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from felix.calc.endpoints import Endpoint
from libcalico.endpoint_files import content, file_name, too_long
from libcalico.model import ResourceKey

log = logging.getLogger(__name__)


class EndpointStatus:
    """Keeps the directory equal to the endpoints in force.

    A file that cannot be written stops no other (EPF-1); `problems` are (object, reason), each
    logged when it comes.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix: str | None = None
        self._directory: Path | None = None
        self._written: dict[str, bytes] | None = None
        self._files: dict[ResourceKey, tuple[Endpoint, str, bytes]] = {}
        self.problems: list[tuple[str, str]] = []
        self.again = False
        """Whether the next update may do what this one could not."""
        self.move(prefix)

    def move(self, prefix: str) -> None:
        """Keep the files under another directory from now on; remove those of the old one."""
        if prefix != self._prefix:
            self.update(())
            self._prefix, self._written = prefix, None
            self._directory = Path(prefix) / "endpoint-status" if prefix else None

    def update(self, in_force: Iterable[Endpoint]) -> None:
        """Write and remove what differs; the next update tries again what failed."""
        if self._directory is None:
            return
        files = [self._file(endpoint) for endpoint in in_force]
        self._files = {file[0].key: file for file in files}
        failed: dict[str, str] = {}
        try:
            written = self._read(self._directory)
        except OSError as error:
            self._note({str(self._directory): str(error)}, again=True)
            return
        names = {name for _, name, _ in files}
        for name in list(written.keys() - names):
            try:
                (self._directory / name).unlink(missing_ok=True)
                del written[name]
            except OSError as error:
                failed[name] = str(error)
        impossible: dict[str, str] = {}
        for endpoint, name, data in files:
            if written.get(name) == data:
                continue
            if reason := too_long(name):
                impossible[str(endpoint.key)] = reason
                continue
            try:
                self._write(self._directory / name, data)
                written[name] = data
            except OSError as error:
                failed[str(endpoint.key)] = str(error)
        self._note(failed | impossible, again=bool(failed))

    def close(self) -> None:
        """Remove the files and their directory, for felix ends (EPF-2)."""
        self._written = None
        self.update(())
        if self._directory is not None:
            with contextlib.suppress(OSError):  # a file that stays has been logged
                self._directory.rmdir()

    def _read(self, directory: Path) -> dict[str, bytes]:
        """The content of the files by name; the directory is read once."""
        if self._written is None:
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._written = {path.name: _content(path) for path in directory.iterdir()}
        return self._written

    def _note(self, failed: dict[str, str], *, again: bool) -> None:
        known = {name for name, _ in self.problems}
        for name, reason in failed.items():
            if name not in known:
                log.warning("no endpoint status file: %s", reason, extra={"object": name})
        self.problems = [(name, f"no endpoint status file: {why}") for name, why in failed.items()]
        self.again = again

    def remove(
        self, in_force: Mapping[ResourceKey, Endpoint], news: Collection[ResourceKey] | None
    ) -> None:
        """Remove the files of endpoints that are no longer in force, or not as the file says.

        `news` are the endpoints to look at (None: all). No file is read or written.
        """
        for key in list(self._files if news is None else news):
            file, endpoint = self._files.get(key), in_force.get(key)
            if file is None or (endpoint is not None and self._file(endpoint)[1:] == file[1:]):
                continue
            del self._files[key]
            if self._directory is None or self._written is None:
                continue
            try:
                (self._directory / file[1]).unlink(missing_ok=True)
                self._written.pop(file[1], None)
            except OSError as error:
                self._written = None
                self._note({file[1]: str(error)}, again=True)

    def _file(self, endpoint: Endpoint) -> tuple[Endpoint, str, bytes]:
        """An endpoint's file: its name and its content, kept while the endpoint is the same."""
        known = self._files.get(endpoint.key)
        if known is not None and known[0] is endpoint:
            return known
        said = content(endpoint.interface, endpoint.mac, endpoint.networks)
        return endpoint, file_name(endpoint.identity), said

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        # Not named after the endpoint: with a longest name there is no room for more.
        fresh = path.parent.parent / ".endpoint-status.new"
        fresh.write_bytes(data)
        fresh.replace(path)


def _content(path: Path) -> bytes:
    """The content of a file; empty if it cannot be read, so that it is written anew (EPF-1)."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
