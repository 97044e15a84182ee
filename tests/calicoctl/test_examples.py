"""Every command shows in `--help` how it is typed, and what it and the pages show can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from calicoctl.cli import calicoctl
from tests import listed, prose

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


SPANS = re.compile(r"^```.*?^```|^ {4}.*?$|`[^`]+`", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"(?<![\w/.-])calicoctl ([^|;&<>#`()]+)")


def named(page: str) -> Iterator[list[str]]:
    """The words behind `calicoctl` in the code of a page, placeholders such as FILE among them."""
    for span in SPANS.findall(page.replace("\\\n", " ")):
        text = span if span.startswith(("```", "    ")) else " ".join(span.split())
        for line in text.splitlines():
            for typed in NAMED.findall(line):
                yield re.sub(r"[\[\]'\"]", "", typed).split()


def refused(words: list[str]) -> str:
    """The first word that is no command and no option where it stands; empty: there is none."""
    context = calicoctl.make_context("calicoctl", [], resilient_parsing=True)
    command: click.Command = calicoctl
    of_a_flag = False
    for word in words:
        if of_a_flag:
            of_a_flag = False
        elif word.startswith("--") and len(word) > 2:
            flag, equals, _ = word.partition("=")
            known = {
                name: one for one in command.params for name in (*one.opts, *one.secondary_opts)
            }
            if flag not in known and flag != "--help":
                return f"{context.command_path}: {flag}"
            one = known.get(flag)
            of_a_flag = not equals and isinstance(one, click.Option) and not one.is_flag
        elif isinstance(command, click.Group) and not word.startswith("-"):
            # `explain SRC DST` is `explain flow SRC DST`.
            below = command.get_command(context, word) or command.get_command(context, "flow")
            if below is None:
                return f"{context.command_path}: {word}" if word.islower() else ""
            command = below
            context = click.Context(below, info_name=word, parent=context)
    return ""


def test_what_the_pages_name_can_be_typed() -> None:
    pages = {
        name: text for name, text in prose.pages(listed.ROOT).items() if "/design/" not in name
    }
    typed = [(name, words) for name, text in pages.items() for words in named(text)]
    assert len(typed) > 150
    assert [(name, wrong) for name, words in typed if (wrong := refused(words))] == []


def test_a_page_with_a_flag_that_is_not_there_is_found() -> None:
    page = (
        "```\n$ calicoctl get nodes \\\n  --no-such-flag\n```\nand `calicoctl ipam sow [-o wide]`\n"
    )
    page += "\n    calicoctl status --node --no --ask=3\n"
    assert [refused(words) for words in named(page)] == [
        "calicoctl get: --no-such-flag", "calicoctl ipam: sow", "",
    ]  # fmt: skip
