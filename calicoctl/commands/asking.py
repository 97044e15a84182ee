"""Options of the commands that tell of all nodes: how the nodes are asked.

Tested in tests/calicoctl/test_status.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

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


def asking_options(command: F) -> F:
    """`--ask`; the function gets `ask`."""
    for option in (
        click.option(
            "--ask",
            type=Seconds(),
            default=None,
            metavar="SECONDS",
            help="Ask the nodes through the datastore, by a CalicoNodeStatus each that is deleted"
            " afterwards, and wait for so many seconds at most.",
        ),
    ):
        command = option(command)
    return command


def gathered(
    options: Options, nodes: Sequence[str], ask: float | None, *, routes: bool = False
) -> Facts:
    """The facts about the cluster, with what the nodes answered."""
    from calicoctl.status import gather
    from libcalico.process import unlooped

    wanted = gather.Wanted(nodes, ask or 0.0, routes=routes)
    return unlooped.run(gather.read(options, wanted))
