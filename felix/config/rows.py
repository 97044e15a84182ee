"""What a row of the table of parameters is, and how a field of `Config` becomes one.

Tested in tests/felix/config/test_config.py.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from felix.config import kinds


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row of the table.

    `local` ones are never taken from the datastore. A change of a `restart` one ends felix in
    order; its supervisor starts it again, and the kernel's tables stay meanwhile.
    """

    name: str
    attribute: str
    parse: kinds.Parser
    default: object
    field: str
    doc: str
    local: bool = False
    restart: bool = False

    @property
    def env(self) -> str:
        """Its name in the environment."""
        return f"FELIX_{self.name.upper()}"


def row(
    name: str,
    parse: kinds.Parser,
    default: object,
    doc: str,
    *,
    field: str = "",
    local: bool = False,
    restart: bool = False,
) -> Any:
    """A field of `Config`: its default, and what a `Parameter` says of it."""
    field = field or name[0].lower() + name[1:]
    return dataclasses.field(
        default=default,
        metadata={
            "name": name,
            "parse": parse,
            "field": field,
            "doc": doc,
            "local": local,
            "restart": restart,
        },
    )


def table_of(config: type[Any]) -> tuple[Parameter, ...]:
    """The rows of a class whose fields were made with `row`."""
    return tuple(
        Parameter(attribute=one.name, default=one.default, **one.metadata)
        for one in dataclasses.fields(config)
    )
