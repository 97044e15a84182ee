"""The parts of a template of JSON paths. Tested in `tests/calicoctl/test_jsonpath.py`."""

from __future__ import annotations

from typing import Any

import msgspec

from libcalico.errors import MuslinError


class JSONPathError(MuslinError):
    """A template that is not understood, or that does not fit the data."""


class Field(msgspec.Struct, frozen=True):
    """A member of a mapping."""

    name: str


class Wildcard(msgspec.Struct, frozen=True):
    """All members of a mapping or a list."""


class Recursive(msgspec.Struct, frozen=True):
    """The value, and all mappings and lists below it."""


class Slice(msgspec.Struct, frozen=True):
    """Items of a list; `single` for an index, which must be there."""

    start: int | None
    stop: int | None = None
    step: int | None = None
    single: bool = False


class Union(msgspec.Struct, frozen=True):
    """What several paths find, one after the other."""

    paths: tuple[Path, ...]


class Literal(msgspec.Struct, frozen=True):
    """Quoted text, a number, true or false."""

    value: Any


class Filter(msgspec.Struct, frozen=True):
    """Items of a list for which a comparison holds; with no operator, those that have `left`."""

    left: Path
    operator: str = ""
    right: Path = ()


Step = Field | Wildcard | Recursive | Slice | Union | Literal | Filter
Path = tuple[Step, ...]


class Text(msgspec.Struct, frozen=True):
    """Text outside of braces."""

    text: str


class Show(msgspec.Struct, frozen=True):
    """`{...}`: print what a path finds."""

    path: Path


class Range(msgspec.Struct, frozen=True):
    """`{range ...}` up to its `{end}`: the body for each value that the path finds."""

    path: Path
    body: tuple[Node, ...]


Node = Text | Show | Range
