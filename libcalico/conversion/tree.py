"""Readers of a parsed Kubernetes document, field by field; each error has the field's path.

Kubernetes' API server checks its objects, but a file arrives unchecked. So a field of the wrong
type, or one that the type does not have, is an error: a misspelt `form:` in place of `from:`
would otherwise admit every peer.
Tested in tests/libcalico/test_conversion.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from libcalico.errors import InvalidValue
from libcalico.model.validation.checks import indexed
from libcalico.model.validation.kubernetes_names import (
    MAX_LABEL,
    SINGLE_LABEL,
    is_label_value,
    is_name,
    is_qualified_name,
)

Tree = Mapping[str, object]
"""A parsed JSON or YAML object."""


def mapping(tree: Tree, name: str, path: str) -> Tree:
    """A member that is a mapping; absent and null are the empty one."""
    value = tree.get(name)
    if value is None:
        return {}
    return as_mapping(value, _below(path, name))


def as_mapping(value: object, path: str) -> Tree:
    """The value, which must be a mapping."""
    if not isinstance(value, Mapping):
        raise InvalidValue(path, value, "must be a mapping")
    return value


def sequence(tree: Tree, name: str, path: str) -> list[object]:
    """A member that is a list; absent and null are the empty one."""
    value = tree.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidValue(_below(path, name), value, "must be a list")
    return value


def items(tree: Tree, name: str, path: str) -> Iterator[tuple[str, object]]:
    """The items of a member that is a list, each with its path."""
    return indexed(_below(path, name), sequence(tree, name, path))


def text(tree: Tree, name: str, path: str) -> str:
    """A member that is text; absent and null are the empty one."""
    value = tree.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidValue(_below(path, name), value, "must be text")
    return value


def only(tree: Tree, known: frozenset[str], path: str) -> None:
    """Raise for a member that the type does not have."""
    for name in tree:
        if name not in known:
            raise InvalidValue(_below(path, str(name)), tree[name], "is no such field")


def exactly_one(tree: Tree, names: Sequence[str], path: str, separator: str = ", ") -> str:
    """The one of the named members that is there. Raise for none or several."""
    present = [name for name in names if tree.get(name) is not None]
    if len(present) != 1:
        rule = f"must be exactly one of {separator.join(names)}"
        raise InvalidValue(path, dict(tree), rule)
    return present[0]


def name_of(tree: Tree) -> str:
    """`metadata.name`, which must be there and be a Kubernetes name."""
    name = text(mapping(tree, "metadata", ""), "name", "metadata")
    if not is_name(name):
        raise InvalidValue("metadata.name", name, "must be a name: lower-case DNS labels")
    return name


def namespace_of(tree: Tree) -> str:
    """`metadata.namespace`, `default` where none is given."""
    namespace = text(mapping(tree, "metadata", ""), "namespace", "metadata") or "default"
    if len(namespace) > MAX_LABEL or not SINGLE_LABEL.fullmatch(namespace):
        raise InvalidValue("metadata.namespace", namespace, "must be one DNS label")
    return namespace


def labels(tree: Tree, name: str, path: str) -> dict[str, str]:
    """A member that maps label names to label values."""
    where = _below(path, name)
    return {
        label_name(key, f"{where}[{key}]"): label_value(value, f"{where}[{key}]")
        for key, value in mapping(tree, name, path).items()
    }


def label_name(key: object, path: str) -> str:
    """A label's name, `[dns.prefix/]name`."""
    if not isinstance(key, str) or not is_qualified_name(key):
        raise InvalidValue(path, key, "must be the name of a label")
    return key


def label_value(value: object, path: str) -> str:
    """A label's value; it can hold no quote, so it can be put into a selector."""
    if not isinstance(value, str) or not is_label_value(value):
        raise InvalidValue(path, value, "must be the value of a label")
    return value


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
