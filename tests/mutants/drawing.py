"""Which mutants a run takes: drawn by a seed, of every room its share."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import Change, changes

ROOMS = (
    "ipam",
    "cni",
    "controllers",
    "felix",
    "linux",
    "libcalico/datastore",
    "libcalico/conversion",
    "bgp",
    "flows",
)
LEAST = 300
"""Mutants of a run over all rooms."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change in one file, with the file's path below the root."""

    room: str
    file: str
    change: Change

    @property
    def name(self) -> str:
        """Without file and line, so that moves keep it."""
        return f"{self.room}: {self.change.name}"


def found(root: Path, room: str) -> list[Mutant]:
    """Every mutant of a room, in the order of their names; generated files are left out."""
    made = [
        Mutant(room, str(file.relative_to(root)), change)
        for file in sorted((root / room).rglob("*.py"))
        if not file.stem.endswith(("_pb2", "_pb2_grpc"))
        for change in changes(file.read_text())
    ]
    return sorted(made, key=lambda one: (one.name, one.file))


def shares(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """How many mutants each room gives: in proportion to its size, at least one. Pure."""
    everything = sum(sizes.values())
    return {
        room: min(size, max(1, -(-total * size // everything)))
        for room, size in sizes.items()
        if size
    }


def draw(everything: Mapping[str, Sequence[Mutant]], seed: int, total: int) -> list[Mutant]:
    """The mutants of a run. The same seed and code give the same ones. Pure."""
    dice = random.Random(seed)
    wanted = shares({room: len(mutants) for room, mutants in everything.items()}, total)
    return [
        mutant
        for room, count in sorted(wanted.items())
        for mutant in dice.sample(everything[room], count)
    ]
