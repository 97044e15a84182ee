"""Every command shows in `--help` how it is typed, and what it shows there can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from calicoctl.cli import calicoctl

TYPED = re.compile(r"\bcalicoctl (?:[^|&>)'\"]|'[^']*'|\"[^\"]*\")+")


def commands(
    command: click.Command = calicoctl, context: click.Context | None = None
) -> Iterator[tuple[str, click.Command]]:
    """Every command and group with its path."""
    context = context or click.Context(calicoctl, info_name="calicoctl")
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, click.Context(below, info_name=name, parent=context))


ALL = dict(commands())


def lines_of(command: click.Command) -> list[str]:
    title, _, text = (command.epilog or "").partition("Examples:\n")
    assert title == "\b\n"
    return [line.strip() for line in text.splitlines()]


def parsed(words: list[str]) -> str:
    """The path of the command that the words name; raises UsageError for what it does not take."""
    context = calicoctl.make_context("calicoctl", words)
    with context:
        while isinstance(context.command, click.Group):
            rest = [*context._protected_args, *context.args]
            if not rest:
                break
            if context.parent is None:
                context.obj = dict(context.params)
            name, below, rest = context.command.resolve_command(context, rest)
            assert below is not None
            context = below.make_context(name, rest, parent=context)
    return context.command_path


@pytest.mark.parametrize("path", ALL)
def test_examples_of_a_command(path: str) -> None:
    typed = [found for line in lines_of(ALL[path]) for found in TYPED.findall(line)]
    assert typed, "no example"
    reached = [parsed(shlex.split(one)[1:]) for one in typed]
    # `explain SRC DST` is `explain flow SRC DST`.
    assert any(one == path or one.startswith(f"{path} ") for one in reached), reached
    text = ALL[path].get_help(click.Context(ALL[path], info_name=path))
    for line in lines_of(ALL[path]):
        assert line in text, "click must not wrap it"


def test_an_example_with_a_flag_that_is_not_there_is_found() -> None:
    for wrong in ("get nodes --no-such-flag", "no-such-command", "node bgp plan --out x"):
        with pytest.raises(click.UsageError):
            parsed(shlex.split(wrong))
