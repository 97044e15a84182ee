"""Every kind and every IPAM value, with every field, against documents written by hand.

The documents are not made by our encoder: they follow Calico's reference, so an order or
an omission that is wrong shows. CODEC-1 for what v3.32 stores; what 3.26 to 3.31 stored is
read and written back as v3.32 would.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from libcalico.datastore.etcd.keys import key_of_path, path_of
from libcalico.datastore.interface import Put, Selection
from libcalico.model import KINDS, Block, BlockAffinity, Handle, IPAMConfig
from libcalico.model.base.overlay import item_struct, struct_fields
from libcalico.model.codec import decode_value, encode_value, resource_from_tree
from libcalico.model.defaults import apply_defaults
from tests.libcalico.golden_data import Golden, documents, older
from tests.support.etcd import Etcd

DOCUMENTS = documents()
IPAM: dict[str, Any] = {
    "Block": Block,
    "Affinity": BlockAffinity,
    "Handle": Handle,
    "IPAMConfig": IPAMConfig,
}
NEVER_STORED = {"Metadata.resourceVersion", "Metadata.selfLink", "Block.hostAffinity"}
"""The last one is only read, from very old data: `older.json` has it."""


def names(golden: Golden) -> str:
    return f"{golden.name}-{golden.key.rpartition('/')[2]}"


@pytest.mark.parametrize("golden", DOCUMENTS, ids=names)
def test_a_document_of_calicos_comes_back_byte_for_byte(golden: Golden) -> None:
    key = key_of_path(golden.key)
    assert key is not None
    assert path_of(key) == golden.key
    value = decode_value(key, golden.raw)
    assert encode_value(key, value) == golden.raw
    assert encode_value(key, value, golden.raw) == golden.raw


@pytest.mark.parametrize("golden", [one for one in DOCUMENTS if one.name not in IPAM], ids=names)
def test_the_same_document_applied_by_an_operator_is_stored_with_the_same_bytes(
    golden: Golden,
) -> None:
    resource = resource_from_tree(json.loads(golden.raw), strict=True)
    key = key_of_path(golden.key)
    assert key is not None
    assert encode_value(key, resource) == golden.raw


@pytest.mark.parametrize(
    ("key_text", "stored", "written"),
    [pytest.param(key, old, new, id=why[:60]) for why, key, old, new in older()],
)
def test_what_older_releases_stored_is_written_back_as_today(
    key_text: str, stored: bytes, written: bytes
) -> None:
    key = key_of_path(key_text)
    assert key is not None
    assert encode_value(key, decode_value(key, stored)) == written


def test_every_kind_and_every_field_stands_in_a_document() -> None:
    assert {one.name for one in DOCUMENTS} == set(KINDS) | set(IPAM)
    types = {**{name: kind.type for name, kind in KINDS.items()}, **IPAM}
    fields: set[tuple[Any, str]] = set()
    for type_ in types.values():
        fields |= _fields(type_)
    shown: set[tuple[Any, str]] = set()
    for one in DOCUMENTS:
        shown |= _shown(types[one.name], json.loads(one.raw))
    missing = {f"{type_.__name__}.{name}" for type_, name in fields - shown}
    assert missing == NEVER_STORED


@pytest.mark.parametrize("golden", [one for one in DOCUMENTS if one.name not in IPAM], ids=names)
def test_defaults_are_idempotent(golden: Golden) -> None:
    key = key_of_path(golden.key)
    assert key is not None
    once = apply_defaults(decode_value(key, golden.raw))
    assert apply_defaults(once) == once


def _fields(type_: Any) -> set[tuple[Any, str]]:
    """All fields of a struct type and of the structs inside."""
    fields = set()
    for name, hint in struct_fields(type_).items():
        fields.add((type_, name))
        inner, _ = item_struct(hint)
        if inner is not None:
            fields |= _fields(inner)
    return fields


def _shown(type_: Any, tree: Any) -> set[tuple[Any, str]]:
    """The fields among them that a document sets."""
    if isinstance(tree, list):
        return set().union(*(_shown(type_, item) for item in tree))
    if not isinstance(tree, dict):
        return set()
    hints = struct_fields(type_)
    fields = set()
    for name, value in tree.items():
        assert name in hints, f"{type_.__name__} has no field {name}"
        fields.add((type_, name))
        inner, _ = item_struct(hints[name])
        if inner is not None:
            fields |= _shown(inner, value)
    return fields


@pytest.mark.asyncio
async def test_etcd_holds_the_same_bytes_after_a_read_and_a_write(etcd: Etcd) -> None:
    """The whole way: etcd, client, types, and back, for every document."""
    async with etcd.connect() as store:
        for golden in DOCUMENTS:
            etcd.put(golden.key, golden.raw)
            key = key_of_path(golden.key)
            assert key is not None
            entry = await store.get(key)
            assert entry is not None
            await store.commit([Put(key, entry.value, entry.revision, entry)])
            assert etcd.get(golden.key) == golden.raw
        for kind in KINDS.values():
            listed = (await store.list(Selection(kind.family))).entries
            keys = {path_of(entry.key) for entry in listed}
            assert keys >= {one.key for one in DOCUMENTS if one.name == kind.name}
