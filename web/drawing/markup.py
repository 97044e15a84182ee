"""Markup that can not be left by what is put into it: text is escaped, markup is of its own type.

Tested in tests/web/test_markup.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import urlencode


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | Html | None
EMPTY = Html("")


def text(content: Content) -> Html:
    """Markup of a text; markup stays as it is."""
    if isinstance(content, Html):
        return content
    return Html(escape(content or "", quote=True))


def tag(name: str, /, *content: Content, **attributes: str | int | float | None) -> Html:
    """An element. `class_` is `class`, other underlines become hyphens; None leaves out."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            label = key.rstrip("_").replace("_", "-")
            words.append(f'{label}="{escape(str(value), quote=True)}"')
    return Html(f"<{' '.join(words)}>{''.join(map(text, content))}</{name}>")


def joined(parts: Iterable[Content]) -> Html:
    """Parts one after the other."""
    return Html("".join(map(text, parts)))


def address(path: str, **query: str | int | None) -> str:
    """A deep link: the path with those parameters that are not empty."""
    given = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def link(content: Content, path: str, **query: str | int | None) -> Html:
    """A link to a view of ours."""
    return tag("a", content, href=address(path, **query))


def table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[Content]], empty: str = "None."
) -> Html:
    """A table with a caption and headings that screen readers announce; `empty` without rows."""
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    if not body:
        return joined([tag("h3", caption), tag("p", empty, class_="quiet")])
    head = tag("tr", *(tag("th", heading, scope="col") for heading in headings))
    inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", inner, class_="wide", tabindex=0, role="region", aria_label=caption)


def badge(sign: str, word: str, css: str) -> Html:
    """A state: sign and word together, coloured by its class."""
    return tag("span", tag("span", sign, aria_hidden="true"), f" {word}", class_=f"badge {css}")


def notice(kind: str, content: Content) -> Html:
    """A paragraph that stands out: `warning`, `missing` or `error`."""
    return tag("p", content, class_=f"notice {kind}", role="alert" if kind == "error" else "note")


def choices(name: str, label: str, chosen: str, options: Iterable[tuple[str, str]]) -> Html:
    """A labelled list of choices for a form; options are (value, text)."""
    made = [
        tag("option", words, value=value, selected="selected" if value == chosen else None)
        for value, words in options
    ]
    return tag("label", f"{label} ", tag("select", *made, name=name))


def entry(name: str, label: str, value: str, size: int = 14) -> Html:
    """A labelled line to type in."""
    field = Html(
        f'<input name="{escape(name, quote=True)}" value="{escape(value, quote=True)}"'
        f' size="{size}" autocomplete="off"/>'
    )
    return tag("label", f"{label} ", field)


def form(path: str, *fields: Content, button: str = "Show") -> Html:
    """A form whose answer has an address of its own."""
    return tag("form", *fields, tag("button", button, type="submit"), action=path, method="get")
