"""Which endpoints a policy, and each side of its rules, means in the end.

Policies speak of namespaces and service accounts in fields of their own. Endpoints carry
both as labels (`projectcalico.org/namespace`, and inherited from profiles `pcns.<label>`
and `pcsa.<label>`), so every such field becomes one selector over labels. The texts are
Calico's to the character (docs/reference/data-model.md#selectors-as-enforced), because names of IP
sets derive from them.

Every function raises InvalidValue where a part is no selector: then it is not known which endpoints
the policy means, and the caller must not widen access. Tested in
tests/libcalico/test_policy_selectors.py.
"""

from __future__ import annotations

from libcalico.model.resources.policy import NetworkPolicy, Policy
from libcalico.model.resources.rules import EntityRule, ServiceAccountMatch
from libcalico.selectors.selectors import (
    And,
    Compare,
    Constant,
    Has,
    InSet,
    Node,
    Not,
    Or,
    Selector,
    parse,
)

NAMESPACE_LABEL = "projectcalico.org/namespace"
SERVICE_ACCOUNT_LABEL = "projectcalico.org/serviceaccount"
NAMESPACE_PREFIX = "pcns."
SERVICE_ACCOUNT_PREFIX = "pcsa."


def policy_selector(policy: Policy) -> str:
    """The selector of the endpoints that a policy applies to; never empty for a NetworkPolicy.

    The empty text, for a GlobalNetworkPolicy without any selector, selects every endpoint.
    """
    spec = policy.spec
    if isinstance(policy, NetworkPolicy):
        selector = namespaced(spec.selector, policy.metadata.namespace)
        return _and_prefixed(selector, spec.serviceAccountSelector, SERVICE_ACCOUNT_PREFIX)
    selector = spec.selector
    if policy.spec.namespaceSelector:
        selector = _and_prefixed(selector, policy.spec.namespaceSelector, NAMESPACE_PREFIX)
        selector = selector.replace("all()", f"has({NAMESPACE_LABEL})")
    if spec.serviceAccountSelector:
        selector = _and_prefixed(selector, spec.serviceAccountSelector, SERVICE_ACCOUNT_PREFIX)
        selector = selector.replace("all()", f"has({SERVICE_ACCOUNT_LABEL})")
    return selector


def entity_selector(entity: EntityRule, namespace: str = "") -> str:
    """The selector of one side of a rule; empty where the side names no endpoints.

    `namespace` is that of the NetworkPolicy the rule stands in; empty in a
    GlobalNetworkPolicy and in a Profile. `entity.notSelector` is used as it is written:
    what it excludes is already limited by this selector.
    """
    accounts = _accounts(entity.serviceAccounts)
    parts = [part for part in (accounts, entity.selector) if part]
    selector = parts[0] if len(parts) == 1 else " && ".join(f"({part})" for part in parts)
    scope = ""
    if entity.namespaceSelector:
        scope = (
            prefixed(entity.namespaceSelector, NAMESPACE_PREFIX)
            .text.replace("all()", f"has({NAMESPACE_LABEL})")
            .replace("global()", f"!has({NAMESPACE_LABEL})")
        )
    elif namespace and (selector or entity.notSelector):
        scope = _namespace_term(namespace)
    if not scope:
        return selector
    return f"({scope}) && ({selector})" if selector else scope


def namespaced(selector: str, namespace: str) -> str:
    """A selector narrowed to one namespace."""
    term = _namespace_term(namespace)
    return f"({selector}) && {term}" if selector else term


def prefixed(selector: str, prefix: str) -> Selector:
    """The selector with `prefix` before every label name. Raises InvalidValue."""
    return Selector(_prefixed(parse(selector).root, prefix))


def _namespace_term(namespace: str) -> str:
    return f"{NAMESPACE_LABEL} == '{namespace}'"


def _and_prefixed(selector: str, other: str, prefix: str) -> str:
    if not other:
        return selector
    text = prefixed(other, prefix).text
    return f"({selector}) && {text}" if selector else text


def _accounts(match: ServiceAccountMatch | None) -> str:
    if match is None:
        return ""
    selector = prefixed(match.selector, SERVICE_ACCOUNT_PREFIX).text if match.selector else ""
    if not match.names:
        return selector
    names = InSet(SERVICE_ACCOUNT_LABEL, frozenset(match.names)).text
    return f"({selector}) && ({names})" if selector else names


def _prefixed(node: Node, prefix: str) -> Node:
    match node:
        case Compare(label, operator, value):
            return Compare(prefix + label, operator, value)
        case InSet(label, values, negated):
            return InSet(prefix + label, values, negated)
        case Has(label):
            return Has(prefix + label)
        case Not(operand):
            return Not(_prefixed(operand, prefix))
        case And(operands):
            return And(tuple(_prefixed(one, prefix) for one in operands))
        case Or(operands):
            return Or(tuple(_prefixed(one, prefix) for one in operands))
        case Constant():
            return node
