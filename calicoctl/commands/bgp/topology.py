"""`bgp topology`: who peers with whom, as configured.

Tested in `tests/calicoctl/test_bgp_topology.py` on a real etcd.
"""

from __future__ import annotations

import asyncio

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of


@click.command(
    "topology",
    epilog=examples(
        "calicoctl bgp topology",
        "calicoctl bgp topology -o svg > topology.svg",
    ),
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "dot", "mermaid", "svg"]),
    default="table",
    help="Form of the answer: a session a line, or a drawing for Graphviz, Markdown or a browser.",
)
@datastore_options
def topology(output: str, config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Show the sessions that all nodes are configured to hold.

    Drawings show a full mesh of more than 10 nodes as one place. Dashed, and named in the table:
    a session that only one of two nodes holds.
    """
    from calicoctl.routing import drawing, reading
    from calicoctl.routing.topology import topology as of_view

    options = options_of(config, allow_version_mismatch, context)
    view, unreadable = asyncio.run(reading.read_view(options))
    for sentence in unreadable:
        click.echo(sentence, err=True)
    click.echo(drawing.FORMS[output](of_view(view)), nl=False)
