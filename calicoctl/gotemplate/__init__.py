"""`-o go-template=`: the part of Go's text/template that people write on a command line.

Understood: text, comments, trim markers, fields, variables, pipelines, parentheses,
`if`/`else if`/`else`, `range` (with `else`, `break`, `continue`), `with`, the comparison and
printing functions, and Calico's `join`, `joinAndTruncate` and `config`. What is left out
(`define`, `template`, `block`, `call`, `html`, `js`, `urlquery`, character constants) is refused by
name, before anything is printed. The data is what Calico hands to its template: a list of
the objects found, a whole kind being one List object with `.Items`.

Source: the package documentation of Go's text/template. Tested in
`tests/calicoctl/test_gotemplate.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calicoctl.gotemplate.evaluate import Evaluation
from calicoctl.gotemplate.nodes import TemplateError
from calicoctl.gotemplate.parse import parse

__all__ = ["TemplateError", "check", "render"]


def check(text: str) -> None:
    """Raise `TemplateError` when `text` is no template that we understand."""
    parse(text)


def render(
    text: str, data: object, functions: Mapping[str, Callable[..., object]] | None = None
) -> str:
    """The text that the template makes of `data`; `functions` come beside the built-in ones.

    Raises `TemplateError` for a template that we do not understand and for data that do not
    fit it.
    """
    evaluation = Evaluation(data, functions or {})
    evaluation.run(parse(text))
    return "".join(evaluation.out)
