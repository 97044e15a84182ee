"""The shapes of `get -o` beyond the usual four: which there are, and their text.

Imported where one of them is asked for. Tested in `tests/calicoctl/test_get_options.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calicoctl import cells, output
from calicoctl.listing.result import Result
from calicoctl.terminal import suggesting
from libcalico.errors import MuslinError
from libcalico.model.base.meta import API_VERSION

WITH_VALUE = {
    "custom-columns": "HEADING,...",
    "go-template": "TEMPLATE",
    "go-template-file": "FILE",
    "jsonpath": "TEMPLATE",
    "jsonpath-file": "FILE",
}
NAMES = (*output.PLAIN, "name", *WITH_VALUE)


def check(style: str) -> None:
    """Raise `MuslinError` when `-o STYLE` is none that we print, or its template is none."""
    kind, equals, value = style.partition("=")
    if kind in WITH_VALUE:
        if not value:
            raise MuslinError(f"-o {kind} needs a value: {kind}={WITH_VALUE[kind]}")
        template = template_of(style)
        if kind.startswith("go-template"):
            from calicoctl import gotemplate

            gotemplate.check(template)
        elif kind.startswith("jsonpath"):
            from calicoctl import jsonpath

            jsonpath.check(template)
        return
    if style in NAMES:
        return
    allowed = ", ".join(
        f"{name}={WITH_VALUE[name]}" if name in WITH_VALUE else name for name in NAMES
    )
    meant = "" if equals else suggesting.question(suggesting.near(kind, NAMES))
    raise MuslinError(f"unrecognized output format '{style}'; allowed: {allowed}. {meant}".rstrip())


def template_of(style: str) -> str:
    """The value of `-o KIND=VALUE`, of `-o KIND-file=FILE` what the file holds.

    Raises `MuslinError` for a file that cannot be read.
    """
    kind, _, value = style.partition("=")
    if not kind.endswith("-file"):
        return value
    try:
        return Path(value).read_text()
    except (OSError, ValueError) as error:
        raise MuslinError(f"cannot read the template {value}: {error}") from None


def text_of(results: Sequence[Result], style: str, context: cells.Context) -> str:
    """Results as names or by a template; raises `MuslinError` where it does not fit them."""
    if style == "name":
        return "".join(f"{name}\n" for result in results for name in names(result))
    template = template_of(style)
    if style.startswith("go-template"):
        return output.as_template(results, template, context)
    from calicoctl import jsonpath

    return jsonpath.render(template, data_of(results))


def names(result: Result) -> list[str]:
    """`ippool.projectcalico.org/p1`, as kubectl names objects; `get` and `delete` read it."""
    group = API_VERSION.partition("/")[0]
    kind = result.kind.lower()
    return [f"{kind}.{group}/{entry.value.metadata.name}" for entry in result.entries]


def data_of(results: Sequence[Result]) -> object:
    """What a JSON path is asked of: one object, or a list with `items` as kubectl has it."""
    shown = output.plain(results, export=False)
    if isinstance(shown, list):
        return {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": shown}
    return shown
