"""Metrics of the controllers, as Prometheus reads them. Names of Calico's where there are such.

Tested in tests/monitoring/test_monitoring.py and tests/controllers/test_leaks.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from controllers.addresses.collection import Collection
from controllers.addresses.counts import Counts, Pair
from libcalico.process.prometheus_text import Figure, Kind, labelled, page


class Queue(Protocol):
    """The names that wait, and how many failed last."""

    failing: int

    def __len__(self) -> int: ...


@runtime_checkable
class Working(Protocol):
    """A part that works through a queue."""

    name: str
    writes: int

    @property
    def in_sync(self) -> bool: ...

    @property
    def queue(self) -> Queue: ...


def render(*, works: bool, parts: Iterable[object], collection: Collection | None) -> bytes:
    """The text of all metrics, as of now; `works`: this process, of all, does the work."""
    figures = [
        Figure("muslin_controllers_leading", "This process works.", works),
        *_of_parts([part for part in parts if isinstance(part, Working)]),
    ]
    if collection is not None:
        figures += _of_collection(collection)
    own = page(figures)
    return own if collection is None else own + _IPAM.page(collection.counts)


def _of_parts(parts: Sequence[Working]) -> Iterator[Figure]:
    told: tuple[tuple[str, str, Kind, Callable[[Working], float]], ...] = (
        ("queue", "Names that wait.", "gauge", lambda part: len(part.queue)),
        ("failing", "Names that failed last.", "gauge", lambda part: part.queue.failing),
        ("in_sync", "Both sides are read, and nothing waits.", "gauge", lambda part: part.in_sync),
        ("writes_total", "Objects written.", "counter", lambda part: part.writes),
    )
    for name, text, kind, value in told:
        samples = (({"controller": part.name}, value(part)) for part in parts)
        yield from labelled(f"muslin_controllers_{name}", text, samples, kind)


def _of_collection(collection: Collection) -> Iterator[Figure]:
    text = "Nodes that Kubernetes has not, and that keep what they hold for now."
    yield Figure("muslin_controllers_nodes_held", text, collection.nodes_held)
    released = _by_pair(collection.released)
    name = "ipam_allocations_gc_reclamations"
    yield from labelled(name, "Addresses that came back.", released, "counter")


class Ipam:
    """The page of the counts, made once for each look: a large cluster has many thousand lines."""

    def __init__(self) -> None:
        self._counts: Counts | None = None
        self._page = b""

    def page(self, counts: Counts) -> bytes:
        """The text of these; `counts` are never changed, a look makes others."""
        if counts is not self._counts:
            self._counts, self._page = counts, ipam(counts)
        return self._page


_IPAM = Ipam()


def ipam(counts: Counts) -> bytes:
    """The counts of the collection's last look, by pool and node, and by node alone."""
    return page(_of_counts(counts), process=False)


def _of_counts(counts: Counts) -> Iterator[Figure]:
    for name, text, values in (
        ("ipam_allocations_in_use", "Addresses in use.", counts.in_use),
        ("ipam_allocations_borrowed", "Addresses in others' blocks.", counts.borrowed),
        ("ipam_blocks", "Blocks.", counts.blocks),
        ("ipam_allocations_gc_candidates", "Look unused.", counts.candidates),
    ):
        yield from labelled(name, text, _by_pair(values))
    for name, text, values in (
        ("ipam_allocations_per_node", "Addresses in use.", counts.in_use),
        ("ipam_allocations_borrowed_per_node", "Addresses in others' blocks.", counts.borrowed),
        ("ipam_blocks_per_node", "Blocks.", counts.blocks),
    ):
        by_node: Counter[str] = Counter()
        for (_, node), value in values.items():
            by_node[node] += value
        yield from labelled(name, text, (({"node": node}, n) for node, n in by_node.items()))
    for name, text, numbers in (
        ("ipam_ippool_size", "Addresses of a pool.", counts.sizes),
        ("ipam_ippool_reserved", "Addresses of a pool in an IPReservation.", counts.reserved),
    ):
        yield from labelled(name, text, (({"ippool": pool}, n) for pool, n in numbers.items()))


def _by_pair(values: Mapping[Pair, int]) -> Iterator[tuple[dict[str, str], float]]:
    for (pool, node), value in values.items():
        yield {"ippool": pool, "node": node}, value
