"""From the text of a template to its nodes. Tested in `tests/calicoctl/test_jsonpath.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from calicoctl.jsonpath.nodes import (
    Field,
    Filter,
    JSONPathError,
    Literal,
    Node,
    Path,
    Range,
    Recursive,
    Show,
    Slice,
    Step,
    Text,
    Union,
    Wildcard,
)

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ACTION = re.compile(rf"\{{((?:{_QUOTED}|[^{{}}'\"])*)\}}")
_WORD = re.compile(r"\s*(range|end)(?=[\s.\[$@]|$)")
_RELAXED = re.compile(r"\s*[$@]?[.\[]")
_STEP = re.compile(
    rf"""\s*(?:
    (?P<root>[$@])
    |(?P<recursive>\.\.)
    |\.(?P<field>(?:\\.|[^\s.,\[\]$@{{}}()'"|&])+)
    |\[\?\((?P<filter>(?:{_QUOTED}|[^'"])*?)\)\]
    |\[(?P<inside>(?:{_QUOTED}|[^\]'"\[])*)\]
    |(?P<quoted>{_QUOTED})
    |(?P<number>[+-]?\d+(?:\.\d+)?)
    |(?P<word>[^\s.,\[\]$@{{}}]+)
    )""",
    re.VERBOSE,
)
_SLICE = re.compile(r"(-?\d+)?(?:(:)(-?\d+)?(?::(-?\d+)?)?)?")
_COMPARISON = re.compile(
    rf"(?P<left>(?:{_QUOTED}|[^'\"!<>=])+?)\s*(?P<operator>[!<>=~]+)\s*(?P<right>.+)", re.DOTALL
)
_OPERATORS = ("==", "!=", "<", "<=", ">", ">=")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def parse(template: str) -> tuple[Node, ...]:
    """The nodes of a template; raises `JSONPathError`."""
    if "{" not in template and _RELAXED.match(template):
        template = f"{{{template}}}"
    pieces = list(_pieces(template))
    nodes, rest = _block(pieces, 0, inside=False)
    assert rest == len(pieces)
    return nodes


def _pieces(template: str) -> Iterator[str | tuple[str]]:
    """Text, and in tuples of one what stands in braces."""
    at = 0
    while at < len(template):
        brace = template.find("{", at)
        if brace < 0:
            yield template[at:]
            return
        if brace > at:
            yield template[at:brace]
        action = _ACTION.match(template, brace)
        if action is None:
            raise JSONPathError(f"jsonpath: {template[brace:]!r}: a brace or quote is not closed")
        yield (action[1],)
        at = action.end()


def _block(
    pieces: list[str | tuple[str]], at: int, *, inside: bool
) -> tuple[tuple[Node, ...], int]:
    """The nodes up to the end, or behind the `{end}` of a range; and where that is."""
    nodes: list[Node] = []
    while at < len(pieces):
        piece = pieces[at]
        at += 1
        if isinstance(piece, str):
            nodes.append(Text(piece))
            continue
        word = _WORD.match(piece[0])
        if word is None:
            nodes.append(Show(path_of(piece[0])))
        elif word[1] == "range":
            body, at = _block(pieces, at, inside=True)
            nodes.append(Range(path_of(piece[0][word.end() :]), body))
        elif inside:
            return tuple(nodes), at
        else:
            raise JSONPathError("jsonpath: {end} without a {range} before it")
    if inside:
        raise JSONPathError("jsonpath: {range} without an {end}")
    return tuple(nodes), at


def path_of(text: str) -> Path:
    """The steps of a path; raises `JSONPathError`."""
    steps: list[Step] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _STEP.match(text, at)
        if match is None or match.end() == at:
            raise _refused(text, text[at:])
        at = match.end()
        steps += _steps(match, text)
        if steps and isinstance(steps[-1], Recursive) and re.match(r"[A-Za-z0-9_*]", text[at:]):
            # `..name` has no dot of its own.
            text = f"{text[:at]}.{text[at:]}"
            end += 1
    return tuple(steps)


def _steps(match: re.Match[str], text: str) -> list[Step]:
    kind = str(match.lastgroup)
    value = match[kind]
    match kind:
        case "root":
            return []
        case "recursive":
            return [Recursive()]
        case "field":
            return [Wildcard() if value == "*" else Field(value.replace("\\", ""))]
        case "filter":
            return [_filter(value)]
        case "inside":
            return [_inside(value, text)]
        case "quoted":
            return [Literal(_unquoted(value))]
        case "number":
            return [Literal(float(value) if "." in value else int(value))]
    if value in ("true", "false"):
        return [Literal(value == "true")]
    raise _refused(text, value)


def _refused(text: str, rest: str) -> JSONPathError:
    word = rest.strip()
    if word.startswith("(") and not word.startswith("()"):
        return JSONPathError(f"jsonpath: {text!r}: scripts in parentheses are not supported")
    if "(" in word:
        return JSONPathError(f"jsonpath: {text!r}: functions are not supported: {word!r}")
    return JSONPathError(f"jsonpath: {text!r}: not understood from {word!r} on")


def _inside(text: str, whole: str) -> Step:
    """What stands in brackets: an index, a slice, a quoted name, `*`, or several of them."""
    parts = [part.strip() for part in re.split(rf",(?=(?:[^'\"]|{_QUOTED})*$)", text)]
    if len(parts) > 1:
        return Union(tuple((_inside(part, whole),) for part in parts))
    part = parts[0]
    if part == "*":
        return Wildcard()
    if re.fullmatch(_QUOTED, part):
        return Field(_unquoted(part))
    match = _SLICE.fullmatch(part)
    if match is None or not part:
        if part.startswith("("):
            raise _refused(whole, part)
        raise JSONPathError(f"jsonpath: {whole!r}: [{part}] is no index, slice or quoted name")
    start, colon, stop, step = match.groups()
    if not colon:
        return Slice(int(start), single=True)
    if step is not None and int(step) < 1:
        raise JSONPathError(f"jsonpath: {whole!r}: the step of [{part}] must be 1 or more")
    first, last, by = (int(one) if one else None for one in (start, stop, step))
    return Slice(first, last, by)


def _filter(text: str) -> Filter:
    bare = re.sub(_QUOTED, "", text)
    for sign, name in (("&&", "and"), ("||", "or"), ("=~", "regular expressions")):
        if sign in bare:
            raise JSONPathError(f"jsonpath: filter {text!r}: {sign} ({name}) is not supported")
    match = _COMPARISON.fullmatch(text.strip())
    if match is None:
        return Filter(path_of(text))
    if match["operator"] not in _OPERATORS:
        allowed = " ".join(_OPERATORS)
        raise JSONPathError(
            f"jsonpath: filter {text!r}: {match['operator']} is not supported; allowed: {allowed}"
        )
    return Filter(path_of(match["left"]), match["operator"], path_of(match["right"]))


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])
