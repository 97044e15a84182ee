"""`node diags`: the flags; what happens is in `calicoctl.node.diags`."""

from __future__ import annotations

import click

from calicoctl.cli import common_options, config_option, examples


@click.command(
    "diags",
    epilog=examples(
        "calicoctl node diags",
        "calicoctl node diags -o node1.tar.gz",
    ),
)
@click.option("--log-dir", default="/var/log/calico", show_default=True, help="Where logs lie.")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), help="The archive; a new file by default."
)
@config_option
@common_options
def diags(log_dir: str, output: str | None, config: str | None) -> None:
    """Gather logs, routes, rules, sets, status and the datastore's objects in one archive.

    Passwords, tokens and private keys are removed before anything is written.
    """
    from calicoctl.node import diags as node_diags

    node_diags.run(log_dir, config, output)
