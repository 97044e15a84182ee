"""The aggregator, asked for nodes' words and for flows; without one the page says how to get it.

Tested in tests/web/test_asking.py against an aggregator of the test's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from libcalico.errors import MuslinError
from web.cleaning import cleaned
from web.facts.facts import Facts
from web.facts.words import AGGREGATOR, ROOMS, Word, of_documents, silent

if TYPE_CHECKING:
    from flows.place import Place
    from flows.query import FlowQuery, Listing

WITHOUT = (
    "There is no aggregator: flows are not known, and of nodes only what files here or a"
    " CalicoNodeStatus say. To get one, run calico-goldmane (docs/web.md), let felix send to it,"
    " and start this page with --aggregator HOST:PORT and its certificates."
)
STATUS = "status"
SECONDS = 8.0
"""How long nodes may take to tell their status."""


class Asking:
    """Questions to the aggregator at `place`; None: there is none."""

    def __init__(self, place: Place | None) -> None:
        self._place = place

    @property
    def there(self) -> bool:
        """Whether an aggregator was named."""
        return self._place is not None

    async def enrich(self, facts: Facts) -> Facts:
        """The facts with the words of all nodes that attend; files win over the aggregator."""
        if self._place is None:
            return replace(facts, aggregator=WITHOUT)
        try:
            words = await self._words()
        except MuslinError as problem:
            return replace(facts, aggregator=str(cleaned(str(problem))))
        return replace(facts, words={**words, **facts.words})

    async def _words(self) -> dict[str, Word]:
        from flows.client import Aggregator

        assert self._place is not None
        words: dict[str, Word] = {}
        async with Aggregator(self._place) as aggregator:
            async for reported in aggregator.ask(STATUS, seconds=SECONDS):
                if reported.answer is not None:
                    words[reported.node] = _word(reported.node, reported.answer)
                elif reported.error and reported.node not in words:
                    words[reported.node] = silent(reported.node, str(cleaned(reported.error)))
        return words

    async def flows(self, query: FlowQuery) -> tuple[Listing | None, str]:
        """The flows that a query asks for, or why there are none."""
        if self._place is None:
            return None, WITHOUT
        from flows.client import Aggregator

        try:
            async with Aggregator(self._place, SECONDS) as aggregator:
                return await aggregator.list(query), ""
        except MuslinError as problem:
            return None, str(cleaned(str(problem)))


def _word(node: str, answer: Mapping[str, object]) -> Word:
    """The word of a node from its answer to `status`: a document for each room."""
    documents: dict[str, Mapping[str, object] | None] = {}
    for room in ROOMS:
        document = answer.get(room)
        documents[room] = document if isinstance(document, Mapping) else None
    return of_documents(node, documents, datetime.now(UTC), AGGREGATOR)
