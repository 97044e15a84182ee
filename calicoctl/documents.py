"""From files to resources: every document checked before the first one is written.

A document passes four gates: YAML or JSON syntax, a kind that we serve, fields that the
kind has, and values of the right type. Each complaint names the file, the line
and the field path. Lists (`List`, `IPPoolList`, a top-level sequence) are opened up.
Tested in `tests/calicoctl/test_documents.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calicoctl import aliases, yamltext
from libcalico.errors import InvalidValue, MuslinError, UnsupportedKind
from libcalico.model.codec import resource_from_tree, unknown_fields
from libcalico.model.kinds import KINDS
from libcalico.model.meta import API_VERSION

SUFFIXES = frozenset({".json", ".yaml", ".yml"})


@dataclass(frozen=True, slots=True)
class InputDocument:
    """One resource as the operator wrote it: typed, with the text it came from."""

    kind: str
    resource: Any
    source: str
    text: yamltext.Document
    path: str = ""

    @property
    def name(self) -> str:
        """The resource's name."""
        return str(self.resource.metadata.name)

    def place(self, field: str = "") -> str:
        """File and line of a field such as `spec.cidr`, or of the whole resource."""
        return f"{self.source}: line {self.text.line_of(inside(self.path, field))}"


def files_of(filename: str, recursive: bool) -> list[str]:
    """The files that `-f FILENAME` means: itself, `-`, or a directory's YAML and JSON files."""
    path = Path(filename)
    if filename == "-" or not path.is_dir():
        return [filename]
    found = path.rglob("*") if recursive else path.iterdir()
    return sorted(str(file) for file in found if file.suffix in SUFFIXES and file.is_file())


def load_files(filename: str, recursive: bool = False) -> list[InputDocument]:
    """All resources of `-f FILENAME`; raises `MuslinError` for what cannot be read."""
    documents: list[InputDocument] = []
    for source, text in read_texts(filename, recursive):
        documents += load_text(text, source)
    return documents


def read_texts(filename: str, recursive: bool = False) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every file of `-f FILENAME`; raises `MuslinError`."""
    for file in files_of(filename, recursive):
        yield "standard input" if file == "-" else file, _read(file)


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise MuslinError(f"cannot read {file}: {error.strerror}") from None


def load_text(text: str | bytes, source: str) -> list[InputDocument]:
    """All resources of one text."""
    return [
        resource_of(value, path, document, source)
        for document in yamltext.load(text, source)
        for value, path in opened(document.value, "")
    ]


def opened(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """The single resources in a document and their paths: lists of all shapes opened up."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from opened(item, f"{path}[{index}]")
        return
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            # Items of a typed list may leave out what the list says already.
            if isinstance(item, dict) and kind != "List":
                item = {"kind": kind[:-4], "apiVersion": value.get("apiVersion")} | item
            yield from opened(item, f"{path}.items[{index}]".lstrip("."))
        return
    yield value, path


def resource_of(value: Any, path: str, document: yamltext.Document, source: str) -> InputDocument:
    """One resource, typed; raises `MuslinError` that names file, line and field."""
    place = f"{source}: line {document.line_of(path)}"
    if not isinstance(value, dict):
        raise MuslinError(f"{place}: a resource must be a mapping with kind, metadata and spec")
    kind = _kind(value, place)
    label = f"{kind}({_name_in(value)})"
    _refuse_unknown(value, path, kind, label, document, source)
    try:
        resource = resource_from_tree(value | {"kind": kind})
    except InvalidValue as error:
        below = inside(path, error.field)
        where = f"{source}: line {document.line_of(below)}: {label}"
        raise InvalidValue(error.field, error.value, error.rule, where) from None
    return InputDocument(kind, resource, source, document, path)


def _kind(value: dict[str, Any], place: str) -> str:
    written, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(written, str) or not written:
        raise MuslinError(f"{place}: kind: no kind is given; it names the type, such as IPPool")
    if version == "v1":
        raise UnsupportedKind(
            f"{place}: {written} of apiVersion v1: only {API_VERSION} is served by this release"
        )
    if version != API_VERSION:
        raise InvalidValue("apiVersion", version, f"must be {API_VERSION}", f"{place}: {written}")
    try:
        return aliases.kind_of(written)
    except UnsupportedKind as error:
        raise UnsupportedKind(f"{place}: {error}") from None


def _name_in(value: dict[str, Any]) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _refuse_unknown(
    value: dict[str, Any],
    path: str,
    kind: str,
    label: str,
    document: yamltext.Document,
    source: str,
) -> None:
    complaints = []
    for field in unknown_fields(KINDS[kind].type, value):
        line = document.line_of(inside(path, field))
        complaints.append(f"{source}: line {line}: {label}: unknown field '{field}'")
    if complaints:
        raise MuslinError("; ".join(complaints))


def inside(path: str, field: str) -> str:
    """The path of a field of the resource that stands at `path` of its document."""
    field = field.removeprefix("$.").removeprefix("$")
    return f"{path}.{field}" if path and field else path or field
