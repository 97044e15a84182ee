"""What the processes of a node say of themselves: their three status files, wherever they came by.

Tested in tests/web/test_words.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from calicoctl.node import processes
from calicoctl.node.processes import Process
from libcalico.errors import InvalidValue
from libcalico.process import paths, status_file
from web.cleaning import cleaned_document

ROOMS = ("felix", "bgp", "cni")
FILES = "status files"
AGGREGATOR = "aggregator"


@dataclass(frozen=True, slots=True)
class Word:
    """The word of one node. `source`: FILES or AGGREGATOR; `error`: why there is none."""

    node: str
    felix: Process
    bgp: Process
    cni: Process
    source: str = FILES
    error: str = ""

    @property
    def processes(self) -> tuple[Process, ...]:
        """The three, in the order in which they depend on each other."""
        return self.felix, self.bgp, self.cni

    @property
    def conditions(self) -> list[tuple[str, str, str]]:
        """(process, object, reason) of what the running processes complain about."""
        return [
            (one.name, str(each.get("object", "")), str(each.get("reason", "")))
            for one in self.processes
            if one.running
            for each in one.objects("conditions")
        ]


def of_documents(
    node: str, documents: Mapping[str, Mapping[str, object] | None], now: datetime, source: str
) -> Word:
    """The word of a node from its status documents by room (`felix`, `bgp`, `cni`)."""
    felix, bgp, cni = (
        processes.judged(f"calico-{room}", cleaned_document(documents.get(room)), now)
        for room in ROOMS
    )
    return Word(node, felix, bgp, cni, source)


def silent(node: str, error: str) -> Word:
    """The word of a node that was asked and did not answer."""
    felix, bgp, cni = (Process(f"calico-{room}", False, {}) for room in ROOMS)
    return Word(node, felix, bgp, cni, AGGREGATOR, error)


def of_folders(folders: Mapping[str, Path], now: datetime) -> dict[str, Word]:
    """The words of the nodes whose status files lie in these folders."""
    result: dict[str, Word] = {}
    for node, folder in folders.items():
        documents = {room: status_file.read(room, folder) for room in ROOMS}
        if any(documents.values()):
            result[node] = of_documents(node, documents, now, FILES)
    return result


def folders_of(options: Iterable[str]) -> dict[str, Path]:
    """The folders that `--status NODE=FOLDER` names, and this machine's own where it is a node.

    Raises InvalidValue for an option without a name or a folder.
    """
    folders: dict[str, Path] = {}
    try:
        folders[paths.NODENAME.read_text().strip()] = paths.STATUS
    except (OSError, UnicodeError):
        pass
    for text in options:
        node, equal, folder = text.partition("=")
        if not (node and equal and folder):
            raise InvalidValue("--status", text, "NODE=FOLDER")
        if not Path(folder).is_dir():
            raise InvalidValue("--status", text, "FOLDER must be a folder that can be read")
        folders[node] = Path(folder)
    return folders
