"""The table of all fields of the data model, and their effect in this release.

A field that is accepted and then ignored in silence misleads users. So each field of each kind
has a row: `enforced`, `in part`, `stored` (returned untouched, without effect, and reported to
the user who sets it) or `information` (it asks for nothing: status, names kept for others).
The rows are in `rows.py` and `felix.py`; libcalico/model/fields.py makes `docs/fields.md` of them.

Invariants (tests/libcalico/test_enforcement.py):
  ENF-1  Every field of every struct has a row, its own or that of the struct around it.
  ENF-2  A set field without effect is named, with its path and the reason; a value that asks
         for no more than what happens anyway is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from libcalico.model.base.meta import APIObject
from libcalico.model.base.overlay import item_struct, struct_fields
from libcalico.model.enforcement.states import Row, State
from libcalico.model.resources.rules import Rule

_UNSET = msgspec.NODEFAULT
INSTEAD = {
    "Allow": "this Allow rule matches nothing",
    "Pass": "this Pass rule denies what the rest of it matches",
    "Log": "this Log rule logs nothing",
}
"""The effect of a rule with a match that is not enforced: never wider than the rule."""


def not_enforced(resource: APIObject) -> list[tuple[str, str]]:
    """(field path, reason) of every field that a resource sets without effect."""
    return list(_walk(resource.kind, resource, "", "", ""))


def row_of(kind: str, path: str) -> Row | None:
    """The row of a field, such as `spec.ingress.source.nets`, or of the struct around it."""
    rows = table().get(kind, {})
    while path:
        if path in rows:
            return rows[path]
        path = path.rpartition(".")[0]
    return None


def felix_parameter(name: str) -> Row | None:
    """The row of a parameter of Felix's by its name in the environment, the file or the API."""
    field = _felix_fields().get(name.lower())
    return row_of("FelixConfiguration", f"spec.{field}") if field else None


@cache
def table() -> Mapping[str, Mapping[str, Row]]:
    """kind -> field path -> row, as written down."""
    from libcalico.model.enforcement.rows import METADATA, ROWS

    return {kind: {**METADATA, **rows} for kind, rows in ROWS.items()}


@cache
def _felix_fields() -> Mapping[str, str]:
    from libcalico.model.resources.felixconfig import FelixConfigurationSpec

    return {name.lower(): name for name in struct_fields(FelixConfigurationSpec)}


class _Field(msgspec.Struct, frozen=True):
    """A field that may lack its effect, itself or in a part."""

    attribute: str
    name: str
    pattern: str
    default: object
    row: Row | None
    descend: bool
    many: bool


@cache
def _fields(kind: str, class_: type[msgspec.Struct], pattern: str) -> tuple[_Field, ...]:
    """The fields of a struct that may lack their effect; most structs have few."""
    hints, defaults, fields = struct_fields(class_), _defaults(class_), []
    for attribute, name in zip(class_.__struct_fields__, hints, strict=True):
        below = f"{pattern}.{name}" if pattern else name
        row = table().get(kind, {}).get(below)
        inner, many = item_struct(hints[name])
        may_descend = inner is not None and (row is None or row.state is State.ENFORCED)
        descend = may_descend and bool(_fields(kind, inner, below))
        silent = row is None or row.state in (State.ENFORCED, State.INFORMATION)
        if descend or not silent:
            reported = None if silent else row
            fields.append(
                _Field(attribute, name, below, defaults[attribute], reported, descend, many)
            )
    return tuple(fields)


def _walk(
    kind: str, value: msgspec.Struct, pattern: str, path: str, action: str
) -> Iterator[tuple[str, str]]:
    action = getattr(value, "action", action) if isinstance(value, Rule) else action
    for field in _fields(kind, value.__class__, pattern):
        content = getattr(value, field.attribute)
        if content is None or content == field.default:
            continue
        where = f"{path}.{field.name}" if path else field.name
        row = field.row
        if row is not None and row.lacks(content, value):
            yield where, f"{row.why}; {_instead(action)}" if action else row.why
        if field.descend:
            for index, item in enumerate(content if field.many else [content]):
                item_path = f"{where}[{index}]" if field.many else where
                yield from _walk(kind, item, field.pattern, item_path, action)


def _instead(action: str) -> str:
    return INSTEAD.get(action, "this rule applies without that match")


@cache
def _defaults(type_: type[msgspec.Struct]) -> dict[str, object]:
    defaults = {}
    for field in msgspec.structs.fields(type_):
        factory = field.default_factory
        defaults[field.name] = factory() if factory is not _UNSET else field.default
    return defaults
