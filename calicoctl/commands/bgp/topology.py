"""`bgp topology`: who peers with whom, as configured, and the state of each session.

Tested in `tests/calicoctl/test_bgp_topology.py` and `test_bgp_live.py` on a real etcd.
"""

from __future__ import annotations

import asyncio

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.asking import asking_options, gathered
from calicoctl.commands.resources.common import options_of


@click.command(
    "topology",
    epilog=examples(
        "calicoctl bgp topology",
        "calicoctl bgp topology --ask 10 -o svg > topology.svg",
        "calicoctl bgp topology -o json",
    ),
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "dot", "mermaid", "svg", "json"]),
    default="table",
    help="Form of the answer: a session a line, a drawing for Graphviz, Markdown or a browser, or"
    " one object.",
)
@asking_options
@datastore_options
def topology(
    output: str,
    ask: float | None,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
    **place: str | None,
) -> None:
    """Show the sessions that all nodes are configured to hold, and their state.

    The state is what the nodes said last: by CalicoNodeStatus, or now with --ask or an aggregator.
    Drawings show it by colour and in words; a session that no node tells of is grey.

    A full mesh of more than 10 nodes is drawn as one place, and so are more than 40 nodes that are
    alike; a session that is down is drawn between its own two ends. Dashed, and named in the table:
    a session that only one of two nodes holds.
    """
    from calicoctl.routing import drawing, reading, states
    from calicoctl.routing.topology import topology as of_view
    from calicoctl.status import judge

    options = options_of(config, allow_version_mismatch, context)
    view, unreadable = asyncio.run(reading.read_view(options))
    status = judge.judged(gathered(options, (), ask, place))
    sessions = [one for node in status.nodes for one in node.sessions]
    for sentence in dict.fromkeys((*unreadable, *status.missing)):
        click.echo(sentence, err=True)
    for node, why in status.unanswered:
        click.echo(f"{node} did not answer: {why}", err=True)
    click.echo(drawing.FORMS[output](states.with_states(of_view(view), sessions)), nl=False)
