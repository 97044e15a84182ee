"""`node status`: what the processes of this node say of themselves, without root.

Tested in tests/calicoctl/test_node_status.py.
"""

from __future__ import annotations

import click

from calicoctl.cli import common_options, examples


@click.command(
    "status",
    epilog=examples(
        "calicoctl node status",
        "calicoctl node status -o wide",
    ),
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    help="Form of the answer: Calico's text and tables, the same with prefixes, graceful restart"
    " and conditions, or one object.",
)
@common_options
def status(output: str) -> None:
    """Show whether the node's processes run, and the state of its BGP peers.

    Below the tables stands why a session does not come up, and what to do. Exit status 1 when
    the node's agent does not run.
    """
    from calicoctl.commands.resources.common import echo, echo_tree
    from calicoctl.node import report

    node_report = report.gather()
    if output in ("json", "yaml"):
        echo_tree(report.as_tree(node_report), output)
        if not node_report.running:
            raise click.exceptions.Exit(1)
        return
    echo(report.as_text(node_report, wide=output == "wide"), "status")
