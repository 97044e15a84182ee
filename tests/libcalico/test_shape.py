"""Trees against struct types: all unknown fields and wrong types at once (SHAPE-1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico.model import KINDS
from libcalico.model.base.shape import shape_problems, shown
from libcalico.model.codec import resource_from_tree
from tests.size import examples


def fields(kind: str, tree: dict[str, Any]) -> dict[str, str]:
    return {one.field: one.rule for one in shape_problems(KINDS[kind].type, tree)}


def test_every_fault_has_its_path() -> None:
    tree = {
        "kind": "NetworkPolicy",
        "metadata": {"name": 5, "labels": {"a": None, 1: "x"}, "annotations": "none"},
        "spec": {
            "order": "1",
            "tier": None,
            "types": ["Ingress", 3, None],
            "ingress": [
                {"protocol": [], "source": {"ports": [80, 8.5], "services": "x", "net": "y"}},
                "Allow",
            ],
        },
        "more": {},
    }
    assert fields("NetworkPolicy", tree) == {
        "metadata.name": "must be text: put it in quotes",
        "metadata.labels[a]": "must not be null",
        "metadata.labels[1]": "the key must be text: put it in quotes",
        "metadata.annotations": "must be a mapping",
        "spec.order": "must be a whole number or a number",
        "spec.types[1]": "must be text: put it in quotes",
        "spec.types[2]": "must not be null",
        "spec.ingress[0].protocol": "must be a whole number or text",
        "spec.ingress[0].source.ports[1]": "must be a whole number or text",
        "spec.ingress[0].source.services": "must be a mapping of fields",
        "spec.ingress[0].source.net": "there is no such field",
        "spec.ingress[1]": "must be a mapping of fields",
        "more": "there is no such field",
    }


@pytest.mark.parametrize(
    ("value", "good"),
    [(1, True), ("65000", True), ("1.10", True), (True, False), ("x", False), (2**32, False)],
)
def test_as_numbers_may_be_text(value: Any, good: bool) -> None:
    tree = {"metadata": {"name": "a"}, "spec": {"bgp": {"asNumber": value}}}
    assert list(fields("Node", tree)) == ([] if good else ["spec.bgp.asNumber"])


def test_numbers_stay_in_64_bits() -> None:
    tree = {"metadata": {"name": "a"}, "spec": {"maxIpsetSize": 2**63, "vxlanMTU": True}}
    assert list(fields("FelixConfiguration", tree)) == ["spec.maxIpsetSize", "spec.vxlanMTU"]


def test_missing_and_null() -> None:
    assert fields("IPPool", {"metadata": {"name": "a"}}) == {"spec": "is required"}
    tree = {"metadata": {"name": "a"}, "spec": {"cidr": None, "nodeSelector": None}}
    assert fields("IPPool", tree) == {"spec.cidr": "is required"}


def test_values_are_shown_short() -> None:
    assert shown("x" * 100) == "x" * 77 + "..."
    assert shown({"a": 1}) == "..."
    assert shown(None) is None


leaf = st.none() | st.booleans() | st.integers(-3, 70000) | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_a_tree_without_problems_decodes(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    spec_type = next(
        field.type for field in msgspec.structs.fields(KINDS[kind].type) if field.name == "spec"
    )
    names = [field.encode_name for field in msgspec.structs.fields(spec_type)]
    chosen = data.draw(st.lists(st.sampled_from(names), max_size=4, unique=True))
    spec = {name: data.draw(values) for name in chosen}
    tree = {"kind": kind, "metadata": {"name": "a"}, "spec": {"cidr": "10.0.0.0/8", **spec}}
    if "cidr" not in names:
        del tree["spec"]["cidr"]  # type: ignore[attr-defined]
    if not shape_problems(KINDS[kind].type, tree):
        resource_from_tree(tree, strict=True)
