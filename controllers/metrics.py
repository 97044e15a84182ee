"""Metrics of the controllers, as Prometheus reads them. Names of Calico's where there are such.

Tested in tests/monitoring/test_monitoring.py and tests/controllers/test_leaks.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from controllers.addresses.collection import Collection
from controllers.addresses.counts import Counts


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
    registry = CollectorRegistry()
    leading = Gauge("muslin_controllers_leading", "This process works.", registry=registry)
    leading.set(works)
    queue = Gauge("muslin_controllers_queue", "Names that wait.", ["controller"], registry=registry)
    failing = Gauge(
        "muslin_controllers_failing", "Names that failed last.", ["controller"], registry=registry
    )
    in_sync = Gauge(
        "muslin_controllers_in_sync",
        "Both sides are read, and nothing waits.",
        ["controller"],
        registry=registry,
    )
    writes = Counter(
        "muslin_controllers_writes", "Objects written.", ["controller"], registry=registry
    )
    for part in parts:
        if isinstance(part, Working):
            queue.labels(part.name).set(len(part.queue))
            in_sync.labels(part.name).set(part.in_sync)
            failing.labels(part.name).set(part.queue.failing)
            writes.labels(part.name).inc(part.writes)
    page = generate_latest(registry)
    if collection is not None:
        page += _IPAM.page(collection.counts) + _released(collection.released)
        page += _held(collection.nodes_held)
    return page


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
    """The counts of the collection's last look, by pool and node."""
    registry = CollectorRegistry()
    for name, text, values in (
        ("ipam_allocations_in_use", "Addresses in use.", counts.in_use),
        ("ipam_allocations_borrowed", "Addresses in others' blocks.", counts.borrowed),
        ("ipam_blocks", "Blocks.", counts.blocks),
        ("ipam_allocations_gc_candidates", "Look unused.", counts.candidates),
    ):
        gauge = Gauge(name, text, ["ippool", "node"], registry=registry)
        for (pool, node), value in values.items():
            gauge.labels(pool, node).set(value)
    sizes = Gauge("ipam_ippool_size", "Addresses of a pool.", ["ippool"], registry=registry)
    for pool, size in counts.sizes.items():
        sizes.labels(pool).set(size)
    reserved = Gauge(
        "ipam_ippool_reserved",
        "Addresses of a pool in an IPReservation.",
        ["ippool"],
        registry=registry,
    )
    for pool, number in counts.reserved.items():
        reserved.labels(pool).set(number)
    return generate_latest(registry)


def _held(number: int) -> bytes:
    registry = CollectorRegistry()
    text = "Nodes that Kubernetes has not, and that keep what they hold for now."
    Gauge("muslin_controllers_nodes_held", text, registry=registry).set(number)
    return generate_latest(registry)


def _released(number: int) -> bytes:
    registry = CollectorRegistry()
    name = "ipam_allocations_gc_reclamations"
    Counter(name, "Addresses that came back.", registry=registry).inc(number)
    return generate_latest(registry)
