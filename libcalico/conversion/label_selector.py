"""A Kubernetes LabelSelector as selector text, to the character as Calico writes it.

The text is stored verbatim, and controllers of both kinds compare it to find out whether
a policy changed: quotes and blanks are part of the contract
(docs/reference/data-model.md#kubernetes-networkpolicy). Label names and values are checked first;
they come from users and end up between quotes.
Tested in tests/libcalico/test_conversion.py.
"""

from __future__ import annotations

from libcalico.conversion import tree
from libcalico.conversion.tree import Tree
from libcalico.errors import InvalidValue

KUBERNETES_PODS = "projectcalico.org/orchestrator == 'k8s'"
_FIELDS = frozenset({"matchLabels", "matchExpressions"})
_EXPRESSION = frozenset({"key", "operator", "values"})


def pods(selector: Tree, path: str) -> str:
    """The selector of pods; an empty one is every pod of Kubernetes. Raises InvalidValue."""
    return " && ".join([KUBERNETES_PODS, *_terms(selector, path)])


def namespaces(selector: Tree, path: str) -> str:
    """The selector of namespaces; an empty one is every namespace. Raises InvalidValue."""
    return " && ".join(_terms(selector, path)) or "all()"


def _terms(selector: Tree, path: str) -> list[str]:
    tree.only(selector, _FIELDS, path)
    labels = tree.labels(selector, "matchLabels", path)
    terms = [f"{key} == '{value}'" for key, value in sorted(labels.items())]
    for where, item in tree.items(selector, "matchExpressions", path):
        terms.append(_expression(tree.as_mapping(item, where), where))
    return terms


def _expression(item: Tree, path: str) -> str:
    tree.only(item, _EXPRESSION, path)
    key = tree.label_name(item.get("key"), f"{path}.key")
    operator = tree.text(item, "operator", path)
    values = [tree.label_value(value, where) for where, value in tree.items(item, "values", path)]
    if operator in ("In", "NotIn"):
        if not values:
            raise InvalidValue(f"{path}.values", values, f"{operator} needs at least one value")
        quoted = ", ".join(f"'{value}'" for value in values)
        return f"{key} {'in' if operator == 'In' else 'not in'} {{ {quoted} }}"
    if operator in ("Exists", "DoesNotExist"):
        if values:
            raise InvalidValue(f"{path}.values", values, f"{operator} takes no values")
        return f"has({key})" if operator == "Exists" else f"! has({key})"
    rule = "must be In, NotIn, Exists or DoesNotExist"
    raise InvalidValue(f"{path}.operator", operator, rule)
