"""`completion`: a shell's completion script. Tested in `tests/calicoctl/test_completion.py`."""

from __future__ import annotations

import click

from calicoctl import completing
from calicoctl.cli import common_options, examples


@click.command(
    "completion",
    epilog=examples(
        "source <(calicoctl completion bash)",
        "calicoctl completion zsh > ~/.zfunc/_calicoctl",
        "calicoctl completion fish > ~/.config/fish/completions/calicoctl.fish",
    ),
)
@click.argument("shell", type=click.Choice(completing.SHELLS))
@common_options
def completion(shell: str) -> None:
    """Print the completion script of bash, zsh or fish.

    Kinds, names of resources, options and their values are completed.
    """
    click.echo(completing.script(shell))
