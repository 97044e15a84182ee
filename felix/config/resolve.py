"""Which value a parameter has: Calico's precedence, strongest first
(docs/reference/dataplane.md#sources-of-configuration).

Environment, file, FelixConfiguration `node.<node>`, FelixConfigurations whose `nodeSelector`
matches the node's labels, FelixConfiguration `default`, built-in default. Where two that match
differ, the first by name counts and the other is named. An empty value counts as unset; `none`
is the type's zero. A value that cannot be parsed is named and the built-in default is used, so
a typing error never takes a node down; an unknown parameter is named and ignored, and so is
one of Calico's that has no effect here (libcalico/model/enforcement/table.py) when its value asks
for one. Tested in tests/felix/config/test_config.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from felix.config import kinds
from felix.config.others import ELSEWHERE, FIELD_OF, TYPHA
from felix.config.parameters import PARAMETERS, Config
from felix.config.rows import Parameter
from libcalico.errors import InvalidValue
from libcalico.model.enforcement.table import felix_parameter
from libcalico.process import paths
from libcalico.selectors import selectors

ANNOTATION_PREFIX = "config.projectcalico.org/"
UNKNOWN = "is not a parameter of this release; ignored"
_BY_NAME = {parameter.name.lower(): parameter for parameter in PARAMETERS}
_TYPHA = {name.lower() for name in TYPHA}
_BY_FIELD = {parameter.field: parameter for parameter in PARAMETERS}


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that was refused, or an unknown name (`unknown`, which is less serious)."""

    source: str
    name: str
    value: str
    reason: str
    unknown: bool = False

    def __str__(self) -> str:
        return f"{self.source}: {self.name}={self.value!r}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The effective configuration, where each set value came from, and what was wrong."""

    config: Config
    origins: Mapping[str, str]
    problems: tuple[Problem, ...]


def resolve(
    node: str,
    *,
    environ: Mapping[str, str],
    file_text: str = "",
    stored: Mapping[str, Sections] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Resolved:
    """The configuration of a node with these labels.

    `stored` maps a FelixConfiguration's name to `{"spec": ..., "annotations": ...}`.
    """
    problems: list[Problem] = []
    raw: dict[str, tuple[str, object]] = {}
    stored = stored or {}
    sources = [
        _from_stored("FelixConfiguration(default)", stored.get("default"), problems),
        _selected(stored, labels or {}, problems),
        _from_stored(f"FelixConfiguration(node.{node})", stored.get(f"node.{node}"), problems),
        _from_file(file_text, problems),
        _from_environment(environ, problems),
    ]
    for source in sources:
        for parameter, origin, value in source:
            if value is not None and str(value) != "":
                raw[parameter.attribute] = (origin, value)
    values: dict[str, Any] = {}
    for parameter in PARAMETERS:
        if parameter.attribute not in raw:
            continue
        origin, value = raw[parameter.attribute]
        try:
            values[parameter.attribute] = _parse(parameter, value)
        except ValueError as error:
            reason = f"{error}; {parameter.default!r} is used"
            problems.append(Problem(origin, parameter.name, str(value), reason))
    return Resolved(Config(**values), {k: raw[k][0] for k in values}, tuple(problems))


def read_file(path: Path = paths.FELIX_CONFIG) -> str:
    """The text of felix.cfg; empty when there is none. Raises `OSError` otherwise.

    Bytes that are no UTF-8 are replaced: in a value they make a problem, in a comment none.
    """
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _parse(parameter: Parameter, value: object) -> object:
    if str(value).lower() == "none":
        zero = type(parameter.default)() if parameter.default is not None else None
        empty = parameter.parse is kinds.failsafes or isinstance(parameter.default, (str, float))
        if parameter.default is None or empty:
            return zero
        raise ValueError("must not be none")
    return parameter.parse(value)


Sections = Mapping[str, Mapping[str, object]]
"""The `spec` and the `annotations` of a stored FelixConfiguration."""
Values = Iterator[tuple[Parameter, str, object]]


def _from_environment(environ: Mapping[str, str], problems: list[Problem]) -> Values:
    for name, value in sorted(environ.items()):
        if not name.upper().startswith("FELIX_"):
            continue
        parameter = _known(name[len("FELIX_") :], value, "environment", problems)
        if parameter is not None:
            yield parameter, "environment", value


def _from_file(text: str, problems: list[Problem]) -> Values:
    if not text.strip():
        return
    import configparser  # few nodes have such a file

    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text if text.lstrip().startswith("[") else f"[global]\n{text}")
    except configparser.Error as error:
        problems.append(Problem("felix.cfg", "", "", f"cannot be read: {error}"))
        return
    for section in parser.sections():
        for name, value in parser.items(section):
            parameter = _known(name, value, "felix.cfg", problems)
            if parameter is not None:
                yield parameter, "felix.cfg", value


