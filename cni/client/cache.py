"""What a client remembers of each attachment: configuration, arguments, result.

One file `results/NETWORK-CONTAINER-INTERFACE` below the cache directory, 0600 in 0700, in the
form that every runtime's library writes (LIB-02), so that one tool can take down what another
put up. A DEL without it still works; a CHECK does not.
Tested in tests/cni_conformance/test_library.py.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from cni.request.errors import CNIError
from cni.request.result_decoding import decode
from cni.request.result_encoding import ResultDocument, as_document
from libcalico.errors import NO_DOCUMENT

KIND = "cniCacheV1"
DEFAULT = Path("/var/lib/cni")


class Cached(msgspec.Struct, omit_defaults=True):
    """One file; the names are the library's."""

    containerId: str
    ifName: str
    networkName: str
    config: bytes = b""
    """The whole list, in base64."""
    netns: str = ""
    cniArgs: list[tuple[str, str]] = []
    capabilityArgs: dict[str, object] = {}
    result: msgspec.Raw = msgspec.Raw()
    kind: str = ""


class Cache:
    """The files of one cache directory. Methods raise OSError."""

    def __init__(self, folder: Path = DEFAULT) -> None:
        self.folder = folder / "results"

    def path(self, network: str, container_id: str, ifname: str) -> Path:
        """Where one attachment is remembered."""
        return self.folder / f"{network}-{container_id}-{ifname}"

    def keep(self, entry: Cached) -> None:
        """Write or replace one."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.path(entry.networkName, entry.containerId, entry.ifName)
        fresh = self.folder / f".{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(entry))
        fresh.rename(path)

    def drop(self, network: str, container_id: str, ifname: str) -> None:
        """Forget one; fine when there is none."""
        self.path(network, container_id, ifname).unlink(missing_ok=True)

    def read(self, network: str, container_id: str, ifname: str) -> Cached | None:
        """What is remembered, None when nothing is or it cannot be read (LIB-03)."""
        return _decoded(self.path(network, container_id, ifname))

    def result(
        self, network: str, version: str, container_id: str, ifname: str
    ) -> ResultDocument | None:
        """The remembered result in `version`, None when there is none that can be read."""
        entry = self.read(network, container_id, ifname)
        if entry is None or not bytes(entry.result):
            return None
        try:
            return as_document(decode(bytes(entry.result), version), version)
        except CNIError:
            return None

    def of(self, network: str) -> list[Cached]:
        """All attachments of a network."""
        if not self.folder.is_dir():
            return []
        entries = [_decoded(path) for path in sorted(self.folder.iterdir())]
        return [entry for entry in entries if entry is not None and entry.networkName == network]


def _decoded(path: Path) -> Cached | None:
    if path.name.startswith("."):
        return None
    try:
        entry = msgspec.json.decode(path.read_bytes(), type=Cached)
    except (*NO_DOCUMENT, FileNotFoundError):
        return None
    return entry if entry.kind == KIND else None
