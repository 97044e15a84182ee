"""CODEC-1 and CODEC-2 for every kind and IPAM value, on values and members made up at random."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest

from libcalico.datastore.etcd.keys import key_of_path
from libcalico.model import KINDS, BGPFilter, BlockAffinityResource, ResourceKey
from libcalico.model.base.overlay import item_struct, struct_fields
from libcalico.model.codec import decode_value, encode_value, resource_from_tree, shown_value
from tests.libcalico.golden_data import Golden, compact, documents

NEW = {"zebra": [1.5, {"b": 1, "a": None}], "text": "<&>"}


@pytest.mark.parametrize("golden", documents(), ids=lambda one: f"{one.name}-{len(one.raw)}")
def test_members_of_a_newer_release_survive_in_every_struct(golden: Golden) -> None:
    key = key_of_path(golden.key)
    assert key is not None
    value = decode_value(key, golden.raw)
    newer = compact(_with_new(type(value), json.loads(golden.raw)))
    assert encode_value(key, decode_value(key, newer), newer) == newer


def _with_new(type_: Any, tree: Any) -> Any:
    if isinstance(tree, list):
        return [_with_new(type_, item) for item in tree]
    hints = struct_fields(type_)
    extended = {}
    for name, value in tree.items():
        inner, _ = item_struct(hints[name])
        extended[name] = _with_new(inner, value) if inner is not None and value else value
    return extended | {"aNewMember": NEW}


TEXTS = ("", "a", "<&>", "é\u2028", '"\\', "\x00\x1f")
PLAIN: dict[Any, Callable[[random.Random], Any]] = {
    bool: lambda dice: dice.random() < 0.5,
    int: lambda dice: dice.choice((0, 1, 7, 2**32 - 1)),
    float: lambda dice: dice.choice((0, -1.25, 1000, 1e-9, 2**40)),
    type(None): lambda dice: None,
    Any: lambda dice: dice.choice((None, 1, [1.5], {"b": 1, "a": 2})),
}
SPECIAL: dict[str, Callable[[random.Random], Any]] = {
    "BGPFilterRule.asPathPrefix": lambda dice: [1, "2", "1.1"],
    "BGPFilterPrependASPath.prefix": lambda dice: [1],
    "EntityRule.ports": lambda dice: [80, "http", "1:2"],
    "BlockAffinitySpec.deleted": lambda dice: dice.random() < 0.5,
    "NodeBGPSpec.asNumber": lambda dice: dice.choice((None, 0, "65000")),
    "BGPPeerSpec.asNumber": lambda dice: dice.choice((0, "65000", "1.10")),
    "BGPPeerSpec.localASNumber": lambda dice: dice.choice((None, 0, 5)),
    "BGPConfigurationSpec.asNumber": lambda dice: dice.choice((None, 0, 5)),
    "Metadata.annotations": lambda dice: {"k": "v"},
}
SEEDS = range(60)


def _tree(type_: Any, dice: random.Random) -> dict[str, Any]:
    """A document of a struct type; about half of its members are there."""
    tree = {}
    for name, hint in struct_fields(type_).items():
        if name not in ("kind", "apiVersion", "resourceVersion", "selfLink"):
            special = SPECIAL.get(f"{type_.__name__}.{name}")
            if dice.random() < 0.5 or name in ("metadata", "spec", "cidr"):
                tree[name] = special(dice) if special is not None else _value(hint, dice)
    return tree


def _value(hint: Any, dice: random.Random) -> Any:
    if get_origin(hint) in (Union, UnionType):
        return _value(dice.choice(get_args(hint)), dice)
    if get_origin(hint) is list:
        return [_value(get_args(hint)[0], dice) for _ in range(dice.randrange(3))]
    if get_origin(hint) is dict:
        inner = get_args(hint)[1]
        return {dice.choice(TEXTS): _value(inner, dice) for _ in range(dice.randrange(3))}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _tree(hint, dice)
    return PLAIN[hint](dice) if hint in PLAIN else dice.choice(TEXTS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_any_value_comes_back_as_it_was(kind: str) -> None:
    for seed in SEEDS:
        tree = _tree(KINDS[kind].type, random.Random(seed))
        tree["metadata"] |= {"name": "n", "namespace": "ns"}
        value = resource_from_tree({"kind": kind, **tree})
        key = ResourceKey(kind, "n", "ns")
        raw = encode_value(key, value)
        again = decode_value(key, raw)
        assert encode_value(key, again) == raw, tree
        assert encode_value(key, again, raw) == raw, tree
        # What is shown is what was given: an operator can apply it again.
        shown = resource_from_tree(json.loads(shown_value(again)))
        assert encode_value(key, shown) == raw, tree


def test_the_affinity_is_shown_with_a_boolean_and_stored_with_text() -> None:
    tree = {"kind": "BlockAffinity", "metadata": {"name": "b"}, "spec": {"deleted": False}}
    value = resource_from_tree(tree)
    assert isinstance(value, BlockAffinityResource)
    assert value.spec.deleted is False
    assert json.loads(shown_value(value))["spec"]["deleted"] is False
    assert b'"deleted":"false"' in encode_value(ResourceKey("BlockAffinity", "b"), value)


def test_as_numbers_of_filters_are_numbers() -> None:
    rule = {"action": "Accept", "asPathPrefix": ["1.1", 7]}
    value = resource_from_tree(
        {"kind": "BGPFilter", "metadata": {"name": "f"}, "spec": {"importV4": [rule]}}
    )
    assert isinstance(value, BGPFilter)
    assert value.spec.importV4[0].asPathPrefix == [65537, 7]
