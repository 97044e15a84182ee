"""What the kernel told and was asked: counted for the metrics.

Tested in tests/felix/reports/test_metrics.py and tests/felix/dataplane/test_heard.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from libcalico.process.summaries import Summary
from linux.monitor.events import AddressChanged, Event, LinkChanged


@dataclass(frozen=True, slots=True)
class Heard:
    """`links` and `addresses`: notifications about these that came at once.

    `route_reads`: seconds that each reading of all routes took.
    """

    links: Summary = field(default_factory=Summary)
    addresses: Summary = field(default_factory=Summary)
    route_reads: Summary = field(default_factory=Summary)

    def count(self, events: Iterable[Event]) -> None:
        """Count notifications that came at once."""
        links = addresses = 0
        for event in events:
            links += isinstance(event, LinkChanged)
            addresses += isinstance(event, AddressChanged)
        if links:
            self.links.observe(links)
        if addresses:
            self.addresses.observe(addresses)
