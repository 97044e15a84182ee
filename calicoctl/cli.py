"""The tree of commands, imported one by one: a command costs only its own imports.

`COMMANDS` is the one table: name, where the code lies, and the line that `--help` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

COMMANDS: dict[str, tuple[str, str]] = {
    "get": ("calicoctl.commands.get:get", "Show resources."),
    "create": ("calicoctl.commands.write:create", "Create resources from a file."),
    "apply": ("calicoctl.commands.write:apply", "Create or replace resources from a file."),
    "replace": ("calicoctl.commands.write:replace", "Replace resources that exist."),
    "delete": ("calicoctl.commands.write:delete", "Delete resources by file or by name."),
    "validate": ("calicoctl.commands.validate:validate", "Check resources without storing them."),
    "convert": ("calicoctl.commands.convert:convert", "Turn Kubernetes objects into resources."),
    "ipam": ("calicoctl.commands.ipam:ipam", "Show who uses which address."),
    "node": ("calicoctl.commands.node:node", "Tell how this node is doing."),
    "version": ("calicoctl.commands.version:version", "Show the versions of client and cluster."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when one is run; `--help` imports none."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of `--help`, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items()])


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("-l", "--log-level", default="panic", help="Level of log messages on stderr.")
@click.option("--context", default="", help="Name of the kubeconfig context to use.")
@click.option("--allow-version-mismatch", is_flag=True, help="Allow another cluster version.")
@click.pass_context
def calicoctl(
    ctx: click.Context, log_level: str, context: str, allow_version_mismatch: bool
) -> None:
    """Manage networks, address pools and BGP peers of a cluster."""
    ctx.obj = {"allow_version_mismatch": allow_version_mismatch}
    if log_level.lower() not in ("panic", "fatal"):
        from libcalico import logs

        logs.configure("calicoctl", log_level.upper())


def datastore_options(command: F) -> F:
    """The options of every command that reads the datastore."""
    for option in (
        click.option("-c", "--config", default=None, help="File with the connection settings."),
        click.option("--context", default="", hidden=True),
        click.option("--allow-version-mismatch", is_flag=True, help="Allow another version."),
    ):
        command = option(command)
    return command


def file_options(command: F) -> F:
    """The options of every command that reads resources from files."""
    for option in (
        click.option("-f", "--filename", default=None, help="File, directory, or - for stdin."),
        click.option("-R", "--recursive", is_flag=True, help="Enter sub-directories of -f."),
        click.option("--skip-empty", is_flag=True, help="An empty file is no error."),
        click.option("-n", "--namespace", default="", help="Namespace of the resources."),
    ):
        command = option(command)
    return command
