"""A struct type as a structural schema (apiextensions.k8s.io/v1). Pure.

The types give the shape; the tables `fields`, `parameters` and `cel` add the validators' rules.
The API server prunes fields that no struct has, as with Calico's own definitions, and `kubectl`
names them. In the specs that machines write (`OPEN`) such fields stay.
Tested in tests/libcalico/test_crds.py.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from libcalico.crds import cel, cluster_policies, fields, parameters, pieces
from libcalico.crds.pieces import Piece
from libcalico.crds.stored import BlockAffinitySpec, IPAMBlockSpec, IPAMHandleSpec
from libcalico.model.base.meta import Condition, Duration

Schema = dict[str, Any]
FIELDS: dict[type, dict[str, Piece]] = {
    **fields.TABLE,
    **parameters.TABLE,
    **cluster_policies.TABLE,
}
OPEN = (IPAMBlockSpec, IPAMHandleSpec, BlockAffinitySpec)
"""Machines alone write these: fields of a newer release must survive an older definition."""

_PLAIN: dict[object, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
}


def schema_of(type_: type[msgspec.Struct]) -> Schema:
    """The schema of a struct type. Raises TypeError for a field of no known shape."""
    hints = get_type_hints(type_, include_extras=True)
    known = FIELDS.get(type_, {})
    unknown = set(known) - {field.name for field in msgspec.structs.fields(type_)}
    if unknown:
        raise TypeError(f"{type_.__name__} has no fields {sorted(unknown)}")
    properties: Schema = {}
    required = []
    for field in msgspec.structs.fields(type_):
        piece = dict(known.get(field.name, {}))
        if piece.pop("required", False) or field.required:
            required.append(field.encode_name)
        member = _laid_over(_schema(hints[field.name]), piece)
        if _written_as_null(field):
            member["nullable"] = True
        properties[field.encode_name] = member
    schema: Schema = {"type": "object", "description": described(type_), "properties": properties}
    if required:
        schema["required"] = required
    if type_ in OPEN:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    rules = cel.RULES.get(type_)
    if rules:
        schema["x-kubernetes-validations"] = [rule.as_schema() for rule in rules]
    return schema


def _schema(type_: object) -> Schema:
    if type_ == Duration:
        return {"type": "string", **pieces.DURATION}
    origin = get_origin(type_)
    if origin is Annotated:
        return _schema(get_args(type_)[0])
    if origin in (Union, types.UnionType):
        return _union([member for member in get_args(type_) if member is not type(None)], type_)
    if origin is list:
        return {"type": "array", "items": _item(get_args(type_)[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(get_args(type_)[1])}
    if type_ is Condition:
        return _condition()
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return schema_of(type_)
    if type_ not in _PLAIN:
        raise TypeError(f"no schema for {type_}")
    return dict(_PLAIN[type_])


def _item(type_: object) -> Schema:
    schema = _schema(type_)
    if type(None) in get_args(type_):
        schema["nullable"] = True
    return schema


def _union(members: list[object], type_: object) -> Schema:
    if len(members) == 1:
        return _schema(members[0])
    if set(members) == {int, float}:
        return {"type": "number"}
    if set(members) == {int, str}:
        return {"x-kubernetes-int-or-string": True}
    raise TypeError(f"no schema for {type_}")


def _condition() -> Schema:
    schema = schema_of(Condition)
    schema["properties"]["lastTransitionTime"]["format"] = "date-time"
    return schema


def _written_as_null(field: msgspec.structs.FieldInfo) -> bool:
    """Whether we write the field as null where it has no value, as Go does (`always(None)`)."""
    factory = field.default_factory
    return factory is not msgspec.NODEFAULT and factory() is None


def _laid_over(schema: Schema, piece: Piece) -> Schema:
    merged = dict(schema)
    for name, value in piece.items():
        if name == "items" and isinstance(value, Mapping):
            merged["items"] = _laid_over(merged["items"], value)
        else:
            merged[name] = value
    if merged.get("x-kubernetes-int-or-string"):
        merged.pop("type", None)
        merged.pop("format", None)
    return merged


def described(type_: type) -> str:
    """The first paragraph of the struct's docstring."""
    paragraph = (type_.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split())
