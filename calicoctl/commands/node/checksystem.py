"""`node checksystem`: `calico-node checksystem` knows the kernel, so it is run instead of us.

Tested in tests/calicoctl/test_node_run.py.
"""

from __future__ import annotations

import click

from calicoctl.cli import common_options, config_option, examples


@click.command(
    "checksystem",
    epilog=examples(
        "calicoctl node checksystem",
        "calicoctl node checksystem --offline -o json",
    ),
)
@click.option(
    "-f",
    "--kernel-config",
    metavar="FILE",
    type=click.Path(),
    help="Kernel configuration to find built-in modules in (plain or gzip).",
)
@config_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Form of the results.",
)
@click.option("--only", metavar="ID,...", help="Run these checks only.")
@click.option("--offline", is_flag=True, help="Ask neither the datastore nor other nodes.")
@common_options
def checksystem(
    kernel_config: str | None, config: str | None, output: str, only: str | None, offline: bool
) -> None:
    """Check what this machine must have to be a node; exit status 1 if something required lacks."""
    from calicoctl.node import program

    arguments = ["checksystem", "--output", output]
    for flag, value in (("--kernel-config", kernel_config), ("--config", config), ("--only", only)):
        if value is not None:
            arguments += [flag, value]
    program.replace_us([*arguments, *(["--offline"] if offline else [])])
