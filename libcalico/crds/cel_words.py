"""A rule in CEL, and the conditions that the rules are made of.

A field of text that is empty counts as absent, as in Go's `omitempty`.
Tested in tests/libcalico/test_crds.py and tests/apiserver/test_crds.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression that must hold, and where it does not, a message and the field."""

    text: str
    message: str
    field: str = ""

    def as_schema(self) -> dict[str, str]:
        """The rule as x-kubernetes-validations has it."""
        schema = {"rule": self.text, "message": self.message}
        return {**schema, "fieldPath": f".{self.field}"} if self.field else schema


def text(name: str) -> str:
    """The condition that a field of text is there and not empty."""
    return f"(has(self.{name}) && self.{name} != '')"


def true(name: str) -> str:
    """The condition that a switch is on."""
    return f"(has(self.{name}) && self.{name})"


def some(name: str) -> str:
    """The condition that a list has entries."""
    return f"(has(self.{name}) && size(self.{name}) > 0)"


def among(name: str, values: frozenset[int | str | None]) -> str:
    """The condition that a field, number or text, is one of these."""
    comparisons = []
    for value in sorted((value for value in values if value is not None), key=str):
        literal = str(value) if isinstance(value, int) else f"'{value}'"
        comparisons.append(f"self.{name} == {literal}")
        if isinstance(value, int):
            comparisons.append(f"self.{name} == '{value}'")
    return f"({' || '.join(comparisons)})"


def apart(first: str, second: str) -> Rule:
    """Two fields of text of which only one may be set."""
    message = f"{second} is not allowed together with {first}"
    return Rule(f"!({text(first)} && {text(second)})", message, second)
