"""From files to resources: every document checked before the first one is written.

A document passes four gates: YAML or JSON syntax, a kind that we serve, fields that the
kind has, and values of the right type. All complaints about all documents are made at once,
each with the file, the line and the field path. Documents of the first generation (apiVersion v1)
become v3 documents first (`libcalico.legacy`). Lists (`List`, `IPPoolList`, a top-level
sequence) are opened up.
Tested in `tests/calicoctl/test_documents.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from calicoctl import aliases
from libcalico import yamltext
from libcalico.errors import InvalidValue, MuslinError, UnsupportedKind
from libcalico.model.base.meta import API_VERSION, LEGACY_VERSION
from libcalico.model.base.shape import UNKNOWN_FIELD, shape_problems
from libcalico.model.codec import resource_from_tree
from libcalico.model.kinds import KINDS, Resource

LIST_FIELDS = frozenset({"kind", "apiVersion", "metadata", "items"})
SUFFIXES = frozenset({".json", ".yaml", ".yml"})


class InputDocument(msgspec.Struct, frozen=True):
    """One resource as the operator wrote it: typed, with the text it came from."""

    kind: str
    resource: Resource
    source: str
    text: yamltext.Document
    path: str = ""
    legacy: bool = False
    """Whether it was written for the first generation (apiVersion v1)."""

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
    files = path.rglob("*") if recursive else path.iterdir()
    return sorted(str(file) for file in files if file.suffix in SUFFIXES and file.is_file())


def load_files(filename: str, recursive: bool = False) -> list[InputDocument]:
    """All resources of `-f FILENAME`; raises `MuslinError` for what cannot be read."""
    documents: list[InputDocument] = []
    bad: list[MuslinError] = []
    for source, text in read_texts(filename, recursive):
        try:
            documents += load_text(text, source)
        except MuslinError as error:
            bad.append(error)
    _refuse(bad)
    return documents


def _refuse(bad: Sequence[MuslinError]) -> None:
    """Raise what was found wrong, a line for each resource; return when nothing was."""
    if len(bad) == 1:
        raise bad[0]
    if bad:
        raise MuslinError("\n".join(str(error) for error in bad))


def read_texts(filename: str, recursive: bool = False) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every file of `-f FILENAME`; raises `MuslinError`."""
    for file in files_of(filename, recursive):
        yield "standard input" if file == "-" else file, _read(file)


def text_of(raw: bytes, source: str) -> str:
    """The text of a file's bytes; raises `MuslinError` with the line that is none."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise MuslinError(f"{source}: line {line}: must be text in UTF-8") from None


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise MuslinError(f"cannot read {file}: {error.strerror}") from None


def load_text(text: str | bytes, source: str) -> list[InputDocument]:
    """All resources of one text; raises `MuslinError` that names every one that is wrong."""
    documents: list[InputDocument] = []
    bad: list[MuslinError] = []
    for document in yamltext.load(text, source, is_json=source.endswith(".json")):
        for one in opened(document.value, ""):
            try:
                if one.problem:
                    where = f"{source}: line {document.line_of(one.path)}"
                    raise MuslinError(f"{where}: {one.problem}")
                documents.append(resource_of(one.value, one.path, document, source))
            except MuslinError as error:
                bad.append(error)
    _refuse(bad)
    return documents


class Single(msgspec.Struct, frozen=True):
    """What stands at one path of a document: a resource, or what is wrong with a list there."""

    value: object
    path: str
    problem: str = ""


def opened(value: object, path: str) -> Iterator[Single]:
    """The single resources in a document: lists of all shapes opened up. Pure."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from opened(item, f"{path}[{index}]")
        return
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or not kind.endswith("List"):
        yield Single(value, path)
        return
    for field, problem in _of_list(value, kind):
        yield Single(value, inside(path, field), f"{kind}: {problem}")
    items = value.get("items")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        where = f"{path}.items[{index}]".lstrip(".")
        if isinstance(item, dict) and kind != "List":
            # Items of a typed list may leave out what the list says already.
            item = {"kind": kind[:-4], "apiVersion": value.get("apiVersion")} | item
            if item["kind"] != kind[:-4]:
                rule = f"an item of {kind} is an {kind[:-4]}"
                yield Single(item, where, f"kind: {item['kind']!r} is not valid: {rule}")
                continue
        yield from opened(item, where)


