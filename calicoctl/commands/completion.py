"""`completion`: a shell's completion script. Tested in `tests/calicoctl/test_completion.py`."""

from __future__ import annotations

import click

from calicoctl import completing
from calicoctl.cli import common_options


@click.command("completion")
@click.argument("shell", type=click.Choice(completing.SHELLS))
@common_options
def completion(shell: str) -> None:
    """Print the completion script of bash, zsh or fish.

    For bash: source <(calicoctl completion bash)
    """
    click.echo(completing.script(shell))
