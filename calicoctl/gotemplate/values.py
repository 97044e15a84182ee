"""How Go's templates see our values: fields by Go's names, truth, and text.

A field of a Go struct is the JSON name with other capitals (`.Spec.CIDR`, `.ObjectMeta`), so
it is found in any letter case; the fields of the metadata are the object's own
(`.Name`), as with an embedded struct. A value that is not set prints `<nil>`, a key that a
map lacks `<no value>`.
Tested in tests/calicoctl/test_gotemplate.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from calicoctl.cells import go_text
from calicoctl.gotemplate.nodes import TemplateError


class NoValue:
    """What a map answers for a key that it lacks."""

    def __bool__(self) -> bool:
        return False


NO_VALUE = NoValue()
_OTHER_NAMES = {"objectmeta": "metadata", "listmeta": "metadata"}


_KNOWN: dict[type, dict[str, str]] = {}


def _fields(type_: type) -> dict[str, str]:
    if type_ not in _KNOWN:
        _KNOWN[type_] = _names(type_)
    return _KNOWN[type_]


def _names(type_: type) -> dict[str, str]:
    if issubclass(type_, msgspec.Struct):
        names: tuple[str, ...] = type_.__struct_fields__
    elif dataclasses.is_dataclass(type_):
        names = tuple(field.name for field in dataclasses.fields(type_))
    else:
        names = ()
    return {name.lower(): name for name in names}


def field(value: object, name: str) -> object:
    """`value.name`; raises `TemplateError` where Go's template stops too."""
    if isinstance(value, Mapping):
        return value.get(name, NO_VALUE)
    if value is None:
        raise TemplateError(f"template: nil pointer evaluating .{name}")
    if value is NO_VALUE:
        return NO_VALUE
    known = _fields(type(value))
    lowered = name.lower()
    attribute = known.get(lowered) or known.get(_OTHER_NAMES.get(lowered, ""))
    if attribute:
        return getattr(value, attribute)
    metadata = getattr(value, "metadata", None) if "metadata" in known else None
    if lowered in _fields(type(metadata)):
        return getattr(metadata, _fields(type(metadata))[lowered])
    raise TemplateError(
        f"template: can't evaluate field {name} in {type(value).__name__};"
        f" its fields: {', '.join(known.values()) or 'none'}"
    )


def truth(value: object) -> bool:
    """Whether `if` takes a value for true: not zero, not empty, not unset; a struct always."""
    if isinstance(value, (msgspec.Struct, bool)):
        return bool(value) if isinstance(value, bool) else True
    return bool(value)


def text(value: object) -> str:
    """A value as Go prints it with `%v`."""
    if value is NO_VALUE:
        return "<no value>"
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(text(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{text(value[key])}" for key in sorted(value)) + "]"
    if _fields(type(value)):
        inside = (getattr(value, name) for name in _fields(type(value)).values())
        return "{" + " ".join(text(item) for item in inside) + "}"
    return go_text(value)
