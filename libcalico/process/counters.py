"""Counters and gauges of this process, for its page of metrics.

A metric has a value for each set of labels. One thread counts; a page may be made in any.
Tested in tests/libcalico/test_counters.py, with Prometheus's own reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from libcalico.process.prometheus_text import Figure, Kind, labelled, page


class Source(Protocol):
    """What gives figures of one name."""

    name: str

    def figures(self) -> Iterator[Figure]: ...


class Registry:
    """The metrics of one page; a later one takes the place of its namesake."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}

    def add(self, source: Source) -> None:
        """Put a metric on the page."""
        self._sources[source.name] = source

    def page(self) -> bytes:
        """The page, with the metrics of the process itself."""
        return page(
            figure for source in list(self._sources.values()) for figure in source.figures()
        )


REGISTRY = Registry()


class Metric:
    """What gauges and counters have in common. `labels`: their names; values come in that order."""

    kind: Kind = "gauge"

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str] = (), *, registry: Registry = REGISTRY
    ) -> None:
        self.name = name
        self._meaning, self._labels = meaning, tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}
        registry.add(self)

    def value(self, *labels: str) -> float | None:
        """The present value, None where there is none."""
        return self._values.get(labels)

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Add to the value with these labels."""
        self._values[labels] = self._values.get(labels, 0.0) + by

    def remove(self, *labels: str) -> None:
        """Forget the value with these labels, if there is one."""
        self._values.pop(labels, None)

    def figures(self) -> Iterator[Figure]:
        """For the page."""
        samples = (
            (dict(sorted(zip(self._labels, labels, strict=True))), value)
            for labels, value in list(self._values.items())
        )
        yield from labelled(self.name, self._meaning, samples, self.kind)


class Gauge(Metric):
    """A value that goes up and down."""

    def set(self, value: float, *labels: str) -> None:
        """Say the value with these labels."""
        self._values[labels] = value

    def clear(self) -> None:
        """Forget the values of all labels."""
        self._values.clear()


class Counter(Metric):
    """A value that only grows; the page adds `_total` to its name."""

    kind: Kind = "counter"

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str] = (), *, registry: Registry = REGISTRY
    ) -> None:
        super().__init__(f"{name}_total", meaning, labels, registry=registry)
