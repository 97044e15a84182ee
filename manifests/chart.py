"""Renders the Helm chart without Helm: the flat manifests and the chart are one text.

The chart uses a small part of Go's templates, and this renders just that part:

    {{ .Values.etcd.endpoints }}            a value; `| toJson`: as JSON, which is YAML too
    {{- if .Values.cni.criSocket }}         also `not`, and `eq .Values.backend "bird"`
    {{- else }}  {{- end }}

Conditions stand alone on their lines. Anything else is an error, so that the chart never says
something that the flat files do not. tests/manifests/test_helm.py holds it to Helm itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "helm" / "muslin"
ORDER = ("config", "rbac", "node", "controllers", "proxy", "goldmane", "web")
"""The templates, in the order in which a cluster is to have the objects."""

_CONTROL = re.compile(r"\s*\{\{-\s*(.*?)\s*\}\}\s*")
_VALUE = re.compile(r"\{\{\s*(.*?)\s*\}\}")
_PATH = re.compile(r"\.Values((?:\.[A-Za-z0-9_]+)+)")
_EQUAL = re.compile(r'eq (\S+) "([^"]*)"')

Values = Mapping[str, Any]


class ChartError(Exception):
    """The chart says what this renderer does not know, or asks for a value that is not there."""


def defaults(chart: Path = CHART) -> dict[str, Any]:
    """The chart's own values."""
    found: dict[str, Any] = yaml.safe_load((chart / "values.yaml").read_text())
    return found


def merged(below: Values, above: Values) -> dict[str, Any]:
    """`above` over `below`, as Helm merges values. Raises ChartError for a value nobody knows."""
    found = dict(below)
    for name, value in above.items():
        if name not in below:
            raise ChartError(f"values: {name}: no such value; known: {', '.join(sorted(below))}")
        inner = isinstance(below[name], Mapping)
        found[name] = merged(below[name], value) if inner else value
    return found


def render(values: Values, chart: Path = CHART) -> str:
    """All templates as one YAML stream. Raises ChartError."""
    settled = merged(defaults(chart), values)
    texts = (
        rendered((chart / "templates" / f"{name}.yaml").read_text(), settled) for name in ORDER
    )
    return "---\n".join(text for text in texts if text)


def rendered(text: str, values: Values) -> str:
    """One template with these values. Raises ChartError naming the line. Pure."""
    return "".join(f"{line}\n" for line in _lines(text.splitlines(), values))


def _lines(lines: Sequence[str], values: Values) -> Iterator[str]:
    open_blocks: list[bool] = []
    for number, line in enumerate(lines, 1):
        control = _CONTROL.fullmatch(line)
        try:
            if control is None:
                if all(open_blocks):
                    yield _VALUE.sub(lambda found: _value(found.group(1), values), line)
                continue
            word, _, rest = control.group(1).partition(" ")
            if word == "if":
                open_blocks.append(_holds(rest, values))
            elif word == "else" and open_blocks and not rest:
                open_blocks[-1] = not open_blocks[-1]
            elif word == "end" and open_blocks:
                open_blocks.pop()
            else:
                raise ChartError(f"{word!r} is not known, or closes nothing")
        except ChartError as error:
            raise ChartError(f"line {number}: {error}") from None
    if open_blocks:
        raise ChartError("an `if` has no `end`")


def _holds(condition: str, values: Values) -> bool:
    if condition.startswith("not "):
        return not _holds(condition.removeprefix("not "), values)
    if equal := _EQUAL.fullmatch(condition):
        return bool(_look(equal.group(1), values) == equal.group(2))
    return bool(_look(condition, values))


def _value(text: str, values: Values) -> str:
    path, _, function = (part.strip() for part in text.partition("|"))
    found = _look(path, values)
    if function == "toJson":
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    if function:
        raise ChartError(f"the function {function!r} is not known")
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found)


def _look(path: str, values: Values) -> Any:
    found: Any = values
    match = _PATH.fullmatch(path)
    if match is None:
        raise ChartError(f"{path!r} is not understood; write .Values.name")
    for name in match.group(1).split(".")[1:]:
        if not isinstance(found, Mapping) or name not in found:
            raise ChartError(f"{path}: no such value")
        found = found[name]
    return found
