"""Desired, actual and the delta between them: the kernel as a set of tables.

Problem: start-up, restart, drift repair and the steady state must be one code path, and a
change must cost what it touches, not what the node holds. `DeltaTable` keeps both maps and the
set of keys in which they differ; it knows nothing of what the keys mean.

TABLE-1: `delta()` is exactly the difference of the two maps, after any sequence of operations.
TABLE-2: once a delta is committed (`committed`), the delta is empty.
Tested in tests/linux/test_delta_table.py (hypothesis).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, KeysView, Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Delta(NamedTuple, Generic[K, V]):
    """What must be written (`upserts`) and removed (`deletes`) to make actual equal desired."""

    upserts: dict[K, V]
    deletes: tuple[K, ...]

    def __bool__(self) -> bool:
        return bool(self.upserts or self.deletes)


class DeltaTable(Generic[K, V]):
    """Two maps and their difference. Not thread-safe: one owner."""

    __slots__ = ("_actual", "_desired", "_dirty")

    def __init__(self) -> None:
        self._desired: dict[K, V] = {}
        self._actual: dict[K, V] = {}
        self._dirty: dict[K, None] = {}

    @property
    def desired(self) -> Mapping[K, V]:
        """The desired map (read-only view)."""
        return MappingProxyType(self._desired)

    @property
    def actual(self) -> Mapping[K, V]:
        """What the kernel has, as far as we know (read-only view)."""
        return MappingProxyType(self._actual)

    def _judge(self, key: K) -> None:
        if key in self._desired:
            differs = key not in self._actual or self._desired[key] != self._actual[key]
        else:
            differs = key in self._actual
        if differs:
            self._dirty[key] = None
        else:
            self._dirty.pop(key, None)

    def want(self, key: K, value: V) -> None:
        """Desire `key` with this value."""
        self._desired[key] = value
        self._judge(key)

    def unwant(self, key: K) -> None:
        """Desire `key` no longer; unknown keys are fine."""
        if self._desired.pop(key, _MISSING) is not _MISSING:
            self._judge(key)

    def replace_desired(self, desired: Mapping[K, V]) -> None:
        """Desire exactly this map."""
        for key in [key for key in self._desired if key not in desired]:
            self.unwant(key)
        for key, value in desired.items():
            self.want(key, value)

    def saw(self, key: K, value: V) -> None:
        """The kernel has `key` with this value."""
        self._actual[key] = value
        self._judge(key)

    def lost(self, key: K) -> None:
        """The kernel does not have `key` (any more)."""
        if self._actual.pop(key, _MISSING) is not _MISSING:
            self._judge(key)

    def replace_actual(self, actual: Mapping[K, V]) -> None:
        """The kernel has exactly this map: what a full dump said."""
        for key in [key for key in self._actual if key not in actual]:
            self.lost(key)
        known = self._actual
        for key, value in actual.items():
            if known.get(key, _MISSING) != value:
                self.saw(key, value)

    def delta(self) -> Delta[K, V]:
        """The writes and deletes that are outstanding; costs what differs (TABLE-1)."""
        upserts: dict[K, V] = {}
        deletes: list[K] = []
        for key in self._dirty:
            if key in self._desired:
                upserts[key] = self._desired[key]
            else:
                deletes.append(key)
        return Delta(upserts, tuple(deletes))

    def committed(self, upserts: Mapping[K, V], deletes: Iterable[K] = ()) -> None:
        """The kernel accepted these changes (TABLE-2)."""
        for key, value in upserts.items():
            self.saw(key, value)
        for key in deletes:
            self.lost(key)

    def outstanding(self) -> KeysView[K]:
        """The keys that differ, oldest difference first; for a caller that takes a part of them."""
        return self._dirty.keys()

    def in_sync(self) -> bool:
        """Whether nothing is outstanding."""
        return not self._dirty

    def __len__(self) -> int:
        return len(self._desired)


_MISSING = object()
