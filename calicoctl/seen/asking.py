"""Asks the aggregator for flows, and finds it: by option, or by what felix is told.

Tested in tests/calicoctl/test_flows.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from calicoctl.seen.wanted import lets_through
from calicoctl.session import Options, datastore
from flows.client import Aggregator
from flows.place import Place
from flows.query import Filter, FlowQuery, Seen
from libcalico.errors import MuslinError
from libcalico.model.keys import ResourceKey

CONFIGURATION = ResourceKey("FelixConfiguration", "default")


async def address_of(options: Options) -> str:
    """HOST:PORT of `flowLogsGoldmaneServer` in the FelixConfiguration `default`. Raises
    MuslinError where nothing names an aggregator."""
    async with datastore(options) as store:
        entry = await store.get(CONFIGURATION)
    server = getattr(entry.value.spec, "flowLogsGoldmaneServer", None) if entry else None
    if not server:
        raise MuslinError(
            "no aggregator is named: give --aggregator HOST:PORT or GOLDMANE_ADDRESS, or set"
            " flowLogsGoldmaneServer in the FelixConfiguration default"
        )
    return str(server)


async def listed(
    place: Place, filters: tuple[Filter, ...], since: int, limit: int
) -> tuple[list[Seen], int]:
    """The newest flows that any filter lets through, and how many there are at most."""
    known: dict[int, Seen] = {}
    total = 0
    async with Aggregator(place) as goldmane:
        for chosen in filters:
            page = await goldmane.list(FlowQuery(start=since, filter=chosen, page_size=limit))
            total += page.total
            known.update((one.id, one) for one in page.flows)
    newest = sorted(known.values(), key=lambda one: (-one.flow.start, one.id))
    # What both ends have in the namespace is in both lists.
    if len(filters) > 1 and total <= 2 * limit:
        total = len(newest)
    return newest[:limit], total


async def followed(
    place: Place, filters: tuple[Filter, ...], since: int
) -> AsyncGenerator[Seen, None]:
    """Flows as they are complete, until the caller stops."""
    chosen = filters[0] if len(filters) == 1 else Filter()
    async with Aggregator(place) as goldmane, aclosing(goldmane.stream(chosen, since)) as stream:
        async for one in stream:
            if lets_through(filters, one.flow.key):
                yield one
