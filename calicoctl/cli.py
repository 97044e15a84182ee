"""The tree of commands, imported one by one: a command costs only its own imports.

`COMMANDS` is the root's table: name, where the code lies, and the line that `--help`
shows. A group below it is made by `lazy_group` with a table of the same shape, so nothing
of `ipam check` is imported for `ipam show`. Options that several commands share are the
decorators at the end. Tested in `tests/calicoctl/test_process.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., object])
Table = Mapping[str, tuple[str, str]]

COMMANDS: dict[str, tuple[str, str]] = {
    "create": ("calicoctl.commands.resources.write:create", "Create resources from a file."),
    "replace": ("calicoctl.commands.resources.write:replace", "Replace resources that exist."),
    "apply": (
        "calicoctl.commands.resources.write:apply",
        "Create or replace resources from a file.",
    ),
    "confirm": (
        "calicoctl.commands.resources.confirm:confirm",
        "Make an apply --confirm-within last.",
    ),
    "patch": ("calicoctl.commands.resources.patch:patch", "Change some fields of a resource."),
    "delete": (
        "calicoctl.commands.resources.delete:delete",
        "Delete resources by file or by name.",
    ),
    "get": ("calicoctl.commands.resources.get:get", "Show resources."),
    "label": ("calicoctl.commands.resources.label:label", "Set or remove a label of a resource."),
    "validate": (
        "calicoctl.commands.resources.validate:validate",
        "Check resources without storing them.",
    ),
    "convert": (
        "calicoctl.commands.resources.convert:convert",
        "Turn other documents into resources.",
    ),
    "explain": (
        "calicoctl.commands.explain.table:explain",
        "Explain why a packet is let in or dropped.",
    ),
    "trace": (
        "calicoctl.commands.trace:trace",
        "Follow a connection attempt through both nodes.",
    ),
    "policy": ("calicoctl.commands.policy.table:policy", "Foresee what policies would change."),
    "flows": ("calicoctl.commands.flows:flows", "Show what connected to what, and who decided."),
    "ipam": ("calicoctl.commands.ipam.table:ipam", "Manage IP addresses."),
    "node": ("calicoctl.commands.node.table:node", "Run, check and explain a node."),
    "status": ("calicoctl.commands.status:status", "Tell how the whole cluster is."),
    "bgp": ("calicoctl.commands.bgp.table:bgp", "Show the BGP of the cluster."),
    "connectivity": (
        "calicoctl.commands.connectivity.table:connectivity",
        "Test whether the network does what it should.",
    ),
    "cluster": (
        "calicoctl.commands.cluster.table:cluster",
        "Gather facts about the whole cluster.",
    ),
    "web": ("calicoctl.commands.web:web", "Show the network in a browser."),
    "datastore": ("calicoctl.commands.datastore.table:datastore", "Move or lock the datastore."),
    "completion": ("calicoctl.commands.completion:completion", "Print a shell's completion."),
    "version": ("calicoctl.commands.version:version", "Show the versions of client and cluster."),
}

LOG_LEVELS = ("panic", "fatal", "error", "warn", "warning", "info", "debug", "trace")
"""Calico's names, as `-l` takes them."""


