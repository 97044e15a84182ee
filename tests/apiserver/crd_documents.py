"""Documents for our definitions: valid ones of the golden tables, and others made of them."""

from __future__ import annotations

import copy
import json
import random
import types
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from libcalico.crds.schema import FIELDS
from libcalico.crds.table import DEFINITIONS, GROUP
from libcalico.model.base.overlay import item_struct
from libcalico.model.codec import resource_from_tree, shown_value
from libcalico.model.defaults import apply_defaults
from libcalico.model.kinds import KINDS
from libcalico.model.resources import affinity
from libcalico.model.resources.affinity import BlockAffinityResource
from libcalico.model.validation.validate import problems
from tests.libcalico.golden_data import documents, older
from tests.libcalico.test_invalid_documents import TAKEN

STORED_AS = {"IPAMConfiguration": "IPAMConfig"}
TEXTS = (
    "",
    "all()",
    "a == 'b' && has(c)",
    "10.0.0.0/8",
    "10.0.0.1",
    "fd00::/64",
    "fd00::1",
    "::ffff:1.2.3.4",
    "eth0",
    "eth*",
    "a.b-c",
    "1m30s",
    "-5s",
    "-0s",
    "1.5h",
    ".5ms",
    "0",
    "65000:1",
    "1:2:3",
    "TCP",
    "6",
    "http",
    "1000:2000",
    "65000",
    "1.10",
    "iNfO",
    "/a/b",
    "EF",
)
NUMBERS = (0, 1, -1, 4, 6, 20, 26, 32, 64, 128, 250, 254, 1000, 65535, 65536, 2**31 - 1, 2**32 - 1)


@cache
def _valid() -> tuple[str, ...]:
    found = []
    rows = [row.raw for row in documents()]
    rows += [raw for _, _, *both in older() for raw in both]
    rows += [json.dumps(yaml.safe_load(case.text)).encode() for case in TAKEN]
    for raw in rows:
        tree = json.loads(raw)
        if tree.get("kind") not in KINDS:
            continue
        value = apply_defaults(resource_from_tree(tree))
        if not problems(value):
            found.append(shown_value(value).decode())
    return tuple(found)


def valid_trees() -> list[dict[str, Any]]:
    """Every valid document there is, as our codec writes it."""
    return [json.loads(text) for text in _valid()]


def path_of(tree: dict[str, Any]) -> str | None:
    """Where such an object is created; None where Kubernetes' own objects stand for it."""
    kind = STORED_AS.get(tree["kind"], tree["kind"])
    for one in DEFINITIONS:
        if one.kind == kind:
            space = (tree.get("metadata") or {}).get("namespace", "default")
            middle = f"namespaces/{space}/" if one.namespaced else ""
            return f"/apis/{GROUP}/v1/{middle}{one.plural}"
    return None


def body(tree: dict[str, Any]) -> dict[str, Any]:
    """The document as it lies in Kubernetes: its spec is the same."""
    kind = tree["kind"]
    if kind == "BlockAffinity":
        try:
            value = resource_from_tree(tree)
        except Exception:
            return {**tree, "apiVersion": f"{GROUP}/v1"}
        assert isinstance(value, BlockAffinityResource)
        tree = {**tree, "spec": msgspec.to_builtins(affinity.stored(value))["spec"]}
    kept = ("name", "labels", "annotations")
    metadata = {k: v for k, v in (tree.get("metadata") or {}).items() if k in kept}
    kind = STORED_AS.get(kind, kind)
    return {**tree, "kind": kind, "apiVersion": f"{GROUP}/v1", "metadata": metadata}


def mutated(tree: dict[str, Any], luck: random.Random) -> dict[str, Any]:
    """The document with one to three fields of its spec changed, added or taken away."""
    found = copy.deepcopy(tree)
    for _ in range(luck.randint(1, 3)):
        type_, at = _spec(found)
        while True:
            hints = get_type_hints(type_, include_extras=True)
            field = luck.choice(msgspec.structs.fields(type_))
            name, hint = field.encode_name, hints[field.name]
            inner, many = item_struct(hint)
            below = at.get(name)
            if inner is not None and below and luck.random() < 0.7:
                type_, at = inner, luck.choice(below) if many else below
                continue
            if name in at and not field.required and luck.random() < 0.3:
                del at[name]
            else:
                at[name] = _value(hint, FIELDS.get(type_, {}).get(field.name, {}), luck)
            break
    return found


def _spec(tree: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    type_ = get_type_hints(KINDS[tree["kind"]].type)["spec"]
    return type_, tree.setdefault("spec", {})


def _value(type_: Any, piece: Any, luck: random.Random) -> Any:
    origin = get_origin(type_)
    if origin is Annotated:
        return _value(get_args(type_)[0], piece, luck)
    if origin in (Union, types.UnionType):
        members = [one for one in get_args(type_) if one is not type(None)]
        return _value(luck.choice(members), piece, luck)
    if origin is list:
        inner = get_args(type_)[0]
        items = piece.get("items", {})
        return [_value(inner, items, luck) for _ in range(luck.randint(0, 2))]
    if origin is dict:
        return {name: _value(get_args(type_)[1], {}, luck) for name in luck.sample(["a", "b.c"], 1)}
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return _struct(type_, luck)
    if type_ is bool:
        return luck.random() < 0.5
    if type_ in (int, float):
        edges = [piece[name] for name in ("minimum", "maximum") if name in piece]
        return luck.choice([*NUMBERS, *edges, *edges, *edges])
    return luck.choice([*TEXTS, *piece.get("enum", ()), *piece.get("enum", ())])


def _struct(type_: Any, luck: random.Random) -> dict[str, Any]:
    hints = get_type_hints(type_, include_extras=True)
    table = FIELDS.get(type_, {})
    return {
        field.encode_name: _value(hints[field.name], table.get(field.name, {}), luck)
        for field in msgspec.structs.fields(type_)
        if field.required or table.get(field.name, {}).get("required") or luck.random() < 0.3
    }
