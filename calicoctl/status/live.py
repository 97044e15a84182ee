"""Asks nodes live, through the aggregator's question `status`, each for its status files.

The aggregator's client comes in as an argument, so that a command without an aggregator imports
nothing of it. Tested in `tests/calicoctl/test_status_live.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Protocol

from calicoctl.status.documents import PROCESSES
from calicoctl.status.facts import Answer
from libcalico.errors import MuslinError

QUESTION = "status"
SECONDS = 10.0
"""How long nodes have to answer."""


class Told(Protocol):
    """One answer of a node, as `flows.client.NodeAnswer` has it."""

    @property
    def node(self) -> str: ...
    @property
    def answer(self) -> Mapping[str, object] | None: ...
    @property
    def finished(self) -> bool: ...
    @property
    def error(self) -> str: ...


class Asks(Protocol):
    """What asks nodes: `flows.client.Aggregator`."""

    def ask(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        nodes: Iterable[str] = (),
        seconds: float = SECONDS,
    ) -> AsyncIterator[Told]: ...


async def answers(asks: Asks, names: list[str], seconds: float = SECONDS) -> dict[str, Answer]:
    """What each of these nodes answered, or why it did not. Raises MuslinError where the
    aggregator itself does not answer and nothing came before that."""
    answered: dict[str, Answer] = {}
    problem = "no answer came"
    try:
        async for reply in asks.ask(QUESTION, nodes=names, seconds=seconds):
            if reply.answer is not None:
                answered[reply.node] = Answer(documents_of(reply.answer))
            elif reply.error:
                answered.setdefault(reply.node, Answer(error=reply.error))
    except MuslinError as error:
        if not answered:
            raise
        problem = str(error)
    return {name: answered.get(name) or Answer(error=problem) for name in names}


def documents_of(answer: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """The status files in an answer; one that is missing or no object is left out."""
    return {
        process: document
        for process in PROCESSES
        if isinstance(document := answer.get(process), Mapping)
    }