def completed_by(function: str) -> Callable[..., list[CompletionItem]]:
    """What completes a word: a function of `calicoctl.terminal.completing_names`, imported then."""

    def complete(
        ctx: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        module = import_module("calicoctl.terminal.completing_names")
        items: list[CompletionItem] = getattr(module, function)(ctx, incomplete)
        return items

    return complete


class LazyGroup(click.Group):
    """A group whose commands are imported when one is run; `--help` imports none."""

    def __init__(self, *args: Any, table: Table, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.table)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` begin with; raises UsageError with a name that is near."""
        word = args[0]
        if word not in self.table and not word.startswith("-") and not ctx.resilient_parsing:
            from calicoctl.terminal import suggesting

            meant = suggesting.of_command(word, self.table)
            raise click.UsageError(f"No such command '{word}'. {meant}".rstrip(), ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of `--help`, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and options that begin so, from the table alone."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=line)
            for name, (_, line) in self.table.items()
            if name.startswith(incomplete)
        ]


def lazy_group(name: str, text: str, table: Table, epilog: str = "") -> LazyGroup:
    """A group of commands such as `ipam`: `table` as `COMMANDS`, `text` for its `--help`."""
    return LazyGroup(name, table=table, help=text, epilog=epilog)


def _log_level(ctx: click.Context, parameter: click.Parameter, level: str | None) -> None:
    # Before the command or behind it: the same option twice in one tree of contexts.
    if level is None:
        return
    if level.lower() not in LOG_LEVELS:
        raise click.BadParameter(f"{level!r} is none of {', '.join(LOG_LEVELS)}")
    if level.lower() not in ("panic", "fatal"):
        from libcalico.process import logs

        logs.configure("calicoctl", level.upper())


def _config(ctx: click.Context, parameter: click.Parameter, file: str | None) -> str | None:
    # Before the command or behind it; what stands nearer to the command counts.
    before = ctx.find_root().obj or {}
    return file if file is not None else before.get("config")


_CONFIG_OPTION = click.option(
    "-c",
    "--config",
    default=None,
    metavar="FILE",
    type=click.Path(),
    callback=_config,
    help="File with the connection settings; /etc/calico/calicoctl.cfg by default.",
)

_LOG_OPTION = click.option(
    "-l",
    "--log-level",
    default=None,
    expose_value=False,
    callback=_log_level,
    metavar="LEVEL",
    help=f"Messages on stderr from this level on: {', '.join(LOG_LEVELS)}; panic by default.",
)


def _colour(ctx: click.Context, parameter: click.Parameter, when: str | None) -> None:
    # Before the command or behind it; a command's context takes it over from the one before.
    if when is not None:
        ctx.color = {"always": True, "never": False}.get(when)


_COLOUR_OPTION = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default=None,
    expose_value=False,
    callback=_colour,
    help="Colours: auto is on a terminal, unless NO_COLOR is set.",
)


def _version(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from calicoctl.versions import CALICO, MUSLIN

        click.echo(f"calicoctl Muslin {MUSLIN} (Calico {CALICO})")
        ctx.exit()


def examples(*lines: str) -> str:
    """The end of a command's `--help`: each line is a command as it is typed, or a comment.

    Every command has some, as its `epilog` (`tests/calicoctl/test_examples.py`).
    """
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    epilog=examples(
        "calicoctl get nodes -o wide",
        "calicoctl apply -f policy.yaml",
        "calicoctl -c /root/other-cluster.cfg ipam show",
        "calicoctl explain shop/web-1 shop/db-0 --port 5432",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@_LOG_OPTION
@_COLOUR_OPTION
@_CONFIG_OPTION
@click.option("--context", default="", metavar="NAME", help="The kubeconfig context to use.")
@click.option("--allow-version-mismatch", is_flag=True, help="Allow another cluster version.")
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version of this program; `calicoctl version` shows the cluster's, too.",
)
@click.pass_context
def calicoctl(
    ctx: click.Context, config: str | None, context: str, allow_version_mismatch: bool
) -> None:
    """Manage the networks, policies, address pools and BGP peers of a cluster."""
    ctx.obj = {
        "config": config,
        "context": context,
        "allow_version_mismatch": allow_version_mismatch,
    }


DIFFERS = 2
"""The exit status of `--exit-code`; 1 is that of an error."""
EXIT_CODE = click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with 2 if anything would change, has a problem or is denied.",
)


def common_options(command: F) -> F:
    """The options of a command that needs no datastore: `-l` and `--color` act by themselves."""
    return _COLOUR_OPTION(_LOG_OPTION(command))


def config_option(command: F) -> F:
    """The option `-c` of a command that hands the settings on; the function gets `config`."""
    return _CONFIG_OPTION(command)


def datastore_options(command: F) -> F:
    """The options of every command that reads the datastore.

    The function gets `config`, `context` and `allow_version_mismatch`, to be joined by
    `commands.common.options_of`.
    """
    for option in (
        _CONFIG_OPTION,
        click.option("--context", default="", metavar="NAME", help="The kubeconfig context."),
        click.option("--allow-version-mismatch", is_flag=True, help="Allow another version."),
        _COLOUR_OPTION,
        _LOG_OPTION,
    ):
        command = option(command)
    return command


def file_options(command: F) -> F:
    """The options of every command that reads resources from files."""
    for option in (
        click.option(
            "-f",
            "--filename",
            default=None,
            metavar="FILE",
            type=click.Path(allow_dash=True),
            help="File, directory, or - for standard input.",
        ),
        click.option("-R", "--recursive", is_flag=True, help="Enter sub-directories of -f."),
        click.option("--skip-empty", is_flag=True, help="A file without resources is no error."),
        click.option(
            "-n",
            "--namespace",
            default="",
            metavar="NS",
            help="Namespace of the resources.",
            shell_complete=completed_by("of_namespaces"),
        ),
    ):
        command = option(command)
    return command
