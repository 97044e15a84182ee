"""`cluster diags`: the flags; what happens is in `calicoctl.diags.cluster`."""

from __future__ import annotations

import re

import click

from calicoctl.cli import datastore_options, examples

_SINCE = re.compile(r"(\d+(\.\d+)?(ms|s|m|h))+|0")


def _since(ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    if text and not _SINCE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is no duration such as 5s, 30m or 2h")
    return "" if text == "0" else text


@click.command(
    "diags",
    epilog=examples(
        "calicoctl cluster diags",
        "calicoctl cluster diags --since 1h --focus-nodes node1,node2",
    ),
)
@click.option("--since", default="", metavar="DURATION", callback=_since, help="Logs since then.")
@click.option(
    "--max-logs",
    default=5,
    show_default=True,
    type=click.IntRange(min=0),
    help="Pods of each component whose logs are taken.",
)
@click.option(
    "--max-parallelism",
    default=10,
    show_default=True,
    type=click.IntRange(min=1),
    help="Requests at once.",
)
@click.option("--focus-nodes", default="", metavar="A,B", help="Nodes whose logs come first.")
@click.option("--skip-temp-dir-cleanup", is_flag=True, help="Keep the unpacked files as well.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="The archive.")
@datastore_options
def diags(
    since: str,
    max_logs: int,
    max_parallelism: int,
    focus_nodes: str,
    skip_temp_dir_cleanup: bool,
    output: str | None,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Gather the datastore's objects, and by kubectl pods, events and logs, in one archive.

    Passwords, tokens and private keys are removed before anything is written.
    """
    from pathlib import Path

    from calicoctl.commands.resources.common import options_of
    from calicoctl.diags import cluster

    cluster.run(
        cluster.DiagsSettings(
            options=options_of(config, allow_version_mismatch, context),
            since=since,
            max_logs=max_logs,
            max_parallelism=max_parallelism,
            focus_nodes=tuple(part.strip() for part in focus_nodes.split(",") if part.strip()),
            keep_folder=skip_temp_dir_cleanup,
            output=Path(output) if output else None,
        )
    )
