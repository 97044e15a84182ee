"""One file per endpoint that is in force: Calico's own CNI plugin waits for these.

Names and content: libcalico/endpoint_files.py. Written when the endpoint comes into force, which
can wait for a moment. Removed at once when it is in force no more: who finds the file starts a pod.
Tested in tests/felix/test_status.py.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from felix.calc.endpoints import Endpoint
from libcalico.endpoint_files import content, file_name
from libcalico.model import ResourceKey

log = logging.getLogger(__name__)


class EndpointStatus:
    """Keeps the directory equal to the endpoints in force."""

    def __init__(self, prefix: str) -> None:
        self._prefix: str | None = None
        self._directory: Path | None = None
        self._written: dict[str, bytes] | None = None
        self._files: dict[ResourceKey, tuple[Endpoint, str, bytes]] = {}
        self.move(prefix)

    def move(self, prefix: str) -> None:
        """Keep the files under another directory from now on; those of the old one go."""
        if prefix != self._prefix:
            self.update(())
            self._prefix, self._written = prefix, None
            self._directory = Path(prefix) / "endpoint-status" if prefix else None

    def update(self, in_force: Iterable[Endpoint]) -> None:
        """Write and remove what differs. Trouble is logged; the next update tries again."""
        if self._directory is None:
            return
        told = [self._file(endpoint) for endpoint in in_force]
        self._files = {file[0].key: file for file in told}
        wanted = {name: data for _, name, data in told}
        try:
            if self._written is None:
                self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
                self._written = {p.name: p.read_bytes() for p in self._directory.iterdir()}
            for name in list(self._written.keys() - wanted.keys()):
                (self._directory / name).unlink(missing_ok=True)
                del self._written[name]
            for name, data in wanted.items():
                if self._written.get(name) != data:
                    self._write(self._directory / name, data)
                    self._written[name] = data
        except OSError as error:
            self._written = None
            log.warning("endpoint status files: %s", error)

    def remove(
        self, in_force: Mapping[ResourceKey, Endpoint], news: Collection[ResourceKey] | None
    ) -> None:
        """Of these endpoints (None: all) remove the files of those that are not in force any more,
        or not as the file says. Nothing is read, and nothing written.
        """
        for key in list(self._files if news is None else news):
            told, endpoint = self._files.get(key), in_force.get(key)
            if told is None or (endpoint is not None and self._file(endpoint)[1:] == told[1:]):
                continue
            del self._files[key]
            if self._directory is None or self._written is None:
                continue
            try:
                (self._directory / told[1]).unlink(missing_ok=True)
                self._written.pop(told[1], None)
            except OSError as error:
                self._written = None
                log.warning("endpoint status files: %s", error)

    def _file(self, endpoint: Endpoint) -> tuple[Endpoint, str, bytes]:
        """An endpoint's file: its name and what is in it. Most are as they were the last time."""
        known = self._files.get(endpoint.key)
        if known is not None and known[0] is endpoint:
            return known
        said = content(endpoint.interface, endpoint.mac, endpoint.networks)
        return endpoint, file_name(endpoint.identity), said

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        fresh = path.parent.parent / f".{path.name}.new"
        fresh.write_bytes(data)
        fresh.replace(path)
