"""Impersonation: the headers by which a request is made as another user (Kubernetes,
"User impersonation"). A kubeconfig names it by `as`, `as-uid`, `as-groups`, `as-user-extra`.

Tested in tests/libcalico/test_kubernetes_impersonation.py and tests/apiserver/test_kubeconfig.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote

_NEEDS_A_NAME = ("as-uid", "as-groups", "as-user-extra")


def headers(user: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """The headers that a user of a kubeconfig asks for, in order. Raises ValueError."""
    name = user.get("as")
    if not name:
        for key in _NEEDS_A_NAME:
            if user.get(key):
                raise ValueError(f"must name a user where {key} is set")
        return ()
    pairs: list[tuple[str, str]] = []
    for header, value in [("Impersonate-User", name), *_more(user)]:
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise ValueError(f"{header} must be printable ASCII text")
        pairs.append((header, value))
    return tuple(pairs)


def _more(user: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    if user.get("as-uid"):
        yield "Impersonate-Uid", user["as-uid"]
    for group in _list(user.get("as-groups"), "as-groups"):
        yield "Impersonate-Group", group
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, Mapping):
        raise ValueError("as-user-extra must be a map of lists")
    for key, values in extra.items():
        # A key may hold what a header's name may not, as `example.org/project`.
        header = f"Impersonate-Extra-{quote(str(key), safe='')}"
        for value in _list(values, f"as-user-extra.{key}"):
            yield header, value


def _list(value: object, where: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{where} must be a list")
    return value