def _of_list(value: dict[str, object], kind: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a list itself: field and problem."""
    if value.get("apiVersion") == API_VERSION and kind != "List" and kind[:-4] not in KINDS:
        yield "kind", f"kind: {kind!r} is not valid: the kind of the items, with List behind it"
    for field in value:
        if field not in LIST_FIELDS:
            yield field, f"unknown field '{field}'"
    if not isinstance(value.get("items"), list | None):
        yield "items", "items: must be a list"


def resource_of(
    value: object, path: str, document: yamltext.Document, source: str
) -> InputDocument:
    """One resource, typed; raises `MuslinError` that names every bad field with file and line."""
    place = f"{source}: line {document.line_of(path)}"
    if not isinstance(value, dict):
        raise MuslinError(f"{place}: a resource must be a mapping with kind, metadata and spec")
    origin = _Origin(path, document, source)
    old = value.get("apiVersion") == LEGACY_VERSION
    if old:
        value = _from_legacy(value, place, origin)
    kind = _kind(value, place)
    label = f"{kind}({_name_in(value)})"
    origin.refuse(shape_problems(KINDS[kind].type, value, label), kind)
    try:
        resource = resource_from_tree(value | {"kind": kind})
    except InvalidValue as error:
        origin.refuse([error])
        raise
    return InputDocument(kind, resource, source, document, path, old)


class _Origin(msgspec.Struct, frozen=True):
    """Where a resource stands, so that a complaint about a field can say the line."""

    path: str
    document: yamltext.Document
    source: str

    def refuse(self, errors: Sequence[InvalidValue], kind: str = "") -> None:
        """Raise one error that names all of them; return when there are none.

        `kind`: whose fields they are, where an unknown one may be another misspelled.
        """
        if errors:
            raise MuslinError("; ".join(self._error_text(one, kind) for one in errors))

    def _error_text(self, one: InvalidValue, kind: str) -> str:
        where = f"{self.source}: line {self.document.line_of(inside(self.path, one.field))}"
        if one.rule == UNKNOWN_FIELD:
            from calicoctl.terminal import suggesting

            meant = suggesting.of_field(KINDS[kind].type, one.field) if kind else ""
            return f"{where}: {one.subject}: unknown field '{one.field}'{meant}"
        return f"{where}: {one}"


def _from_legacy(value: dict[str, object], place: str, origin: _Origin) -> dict[str, object]:
    from libcalico.legacy import convert_document, legacy_problems  # few documents are old

    try:
        origin.refuse(legacy_problems(value))
        return convert_document(value)[0]
    except UnsupportedKind as error:
        raise UnsupportedKind(f"{place}: {error}") from None
    except InvalidValue as error:
        origin.refuse([error])
        raise


def _kind(value: dict[str, object], place: str) -> str:
    written, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(written, str) or not written:
        raise MuslinError(f"{place}: kind: no kind is given; it names the type, such as IPPool")
    if version != API_VERSION:
        raise InvalidValue("apiVersion", version, f"must be {API_VERSION}", f"{place}: {written}")
    try:
        kind = aliases.kind_of(written, plural=False)
    except UnsupportedKind as error:
        raise UnsupportedKind(f"{place}: {error}") from None
    if written != kind:
        # The command line takes `ippools` and `pool`; in a document Calico's knows the one name.
        raise InvalidValue("kind", written, f"write {kind}", place)
    return kind


def _name_in(value: dict[str, object]) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def inside(path: str, field: str) -> str:
    """The path of a field of the resource that stands at `path` of its document."""
    field = field.removeprefix("$.").removeprefix("$")
    return f"{path}.{field}" if path and field else path or field
