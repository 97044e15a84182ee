"""Whom policies mean: texts as the reference's table has them, and meaning against a model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.errors import InvalidValue
from libcalico.model import (
    EntityRule,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    Metadata,
    NetworkPolicy,
    NetworkPolicySpec,
    ServiceAccountMatch,
)
from libcalico.policy_selectors import entity_selector, policy_selector
from libcalico.selectors.selectors import parse

NS = "projectcalico.org/namespace"
SA = "projectcalico.org/serviceaccount"


def policy(**spec: Any) -> NetworkPolicy:
    metadata = Metadata(name="p", namespace="shop")
    return NetworkPolicy(metadata=metadata, spec=NetworkPolicySpec(**spec))


def everywhere(**spec: Any) -> GlobalNetworkPolicy:
    metadata = Metadata(name="p")
    return GlobalNetworkPolicy(metadata=metadata, spec=GlobalNetworkPolicySpec(**spec))


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (policy(), f"{NS} == 'shop'"),
        (policy(selector="a=='b'"), f"(a=='b') && {NS} == 'shop'"),
        (policy(selector="all()"), f"(all()) && {NS} == 'shop'"),
        (
            policy(selector="a=='b'", serviceAccountSelector="role=='x'"),
            f"((a=='b') && {NS} == 'shop') && pcsa.role == \"x\"",
        ),
        (
            policy(serviceAccountSelector="all()"),
            f"({NS} == 'shop') && all()",
        ),
        (everywhere(), ""),
        (everywhere(selector="a == 'b'"), "a == 'b'"),
        (everywhere(namespaceSelector="e in {'y', 'x'}"), 'pcns.e in {"x", "y"}'),
        (everywhere(namespaceSelector="all()"), f"has({NS})"),
        (
            everywhere(selector="all()", namespaceSelector="has(e)"),
            f"(has({NS})) && has(pcns.e)",
        ),
        (everywhere(selector="all()"), "all()"),
        (everywhere(serviceAccountSelector="all()"), f"has({SA})"),
        (
            everywhere(
                selector="a == 'b'", namespaceSelector="all()", serviceAccountSelector="r == 's'"
            ),
            f"((a == 'b') && has({NS})) && pcsa.r == \"s\"",
        ),
    ],
)
def test_whom_a_policy_applies_to(resource: Any, text: str) -> None:
    assert policy_selector(resource) == text
    parse(text)


@pytest.mark.parametrize(
    ("entity", "inside", "outside"),
    [
        (EntityRule(), "", ""),
        (EntityRule(nets=["10.0.0.0/8"]), "", ""),
        (EntityRule(selector="a=='b'"), f"({NS} == 'shop') && (a=='b')", "a=='b'"),
        (EntityRule(notSelector="a=='b'"), f"{NS} == 'shop'", ""),
        (
            EntityRule(namespaceSelector="e == 'x'"),
            'pcns.e == "x"',
            'pcns.e == "x"',
        ),
        (EntityRule(namespaceSelector="all()"), f"has({NS})", f"has({NS})"),
        (EntityRule(namespaceSelector="global()"), f"!has({NS})", f"!has({NS})"),
        (EntityRule(namespaceSelector=" global( ) "), f"!has({NS})", f"!has({NS})"),
        (
            EntityRule(namespaceSelector="all()", selector="all()"),
            f"(has({NS})) && (all())",
            f"(has({NS})) && (all())",
        ),
        (
            EntityRule(serviceAccounts=ServiceAccountMatch(names=["b", "a"])),
            f'({NS} == \'shop\') && ({SA} in {{"a", "b"}})',
            f'{SA} in {{"a", "b"}}',
        ),
        (
            EntityRule(serviceAccounts=ServiceAccountMatch(names=["a"], selector="r == 'x'")),
            f'({NS} == \'shop\') && ((pcsa.r == "x") && ({SA} in {{"a"}}))',
            f'(pcsa.r == "x") && ({SA} in {{"a"}})',
        ),
        (
            EntityRule(
                selector="p == 'q'",
                namespaceSelector="e == 'x'",
                serviceAccounts=ServiceAccountMatch(selector="r == 's'"),
            ),
            '(pcns.e == "x") && ((pcsa.r == "s") && (p == \'q\'))',
            '(pcns.e == "x") && ((pcsa.r == "s") && (p == \'q\'))',
        ),
    ],
)
def test_whom_one_side_of_a_rule_means(entity: EntityRule, inside: str, outside: str) -> None:
    assert entity_selector(entity, "shop") == inside
    assert entity_selector(entity) == outside
    parse(inside)
    parse(outside)


@pytest.mark.parametrize("field", ["serviceAccountSelector", "namespaceSelector"])
def test_what_is_no_selector_is_never_nobody(field: str) -> None:
    with pytest.raises(InvalidValue):
        policy_selector(everywhere(**{field: "a = 'b'"}))


def test_what_is_no_selector_in_a_rule() -> None:
    with pytest.raises(InvalidValue):
        entity_selector(EntityRule(namespaceSelector="?"), "shop")
    with pytest.raises(InvalidValue):
        entity_selector(EntityRule(serviceAccounts=ServiceAccountMatch(selector="?")))


terms = st.sampled_from(["", "all()", "a == 'x'", "a != 'x'", "has(a)", "!has(b)", "b in {'x'}"])
texts = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]))


@given(
    terms,
    terms,
    terms,
    st.lists(st.sampled_from(["s1", "s2"]), unique=True),
    texts,
    texts,
    texts,
    st.sampled_from(["shop", "other"]),
    st.sampled_from(["s1", "s2", "s3"]),
)
def test_the_meaning_of_a_side_is_that_of_its_fields(
    selector: str, scope: str, accounts: str, names: list[str], own: dict[str, str],
    of_namespace: dict[str, str], of_account: dict[str, str], namespace: str, account: str,
) -> None:  # fmt: skip
    """A pod is meant when each field, read over its own kind of labels, means it."""
    match = ServiceAccountMatch(names=names, selector=accounts) if names or accounts else None
    entity = EntityRule(selector=selector, namespaceSelector=scope, serviceAccounts=match)
    labels = {**own, NS: namespace, SA: account}
    labels |= {f"pcns.{key}": value for key, value in of_namespace.items()}
    labels |= {f"pcsa.{key}": value for key, value in of_account.items()}
    expected = parse(selector).matches(own)
    expected &= parse(accounts).matches(of_account) and (not names or account in names)
    if scope:
        expected &= parse(scope).matches(of_namespace)
    elif selector or match:
        expected &= namespace == "shop"
    assert parse(entity_selector(entity, "shop")).matches(labels) is expected
