"""One `tar.gz` that only its owner can read: everything passes the redactor on its way in.

Invariants:
  DIAG-2  What could not be had is named in `index.json` with the reason; it ends nothing.
  DIAG-3  The archive appears under its name when it is complete; nothing unredacted is on disk.
Tested in tests/calicoctl/test_diags.py.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import time
from pathlib import Path
from typing import Literal

from calicoctl.diags.redact import Redactor

MOST_BYTES = 20 * 1024 * 1024
"""Of one file; of a longer one the end is kept, where the trouble is."""

Form = Literal["text", "document"]


class Archive:
    """An archive being written. `unpacked`: a folder that gets the same files, or None."""

    def __init__(
        self, path: Path, root: str, redactor: Redactor, unpacked: Path | None = None
    ) -> None:
        self.path, self.redactor = path, redactor
        self._root, self._unpacked = root, unpacked
        self._fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
        descriptor = os.open(self._fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")  # noqa: SIM115
        self._index: list[dict[str, object]] = []
        self._names: set[str] = set()

    def add(self, name: str, content: str | bytes, form: Form = "text", source: str = "") -> None:
        """Put a file in, redacted. `source` is the command or file that it came from."""
        text = content.decode(errors="replace") if isinstance(content, bytes) else content
        cut = len(text) > MOST_BYTES
        if cut:
            # From the next whole line on: half a line may be half a secret.
            text = text[-MOST_BYTES:].partition("\n")[2]
        clean = self.redactor.document(text) if form == "document" else self.redactor.text(text)
        name = self._free(re.sub(r"[^\w./:@+-]", "_", self.redactor.known(name)).lstrip("/"))
        self._write(name, clean.encode())
        redacted = self.redactor.text(source)
        self._index.append(
            {
                "name": name,
                "source": redacted,
                "bytes": len(clean),
                **({"cut": True} if cut else {}),
            }
        )

    def missing(self, name: str, why: str, source: str = "") -> None:
        """Name something that could not be had (DIAG-2)."""
        clean = self.redactor.text
        self._index.append({"name": name, "source": clean(source), "error": clean(why)})

    def errors(self) -> list[tuple[str, str]]:
        """(name, reason) of everything that is missing."""
        return [(str(one["name"]), str(one["error"])) for one in self._index if "error" in one]

    def finish(self, about: dict[str, object]) -> Path:
        """Write the index and give the archive its name."""
        index = self.redactor.tree({**about, "files": self._index})
        self._write("index.json", json.dumps(index, indent=2).encode())
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._fresh.replace(self.path)
        return self.path

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self._fresh.unlink(missing_ok=True)

    def _free(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self._names:
            number += 1
            candidate = f"{name}.{number}"
        self._names.add(candidate)
        return candidate

    def _write(self, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(f"{self._root}/{name}")
        entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
        self._tar.addfile(entry, io.BytesIO(content))
        if self._unpacked is not None:
            place = self._unpacked / name
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            place.write_bytes(content)


def stamp() -> str:
    """The time for a file's name: `20261121_201500`."""
    return time.strftime("%Y%m%d_%H%M%S", time.gmtime())
