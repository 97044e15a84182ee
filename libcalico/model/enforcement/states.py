"""The states of a field of the data model, and the rows of the table that assigns them.

Tested in tests/libcalico/test_enforcement.py.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec


class State(enum.Enum):
    """The effect of a field."""

    ENFORCED = "enforced"
    IN_PART = "in part"
    STORED = "stored"
    INFORMATION = "information"


class Row(msgspec.Struct, frozen=True):
    """One row. `why` names the component that acts on the field, or the reason that none does.

    A `harmless` value asks for what happens anyway. `asks`, where given, decides by the value
    and the struct around it instead.
    """

    state: State
    why: str
    harmless: tuple[object, ...] = ()
    asks: Callable[..., bool] | None = None

    def lacks(self, value: object, around: object = None) -> bool:
        """Whether a set value asks for an effect that it does not have."""
        if self.state in (State.ENFORCED, State.INFORMATION):
            return False
        if self.asks is not None:
            return self.asks(value, around)
        return _plain(value) not in {_plain(harmless) for harmless in self.harmless}


def _plain(value: object) -> str:
    return str(value).lower()


Rows = dict[str, Row]


def enforced(why: str, *paths: str) -> Rows:
    """Fields that a component acts on."""
    return {path: Row(State.ENFORCED, why) for path in paths}


def stored(why: str, *paths: str, harmless: tuple[object, ...] = ()) -> Rows:
    """Fields that ask for something but that no component acts on."""
    return {path: Row(State.STORED, why, harmless) for path in paths}


def information(why: str, *paths: str) -> Rows:
    """Fields that ask for nothing."""
    return {path: Row(State.INFORMATION, why) for path in paths}


def below(path: str, names: str) -> list[str]:
    """The paths of the named fields below a path: `below("spec", "node pod")`."""
    return [f"{path}.{name}" for name in names.split()]
