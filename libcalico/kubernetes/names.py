"""How objects of one kind are told apart."""

from __future__ import annotations

from typing import NamedTuple


class Name(NamedTuple):
    """Namespace (empty for kinds without) and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
