"""Flows for a recommendation: from the aggregator, or from a file of JSON lines.

Tested in tests/calicoctl/test_recommend.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flows.query import Filter, FlowQuery, SortBy, Text
from flows.record import Flow
from flows.written import read_line
from libcalico.errors import MuslinError

if TYPE_CHECKING:
    from flows.place import Place

PAGE = 10_000


def from_file(name: str) -> list[Flow]:
    """The flows of a file, one a line, as exports and `flows -o json` write them; `-`: stdin.

    Raises MuslinError, naming file and line.
    """
    return list(_lines(name))


def _lines(name: str) -> Iterator[Flow]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MuslinError(f"flows cannot be read from {name}: {error}") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield read_line(line, f"{name}, line {number}")


async def from_aggregator(place: Place, namespace: str, seconds: int) -> list[Flow]:
    """The flows of the last `seconds` (0: all that there is) with an end in a namespace.

    Raises AggregatorError.
    """
    from flows.client import Aggregator

    name = (Text(namespace),)
    flows: list[Flow] = []
    async with Aggregator(place) as aggregator:
        for chosen in (Filter(source_namespaces=name), Filter(destination_namespaces=name)):
            page = pages = 0
            while not pages or page < pages:
                # By name: Goldmane shuffles flows of one start, so that pages by time overlap.
                query = FlowQuery(
                    -seconds, 0, chosen, (SortBy.SOURCE_NAME,), page=page, page_size=PAGE
                )
                listing = await aggregator.list(query)
                flows += [seen.flow for seen in listing.flows]
                page, pages = page + 1, max(listing.pages, 1)
    return flows
