"""Objects that hold a kernel handle are closed at the end of their `with` block.

Tested in tests/linux/test_netlink.py, and by every `with` in tests/linux.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A context manager whose exit is `close`."""

    @abstractmethod
    def close(self) -> None:
        """Gives the handle back; twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()
