"""Options of the commands that tell of all nodes: how the nodes are asked.

Tested in tests/calicoctl/test_status.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from calicoctl.commands.aggregator import aggregator_options, place_of
from calicoctl.session import Options

if TYPE_CHECKING:
    from calicoctl.status.facts import Facts

F = TypeVar("F", bound=Callable[..., object])
MOST_SECONDS = 600


class Seconds(click.FloatRange):
    """Seconds, more than none."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0, max=MOST_SECONDS, min_open=True)


def ask_option(command: F) -> F:
    """`--ask`; the function gets `ask`."""
    option = click.option(
        "--ask",
        type=Seconds(),
        default=None,
        metavar="SECONDS",
        help="Ask the nodes through the datastore, by a CalicoNodeStatus each that is deleted"
        " afterwards, and wait for so many seconds at most.",
    )
    return option(command)


def asking_options(command: F) -> F:
    """`--ask` and the options of the aggregator; the function gets `ask`, and the others in
    keywords that `gathered` takes."""
    return ask_option(aggregator_options(command))


def gathered(
    options: Options,
    nodes: Sequence[str],
    ask: float | None,
    place: Mapping[str, str | None],
    *,
    routes: bool = False,
) -> Facts:
    """The facts about the cluster, with what the nodes answered.

    `place`: the values of the aggregator's options. Without an aggregator, `Facts.missing` says
    how to get one where something is missing that only it could tell.
    """
    from calicoctl.status import gather
    from libcalico.process import unlooped

    request = gather.Wanted(nodes, ask or 0.0, routes=routes)
    if not place.get("aggregator"):
        return unlooped.run(gather.read(options, request))
    import asyncio

    from flows.client import Aggregator

    async def asked() -> Facts:
        async with Aggregator(place_of(place)) as aggregator:
            return await gather.read(options, request, aggregator)

    return asyncio.run(asked())
