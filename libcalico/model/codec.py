"""Decodes stored bytes to typed values, and encodes them to the bytes that Calico v3.32 writes.

Calico writes with Go's `encoding/json`: compact, struct order, map keys sorted, `<`, `>`,
`&` and the two Unicode line separators escaped. The structs carry order and omission; this
file does the rest.

Invariants (tests/libcalico/test_codec.py):
  CODEC-1  decode then encode gives back the bytes of a document that v3.32 wrote.
  CODEC-2  Fields that we do not know survive a write over the document they were read from.
  CODEC-3  A value of the wrong type is refused with its path; null reads as absent, as in Go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from libcalico.errors import NO_DOCUMENT, InvalidValue
from libcalico.model.base.base import Struct
from libcalico.model.base.overlay import overlay
from libcalico.model.base.shape import UNKNOWN_FIELD, shape_problems, without_nulls
from libcalico.model.keys import (
    AffinityKey,
    BlockKey,
    FelixStatusKey,
    HandleKey,
    HostEndpointStatusKey,
    IPAMConfigKey,
    Key,
    LifeSignKey,
    ResourceKey,
    WorkloadStatusKey,
)
from libcalico.model.kinds import KINDS, Resource, kind_named
from libcalico.model.resources import affinity, policy
from libcalico.model.resources.ipam import Block, BlockAffinity, Handle, IPAMConfig
from libcalico.model.resources.policy import GlobalNetworkPolicy, NetworkPolicy
from libcalico.model.resources.staged import StagedGlobalNetworkPolicy, StagedNetworkPolicy
from libcalico.model.resources.status import EndpointStatus, FelixStatus, LifeSign

_TIERED = (
    NetworkPolicy,
    GlobalNetworkPolicy,
    StagedNetworkPolicy,
    StagedGlobalNetworkPolicy,
)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_PLAIN_TYPES: dict[type, type[Struct]] = {
    BlockKey: Block,
    AffinityKey: BlockAffinity,
    HandleKey: Handle,
    IPAMConfigKey: IPAMConfig,
    FelixStatusKey: FelixStatus,
    LifeSignKey: LifeSign,
    WorkloadStatusKey: EndpointStatus,
    HostEndpointStatusKey: EndpointStatus,
}
_AT = re.compile(r"(?s)^(.*?) - at `(?:key in )?\$\.?(.*)`$")


@cache
def _decoder(type_: type[Struct]) -> msgspec.json.Decoder[Struct]:
    return msgspec.json.Decoder(type_)


def type_of(key: Key) -> type[Struct]:
    """The struct type that a key's value has. Raises UnsupportedKind."""
    if isinstance(key, ResourceKey):
        return KINDS[key.kind].type if key.kind in KINDS else kind_named(key.kind).type
    return _PLAIN_TYPES[type(key)]


def decode_value(key: Key, raw: bytes) -> Any:
    """The typed value of stored bytes. Raises InvalidValue naming the path."""
    value = _decode(key, raw)
    if isinstance(value, _TIERED):
        return policy.shown(value, key.name if isinstance(key, ResourceKey) else "")
    return value


def _decode(key: Key, raw: bytes) -> Struct:
    type_ = type_of(key)
    try:
        return _decoder(type_).decode(raw)
    except msgspec.ValidationError:
        return _decode_lenient(str(key), type_, raw)
    except NO_DOCUMENT as problem:
        if not raw.strip() and isinstance(key, AffinityKey):
            return BlockAffinity(state="")
        raise not_json(str(key), raw, problem) from None


def encode_value(key: Key, value: Struct, base: bytes | None = None) -> bytes:
    """The bytes to store for `value`; `base` are the bytes that it was read from (CODEC-2)."""
    if isinstance(value, _TIERED):
        value = policy.stored(value)
    elif isinstance(value, affinity.BlockAffinityResource):
        value = affinity.stored(value)
    fresh = _encode(value)
    if base is not None:
        fresh = overlay(type_of(key), fresh, base)
    return escaped(fresh)


def shown_value(value: Struct) -> bytes:
    """The JSON of a resource for users, without the fields of the datastore alone."""
    return escaped(_encode(value))


def versioned_value(value: Struct, version: str) -> bytes:
    """The same with this `resourceVersion`, and not `escaped` yet: there may be thousands."""
    return _encode(value, version)


def resource_from_tree(tree: Mapping[str, object], *, strict: bool = False) -> Resource:
    """A resource from parsed YAML or JSON; its kind decides the type.

    With `strict`, fields that the type does not have are refused (`calicoctl`). Raises
    InvalidValue or UnsupportedKind.
    """
    word = tree.get("kind")
    if not isinstance(word, str) or not word:
        raise InvalidValue("kind", word, "must name a resource kind")
    kind = kind_named(word)
    metadata = tree.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    subject = f"{kind.name}({name})"
    cleaned = {field: without_nulls(value) for field, value in tree.items() if value is not None}
    if strict:
        for problem in shape_problems(kind.type, cleaned):
            if problem.rule == UNKNOWN_FIELD:
                raise InvalidValue(problem.field, "...", f"{kind.name} has no such field", subject)
    try:
        value: Resource = msgspec.convert({**cleaned, "kind": kind.name}, kind.type)
    except msgspec.ValidationError as error:
        raise _invalid(subject, error, tree) from None
    return value


def _encode(value: Struct, version: str = "") -> bytes:
    metadata = getattr(value, "metadata", None)
    if metadata is not None and (metadata.resourceVersion != version or metadata.selfLink):
        shown = msgspec.structs.replace(metadata, resourceVersion=version, selfLink="")
        value = msgspec.structs.replace(value, metadata=shown)
    return _ENCODER.encode(value)


_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def escaped(raw: bytes) -> bytes:
    """JSON with the characters escaped that Go escapes."""
    # Inside JSON these characters occur in strings only, so a plain replacement is right.
    for plain, escaped in _ESCAPES:
        if plain in raw:
            raw = raw.replace(plain, escaped)
    return raw


def _decode_lenient(subject: str, type_: type[Struct], raw: bytes) -> Struct:
    # The strict decoder stops at the first wrong type, before it has seen the rest.
    try:
        tree = without_nulls(msgspec.json.decode(raw))
    except NO_DOCUMENT as problem:
        raise not_json(subject, raw, problem) from None
    try:
        return msgspec.convert(tree, type_)
    except msgspec.ValidationError as problem:
        raise _invalid(subject, problem, tree) from None


def _invalid(subject: str, problem: msgspec.ValidationError, tree: object) -> InvalidValue:
    text = str(problem)
    match = _AT.match(text)
    rule, path = (match[1], match[2]) if match else (text, "")
    return InvalidValue(path or "$", _at(tree, path), rule[:1].lower() + rule[1:], subject)


def _at(tree: object, path: str) -> object:
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(tree, Mapping):
            tree = tree.get(step)
        elif isinstance(tree, list) and step.isdigit() and int(step) < len(tree):
            tree = tree[int(step)]
        else:
            return None
    return tree if isinstance(tree, (str, int, float, bool, type(None))) else "..."


def not_json(subject: str, raw: bytes, problem: Exception) -> InvalidValue:
    """The error for stored bytes that are no document; it names their beginning."""
    text = raw[:60].decode(errors="replace")
    shown = text + "..." if len(raw) > 60 else text
    return InvalidValue("$", shown, f"must be JSON: {problem}", subject)
