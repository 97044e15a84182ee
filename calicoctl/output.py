"""Resources as text: the shapes of `get -o`.

`yaml` and `json` print one object bare, a listing as a List object, several results as an
array; `ps`, `wide` and `custom-columns` print one table per result and an empty line; a Go
template gets the list of what was found. JSON keeps Go's field order and its escapes; YAML
sorts its keys. Neither shows fields that the model does not know, since `apply` would refuse
them on the way back.
Tested in `tests/calicoctl/test_commands.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from calicoctl import cells, columns, tabwriter
from calicoctl.listing.result import Result
from libcalico.datastore.interface import Entry
from libcalico.errors import MuslinError
from libcalico.model.base.meta import API_VERSION
from libcalico.model.codec import escaped, versioned_value

TABLES = ("ps", "wide")
PLAIN = (*TABLES, "yaml", "json")


class Shape(msgspec.Struct, frozen=True):
    """How resources are shown: `-o`, and what is asked of a table beside it."""

    style: str = "ps"
    namespaces: bool = False
    headers: bool = True
    age: bool = False
    export: bool = False


_EXPORTED_AWAY = (
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def shown_entry(entry: Entry) -> bytes:
    """The JSON of an entry: fields and metadata in the order of Calico's, `resourceVersion` too.

    Its text is not `escaped` yet.
    """
    version = str(entry.revision) if entry.revision else ""
    return versioned_value(entry.value, version)


def tree(entry: Entry, export: bool = False) -> dict[str, object]:
    """An entry as plain values in the order of Calico's JSON, `resourceVersion` filled in."""
    plain: dict[str, object] = msgspec.json.decode(shown_entry(entry))
    metadata = plain.get("metadata")
    if export and isinstance(metadata, dict):
        plain["metadata"] = {
            key: value for key, value in metadata.items() if key not in _EXPORTED_AWAY
        }
    return plain


def plain(results: Sequence[Result], export: bool) -> object:
    """One object bare, a listing as a List object, several results as a list."""
    shown: list[object] = []
    for result in results:
        trees = [tree(entry, export and not result.listing) for entry in result.entries]
        shown += [_list_object(result, trees)] if result.listing else trees
    return shown[0] if len(shown) == 1 else shown


def _list_object(result: Result, items: Sequence[object]) -> dict[str, object]:
    return {
        "kind": f"{result.kind}List",
        "apiVersion": API_VERSION,
        "metadata": {"resourceVersion": str(result.revision)},
        "items": items,
    }


def as_json(results: Sequence[Result], export: bool = False) -> str:
    """Two-space JSON, no newline at the end, as Go's `MarshalIndent`."""
    if len(results) == 1 and results[0].listing:
        # The usual case of much text: the bytes of each object as they are.
        items = [msgspec.Raw(shown_entry(entry)) for entry in results[0].entries]
        return json_text(_list_object(results[0], items))
    return json_text(plain(results, export))


def json_text(value: object) -> str:
    """Plain values as `as_json` writes them."""
    # The standard library's encoder is five times slower, as it indents in Python.
    return escaped(msgspec.json.format(msgspec.json.encode(value), indent=2)).decode()


def as_yaml(results: Sequence[Result], export: bool = False) -> str:
    """One YAML document."""
    from calicoctl import yamltext

    if len(results) == 1 and results[0].listing and results[0].entries:
        from calicoctl.listing.yamlwriter import YamlWriter

        # Sorted as its keys are: apiVersion, items, kind, metadata.
        frame = yamltext.dump(_list_object(results[0], []))
        before, after = frame.split("items: []\n")
        items = YamlWriter().items(tree(entry) for entry in results[0].entries)
        return "".join((before, "items:\n", *items, after))
    return yamltext.dump(plain(results, export))


def as_tables(results: Sequence[Result], shape: Shape, context: cells.Context) -> str:
    """A table for each result; raises `MuslinError` on unknown headings."""
    text = ""
    for result in results:
        headings, rows = table_of(result.kind, result.entries, shape, context)
        if shape.headers:
            text += tabwriter.render(headings, rows) + "\n"
        else:
            text += "".join(tabwriter.lines(rows, tabwriter.widths([headings, *rows])))
    return text


def table_of(
    kind: str, entries: Sequence[Entry], shape: Shape, context: cells.Context
) -> tuple[tuple[str, ...], list[list[str]]]:
    """Headings and rows of entries of one kind; raises `MuslinError` on unknown headings."""
    known = columns.TABLE[kind]
    if shape.style.startswith("custom-columns="):
        headings: tuple[str, ...] = tuple(shape.style.partition("=")[2].upper().split(","))
    else:
        headings = known.wide if shape.style == "wide" else known.ps
        if shape.namespaces and "NAMESPACE" in known.cells:
            headings = ("NAMESPACE", *headings)
    rows = columns.table(kind, [entry.value for entry in entries], headings, context)
    if not shape.age:
        return headings, rows
    from calicoctl.listing.age import ages

    aged = zip(rows, ages(entry.value.metadata.creationTimestamp for entry in entries), strict=True)
    return (*headings, "AGE"), [[*row, age] for row, age in aged]


class ListMetadata(msgspec.Struct, frozen=True):
    """metav1.ListMeta, as far as a listing has it."""

    resourceVersion: str


class ListObject(msgspec.Struct, frozen=True):
    """A whole kind as one object: what a template sees of `get KIND`."""

    kind: str
    apiVersion: str
    metadata: ListMetadata
    items: list[object]


def as_template(results: Sequence[Result], template: str, context: cells.Context) -> str:
    """What a Go template makes of the results; raises `MuslinError`."""
    from calicoctl import gotemplate

    shown: list[object] = []
    for result in results:
        values = [_versioned(entry) for entry in result.entries]
        if result.listing:
            metadata = ListMetadata(str(result.revision))
            values = [ListObject(f"{result.kind}List", API_VERSION, metadata, values)]
        shown += values

    def config(name: object) -> str:
        if str(name).lower() != "asnumber":
            raise MuslinError(f'template: config "{name}": only asnumber is known')
        return context.global_as

    return gotemplate.render(template, shown, {"config": config})


def _versioned(entry: Entry) -> object:
    metadata = replace(entry.value.metadata, resourceVersion=str(entry.revision))
    return replace(entry.value, metadata=metadata)
