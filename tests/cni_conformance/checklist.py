"""The conformance checklist: every id with verb, level and what it asks (`checklist.tsv`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("checklist.tsv")


@dataclass(frozen=True)
class Requirement:
    """One line. `level`: MUST, SHOULD, MAY of the specification; REF, CLI, CAL, RULE by others."""

    id: str
    verb: str
    level: str
    who: str
    versions: str
    text: str


@cache
def requirements() -> dict[str, Requirement]:
    """All, by id, in the order of the list."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    found = [Requirement(*line.split("\t")) for line in lines]
    return {each.id: each for each in found}
