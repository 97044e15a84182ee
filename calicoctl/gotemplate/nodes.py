"""What a template is made of, once parsed. Tested in tests/calicoctl/test_gotemplate.py."""

from __future__ import annotations

from dataclasses import dataclass

from libcalico.errors import MuslinError


class TemplateError(MuslinError):
    """The template cannot be understood, or does not fit the data."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A string, number, boolean or nil."""

    value: object


@dataclass(frozen=True, slots=True)
class Chain:
    """Fields of something: of the dot (`base` None), a variable's name, or a pipeline."""

    base: str | Pipeline | None
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A function."""

    name: str


Operand = Constant | Chain | Name


@dataclass(frozen=True, slots=True)
class Command:
    """An operand, or a function and its arguments."""

    words: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands, each fed with the result of the one before; `declares`: `$a, $b :=`."""

    commands: tuple[Command, ...]
    declares: tuple[str, ...] = ()
    assigns: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Text outside of the braces."""

    text: str


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`, `range` or `with`, and its `else`."""

    keyword: str
    pipeline: Pipeline
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Jump:
    """`break` or `continue`."""

    keyword: str


Node = Text | Pipeline | Branch | Jump
