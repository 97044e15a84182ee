"""`node drops`: denied packets of this node, with the policy and rule that denied them.

Tested in `tests/felix/kernel/test_drops.py`.
"""

from __future__ import annotations

import asyncio

import click

from calicoctl.cli import common_options, examples


@click.command(
    "drops",
    epilog=examples(
        "calicoctl node drops",
        "calicoctl node drops --follow --namespace shop",
    ),
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Tell each denied packet as it comes, until interrupted; at most 10 a second of a rule.",
)
@click.option(
    "--namespace",
    "-n",
    default="",
    metavar="NS",
    help="Only what policies of this namespace deny, and what its pods send or receive.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Form of the answer: a table and lines for people, or JSON (one object a line with -f).",
)
@common_options
def drops(follow: bool, namespace: str, output: str) -> None:
    """Tell who denied how many packets on this node, or follow them one by one.

    Asks felix of this node, as root. The counts are the kernel's, since each rule is as it is.
    While a follower runs, rules tell of denied packets (NFLOG groups 1 and 2); they decide
    nothing and go with the last follower.
    """
    from calicoctl.explaining import drops as felix_drops

    if follow:
        asyncio.run(felix_drops.follow(namespace, output))
        return
    click.echo(asyncio.run(felix_drops.counts(namespace, output)), nl=False)
