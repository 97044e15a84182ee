"""`-o jsonpath=`: kubectl's templates of paths, such as `{.items[*].metadata.name}`.

Understood: text, `{...}` with fields (`.a`, `['a']`, dots escaped by a backslash), wildcards,
indices, slices with steps, unions, `..`, filters `[?(@.a=="b")]` with one comparison or none,
quoted text, numbers, and `{range ...}{end}`. A path without braces is taken as one in braces. What
kubectl refuses is refused here by name, before anything is printed: regular expressions (`=~`),
`&&` and `||`, functions, scripts. What is not there is empty, but for an index, which is an error.

No library has this dialect (they have RFC 9535's, without templates), and it must cost nothing.
Source: Kubernetes' documentation, "JSONPath Support". Tested in `tests/calicoctl/test_jsonpath.py`.
"""

from __future__ import annotations

from calicoctl.jsonpath.evaluate import text_of
from calicoctl.jsonpath.nodes import JSONPathError
from calicoctl.jsonpath.parse import parse

__all__ = ["JSONPathError", "check", "render"]


def check(template: str) -> None:
    """Raise `JSONPathError` for a template that is not understood."""
    parse(template)


def render(template: str, data: object) -> str:
    """The text that a template makes of plain values; raises `JSONPathError`."""
    return text_of(parse(template), data)
