"""YAML in and out, free of YAML 1.1's surprises.

PyYAML's own resolvers read `65000:12` as a number in base 60, `no` as false, `0644` as
octal and a date as an object, and drop a duplicate key in silence. Operators write
communities, ports and names, so only true/false, decimal integers, floats and null are
resolved here, and a duplicate key is an error. Every value keeps its line, so that an
error names the place (`LineMap`). Output follows Go's `sigs.k8s.io/yaml`: keys sorted,
sequences not indented, double quotes where a plain word would read as something else.
Tested in `tests/calicoctl/test_yamltext.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from libcalico.errors import MuslinError

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.CSafeLoader):
    """The C parser with our own idea of which plain words are not text."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _tag, _pattern in {
    "null": r"(?:~|null|Null|NULL|)$",
    "bool": r"(?:true|True|TRUE|false|False|FALSE)$",
    "int": r"[-+]?(?:0|[1-9][0-9]*)$",
    "float": r"[-+]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+|(?:0|[1-9][0-9]*)\.?(?:[0-9]*[eE][-+]?[0-9]+)?)$",
}.items():
    # None: tried whatever the first character is. `0644` matches neither int nor float.
    yaml.add_implicit_resolver(_TAG + _tag, re.compile(_pattern), None, Loader=_Loader)

# What a YAML 1.1 reader would not take for a string: quoted on output so that Go reads it back.
_AMBIGUOUS = re.compile(
    r"(?:~|null|true|false|yes|no|on|off|y|n|<<|=)?"
    r"|[-+]?(?:[0-9][0-9_]*|0x[0-9a-f_]+|0o?[0-7_]+|0b[01_]+)"
    r"|[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)(?:e[-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf)|\.nan"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:t|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}.*)?",
    re.IGNORECASE,
)


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


def load(text: str | bytes, source: str) -> list[Document]:
    """All documents of a YAML or JSON text, empty ones left out.

    Raises `MuslinError` that names `source` and the line for a syntax error, a duplicate
    key, an alias that loops, or a key that is no string.
    """
    try:
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MuslinError(f"{source}: {_syntax(error)}") from None
    documents = []
    for node in nodes:
        document = Document(None, node.start_mark.line + 1 if node else 1)
        document.value = _build(node, "", document, source, ())
        if document.value is not None:
            documents.append(document)
    return documents


def _syntax(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}not valid YAML or JSON: {problem}"


def _build(node: Any, path: str, document: Document, source: str, parents: tuple[int, ...]) -> Any:
    if node is None:
        return None
    line = node.start_mark.line + 1
    if path:
        document.lines.setdefault(path, line)
    if id(node) in parents:
        raise MuslinError(f"{source}: line {line}: {path}: an alias that contains itself")
    inside = (*parents, id(node))
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, source)
    if isinstance(node, yaml.SequenceNode):
        return [
            _build(item, f"{path}[{index}]", document, source, inside)
            for index, item in enumerate(node.value)
        ]
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise MuslinError(f"{source}: line {line}: a key must be text")
        key = str(key_node.value)
        below = f"{path}.{key}" if path else key
        if key in result:
            raise MuslinError(f"{source}: line {line}: {below}: this key stands here twice")
        document.lines[below] = line
        result[key] = _build(value_node, below, document, source, inside)
    return result


def _scalar(node: yaml.ScalarNode, source: str) -> Any:
    text = str(node.value)
    kind = node.tag.removeprefix(_TAG)
    try:
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except ValueError:
        kind = node.tag
    if kind in ("str", "timestamp"):
        return text
    line = node.start_mark.line + 1
    raise MuslinError(f"{source}: line {line}: the tag {node.tag} with {text!r} is not allowed")


class _Dumper(yaml.CSafeDumper):
    """Writes as Go does; a class of its own so that no global representer changes."""


def _text(dumper: Any, value: str) -> Any:
    style = None
    if "\n" in value:
        style = "|"
    elif _AMBIGUOUS.fullmatch(value):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(value: Any) -> str:
    """`value` as one YAML document, with a newline at its end."""
    text = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=True,
        allow_unicode=True,
        width=1 << 30,
    )
    return str(text)
