"""`status`: how the whole cluster is. Tested in tests/calicoctl/test_status.py."""

from __future__ import annotations

import click

from calicoctl.cli import DIFFERS, datastore_options, examples
from calicoctl.commands.asking import asking_options, gathered
from calicoctl.commands.resources.common import echo_tree, options_of


@click.command(
    "status",
    epilog=examples(
        "calicoctl status",
        "calicoctl status --ask 10 -o wide",
        "calicoctl status --aggregator goldmane.example:7443",
        "calicoctl status --node node1 --node node2 -o json",
        "calicoctl status --exit-code",
    ),
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    help="Form of the answer: tables, the same with every node and more columns, or one object.",
)
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only this node; repeatable.")
@click.option(
    "--exit-code",
    is_flag=True,
    help="End with status 2 unless everything is known to be fine; a script wants to know.",
)
@asking_options
@datastore_options
def status(
    output: str,
    nodes: tuple[str, ...],
    exit_code: bool,
    ask: float | None,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
    **place: str | None,
) -> None:
    """Tell how the whole cluster is: nodes, versions, sessions, conditions, pools; worst first.

    The datastore says which nodes give signs of life, how full the pools are, and what
    CalicoNodeStatus objects hold. With an aggregator each node is asked for its sessions and
    conditions of now; with --ask it is asked for its sessions through the datastore. What is not
    known is said.

    Exit status: 0, also where something is wrong; 1 when it cannot be told. With --exit-code it is
    2 unless all nodes and pools are fine.
    """
    from calicoctl.status import judge, text, tree
    from calicoctl.status.values import Grade

    options = options_of(config, allow_version_mismatch, context)
    cluster = judge.judged(gathered(options, nodes, ask, place))
    if output in ("json", "yaml"):
        echo_tree(tree.of_status(cluster), output)
    else:
        click.echo(text.of_status(cluster, wide=output == "wide"), nl=False)
    if exit_code and cluster.grade is not Grade.FINE:
        raise click.exceptions.Exit(DIFFERS)
