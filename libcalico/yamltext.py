"""YAML and JSON read, free of YAML 1.1's surprises.

PyYAML's own resolvers read `65000:12` as a number in base 60, `no` as false, `0644` as
octal and a date as an object, and drop a duplicate key in silence. Operators write
communities, ports and names, so only true/false, decimal integers, floats and null are
resolved here, and a duplicate key is an error. A text that is written as JSON must be JSON: YAML
takes `[1,]` and `{"a":}`, which are typing errors there. Every value keeps its line, so that an
error names the place. Tested in `tests/calicoctl/test_yamltext.py`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from libcalico.errors import MuslinError

MAX_DEPTH = 100
"""Nothing that an operator writes is nested so deeply."""
MAX_ALIASED = 100_000
"""So many values may come of aliases in one document: each names a tree, which may name others."""
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.CSafeLoader):
    """The C parser with our own rules for which plain words are not text."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _tag, _pattern in {
    "null": r"(?:~|null|Null|NULL|)$",
    "bool": r"(?:true|True|TRUE|false|False|FALSE)$",
    "int": r"[-+]?(?:0|[1-9][0-9]*)$",
    "float": r"[-+]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+|(?:0|[1-9][0-9]*)\.?(?:[0-9]*[eE][-+]?[0-9]+)?)$",
}.items():
    # None: tried with any first character. `0644` matches neither int nor float.
    yaml.add_implicit_resolver(_TAG + _tag, re.compile(_pattern), None, Loader=_Loader)


@dataclass(slots=True)
class Document:
    """One document: plain values, and the line (from 1) of every path such as `spec.cidr`."""

    value: Any
    line: int
    lines: dict[str, int] = field(default_factory=dict)

    def line_of(self, path: str) -> int:
        """The line of `path`, or of its nearest parent that the text has."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.line


def load(text: str | bytes, source: str, *, is_json: bool = False) -> list[Document]:
    """All documents of a YAML or JSON text, empty ones left out; `is_json`: it must be JSON.

    Raises `MuslinError` that names `source` and the line for a syntax error, a duplicate
    key, an alias that loops, or a key that is no string; no other exception.
    """
    try:
        check_bounds(text, source)
        nodes = list(yaml.compose_all(text, Loader=_Loader))
        return [one for node in nodes if (one := _document(node, text, source, is_json))]
    except (yaml.YAMLError, UnicodeError) as error:
        raise MuslinError(f"{source}: {_syntax(error)}") from None


def check_bounds(text: str | bytes, source: str) -> None:
    """Refuse a small text that means something endless. Every reader of YAML calls this first.

    The C parser composes nodes by recursion, so some ten thousand brackets crash the process; and
    an alias names a tree that may hold others, so a few lines mean more values than memory holds.
    Raises `MuslinError`, and `yaml.YAMLError` for what is no YAML.
    """
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    levels = sum(map(raw.count, (b"[", b"{", b"-", b"?"))) + len(raw) // MAX_DEPTH
    if levels <= MAX_DEPTH and not (b"*" in raw and b"&" in raw):
        return  # too few signs, and too few blanks for so many levels by indentation
    bounds = _Bounds(source)
    for event in yaml.parse(text, Loader=_Loader):
        bounds.check_event(event)


@dataclass(slots=True)
class _Collection:
    """A list or map whose end is not reached: its anchor, and how many values it holds so far."""

    anchor: str | None
    size: int = 1


class _Bounds:
    """How deep the collections of a text are nested, and how many values its aliases give."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[_Collection] = []
        """The collections that are not at their end, the outermost first."""
        self._sizes: dict[str, int] = {}
        self._aliased = 0

    def check_event(self, event: yaml.Event) -> None:
        """Count the next event. Raises `MuslinError` beyond a limit."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._sizes, self._aliased = {}, 0
        elif isinstance(event, yaml.ScalarEvent):
            self._hold(event.anchor, 1)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open.append(_Collection(event.anchor))
            if len(self._open) > MAX_DEPTH:
                self._refuse(event, f"nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            collection = self._open.pop()
            self._hold(collection.anchor, collection.size)

    def _alias(self, event: yaml.AliasEvent) -> None:
        if any(one.anchor == event.anchor for one in self._open):
            self._refuse(event, "an alias that contains itself")
        size = self._sizes.get(event.anchor or "", 1)
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            self._refuse(event, f"aliases give more than {MAX_ALIASED} values")
        self._hold(None, size)

    def _hold(self, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._sizes[anchor] = size
        if self._open:
            self._open[-1].size += size

    def _refuse(self, event: yaml.Event, why: str) -> NoReturn:
        raise MuslinError(f"{self._source}: line {_line(event)}: {why}")


def _line(at: yaml.Event | yaml.Node) -> int:
    """The line, from 1, on which a node or event begins."""
    assert at.start_mark is not None
    return at.start_mark.line + 1


def _document(
    node: yaml.Node | None, text: str | bytes, source: str, is_json: bool
) -> Document | None:
    if node is None:
        return None
    if is_json or _looks_like_json(node):
        _check_json(node, text, source)
    document = Document(None, _line(node))
    document.value = _build(node, "", document, source)
    return None if document.value is None else document


def _looks_like_json(node: yaml.Node) -> bool:
    """Whether a document is a flow collection whose first key is in double quotes. Pure."""
    while isinstance(node, yaml.SequenceNode) and node.flow_style and node.value:
        node = node.value[0]
    if not isinstance(node, yaml.MappingNode) or not node.flow_style or not node.value:
        return False
    return bool(node.value[0][0].style == '"')


def _check_json(node: yaml.Node, text: str | bytes, source: str) -> None:
    try:
        whole = (text.decode() if isinstance(text, bytes) else text).removeprefix("\ufeff")
    except UnicodeDecodeError:
        return  # UTF-16, which YAML may be
    try:
        json.JSONDecoder().raw_decode(whole, node.start_mark.index)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise MuslinError(f"{source}: {where}: not valid JSON: {error.msg}") from None
    except ValueError:
        return  # a number of thousands of digits; `_scalar` refuses it


def _syntax(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}not valid YAML or JSON: {problem}"


def _build(node: yaml.Node | None, path: str, document: Document, source: str) -> object:
    if node is None:
        return None
    line = _line(node)
    if path:
        document.lines.setdefault(path, line)
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, source)
    if isinstance(node, yaml.SequenceNode):
        return [
            _build(item, f"{path}[{index}]", document, source)
            for index, item in enumerate(node.value)
        ]
    result: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = _line(key_node)
        if not isinstance(key_node, yaml.ScalarNode):
            raise MuslinError(f"{source}: line {line}: a key must be text")
        key = str(key_node.value)
        below = f"{path}.{key}" if path else key
        if key in result:
            raise MuslinError(f"{source}: line {line}: {below}: this key stands here twice")
        document.lines[below] = line
        result[key] = _build(value_node, below, document, source)
    return result


def _scalar(node: yaml.ScalarNode, source: str) -> object:
    text = str(node.value)
    kind = node.tag.removeprefix(_TAG)
    try:
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int":
            return int(text)
        if kind == "float" and math.isfinite(number := float(text)):
            return number
    except ValueError:
        kind = node.tag
    if kind in ("str", "timestamp"):
        return text
    line = _line(node)
    raise MuslinError(
        f"{source}: line {line}: the tag {node.tag} with {text[:80]!r} is not allowed"
    )