def _selected(
    stored: Mapping[str, Sections], labels: Mapping[str, str], problems: list[Problem]
) -> Values:
    """The values of the FelixConfigurations whose node selector matches this node."""
    taken: dict[str, tuple[str, object]] = {}
    for name in sorted(stored):
        if name == "default" or name.startswith("node."):
            continue
        origin, selector = f"FelixConfiguration({name})", stored[name]["spec"].get("nodeSelector")
        if not selector:
            reason = "must be set: neither `default` nor `node.<name>`; ignored"
            problems.append(Problem(origin, "nodeSelector", "", reason))
            continue
        try:
            if not selectors.parse(str(selector)).matches(labels):
                continue
        except InvalidValue as error:
            problems.append(Problem(origin, "nodeSelector", str(selector), f"{error}; ignored"))
            continue
        for parameter, _, value in _from_stored(origin, stored[name], problems):
            first, before = taken.setdefault(parameter.attribute, (origin, value))
            if before != value:
                problems.append(
                    Problem(origin, parameter.name, str(value), f"{first} says {before!r}, first")
                )
    by_attribute = {parameter.attribute: parameter for parameter in PARAMETERS}
    for attribute, (origin, value) in taken.items():
        yield by_attribute[attribute], origin, value


def _from_stored(origin: str, entry: Sections | None, problems: list[Problem]) -> Values:
    if entry is None:
        return
    for field, value in entry.get("spec", {}).items():
        if field == "nodeSelector":
            continue
        parameter = _BY_FIELD.get(field)
        if parameter is None:
            _without_effect(origin, field, value, problems)
            continue
        if parameter.local:
            reason = "is local to a node and not taken from the datastore"
            problems.append(Problem(origin, field, str(value), reason))
            continue
        yield parameter, origin, value
    for name, value in entry.get("annotations", {}).items():
        if name.startswith(ANNOTATION_PREFIX):
            parameter = _known(name[len(ANNOTATION_PREFIX) :], value, origin, problems)
            if parameter is not None and not parameter.local:
                yield parameter, origin, value


def _known(name: str, value: object, source: str, problems: list[Problem]) -> Parameter | None:
    parameter = _BY_NAME.get(name.lower())
    if parameter is None and name.lower() not in ELSEWHERE:
        _without_effect(source, name, value, problems)
    return parameter


def _without_effect(source: str, name: str, value: object, problems: list[Problem]) -> None:
    """Name a parameter that is not ours: Calico's without effect here, or an unknown one."""
    if name.lower() in _TYPHA:
        if str(value).lower() not in ("", "none"):
            reason = "not enforced: every felix reads the datastore itself"
            problems.append(Problem(source, name, str(value), reason))
        return
    row = felix_parameter(FIELD_OF.get(name.lower(), name))
    if row is None:
        problems.append(Problem(source, name, str(value), UNKNOWN, unknown=True))
    elif row.lacks(value):
        problems.append(Problem(source, name, str(value), f"not enforced: {row.why}"))
