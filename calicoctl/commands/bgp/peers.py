"""`bgp peers`: the sessions of all nodes. Tested in `tests/calicoctl/test_bgp_live.py`."""

from __future__ import annotations

import asyncio

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.asking import asking_options, gathered
from calicoctl.commands.resources.common import echo_tree, options_of

CONFIGURED = 200
"""Nodes without news for which the sessions that they should hold are worked out, at most."""


@click.command(
    "peers",
    epilog=examples(
        "calicoctl bgp peers",
        "calicoctl bgp peers --ask 10 --down",
        "calicoctl bgp peers --node node1 -o json",
    ),
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    help="Form of the answer: a session a line, the same with more columns, or one object.",
)
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only of this node.")
@click.option("--down", is_flag=True, help="Only sessions that are not known to be up.")
@asking_options
@datastore_options
def peers(
    output: str,
    nodes: tuple[str, ...],
    down: bool,
    ask: float | None,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
    **place: str | None,
) -> None:
    """Show the BGP sessions of all nodes with their state, those that are down first.

    Each end of a session between nodes is a line. The state is what the node said last: by
    CalicoNodeStatus, or now with --ask or an aggregator. Of a node that says nothing the sessions
    are shown that it is configured to hold, and their state is not known.
    """
    from calicoctl.routing import peers as listing
    from calicoctl.routing import reading
    from calicoctl.routing.topology import topology
    from calicoctl.status import judge

    options = options_of(config, allow_version_mismatch, context)
    status = judge.judged(gathered(options, nodes, ask, place))
    silent = [node.name for node in status.nodes if not node.sessions]
    configured = None
    if 0 < len(silent) <= CONFIGURED:
        view, _ = asyncio.run(reading.read_view(options))
        configured = topology(view, only=silent)
    sessions = listing.chosen(listing.of_status(status, configured), nodes, down)
    sources = {node.name: node.source for node in status.nodes}
    if output in ("json", "yaml"):
        echo_tree(listing.as_tree(sessions, sources, status.missing), output)
        return
    click.echo(listing.table(sessions, sources, wide=output == "wide"), nl=False)
    for sentence in (*status.unreadable, *status.missing):
        click.echo(sentence, err=True)
    for node, why in status.unanswered:
        click.echo(f"{node} did not answer: {why}", err=True)
