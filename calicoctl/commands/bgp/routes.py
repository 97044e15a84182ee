"""`bgp routes`: which node has which route. Tested in `tests/calicoctl/test_bgp_routes.py`."""

from __future__ import annotations

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.asking import ask_option, gathered
from calicoctl.commands.resources.common import echo_tree, options_of


@click.command(
    "routes",
    epilog=examples(
        "calicoctl bgp routes --ask 10",
        "calicoctl bgp routes 10.65.1.7 --ask 10",
        "calicoctl bgp routes 10.65.0.0/16 --node node1 -o json",
    ),
)
@click.argument("prefix", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    help="Form of the answer: a route a line, or one object.",
)
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only of this node.")
@ask_option
@datastore_options
def routes(
    prefix: str | None,
    output: str,
    nodes: tuple[str, ...],
    ask: float | None,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Show the routes of all nodes, or those that lead to PREFIX or to a part of it.

    PREFIX is an address or a network; of one node the longest prefix comes first, for it decides.
    The routes are those of CalicoNodeStatus objects with the class Routes; --ask makes one for each
    node, and deletes it. A node whose routes are not known is named.
    """
    from calicoctl.routing import routes as listing
    from calicoctl.status.judge import peers_by_address

    options = options_of(config, allow_version_mismatch, context)
    goal = listing.parse_prefix(prefix) if prefix is not None else None
    facts = gathered(options, nodes, ask, {}, routes=True)
    named = peers_by_address(facts.nodes)
    answer = listing.of_reports(facts.reports, facts.names, facts.now, named, goal)
    if output == "table":
        click.echo(listing.table(answer), nl=False)
        if answer.unknown and ask is None:
            click.echo("--ask 10 asks every node through the datastore for 10 seconds.", err=True)
    else:
        echo_tree(listing.as_tree(answer), output)
