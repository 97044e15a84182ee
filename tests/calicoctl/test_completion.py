"""Completion, manual pages and the kubectl form: all of it from the parser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from calicoctl import completing, manpages
from calicoctl.cli import COMMANDS, calicoctl
from calicoctl.main import program_of, run

BIN = Path(sys.executable).parent


@pytest.mark.promise("F-106")
@pytest.mark.parametrize("shell", completing.SHELLS)
def test_a_script_for_every_shell(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    text = capfd.readouterr().out
    assert "_CALICOCTL_COMPLETE" in text
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_commands_kinds_and_options() -> None:
    def asked(line: str) -> list[str]:
        words = line.split(" ")
        environ = {**os.environ, "_CALICOCTL_COMPLETE": "bash_complete"}
        environ |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        done = subprocess.run(
            [sys.executable, "-m", "calicoctl.main"],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return [found.partition(",")[2] for found in done.stdout.splitlines()]

    assert asked("calicoctl va") == ["validate"]
    assert asked("calicoctl get globalnet") == ["globalnetworkpolicies", "globalnetworksets"]
    assert "--skip-not-exists" in asked("calicoctl delete --skip")
    assert set(asked("calicoctl patch pool p1 --type ")) == {"strategic", "json", "merge"}
    assert set(asked("calicoctl ")) == set(COMMANDS)


def test_kubectl_reads_words_and_a_directive() -> None:
    assert completing.for_kubectl(["val"]) == (
        "validate\tCheck resources without storing them.\n:4\n"
    )
    assert completing.for_kubectl(["apply", "-f", ""]) == ":0\n"


@pytest.mark.promise("F-106")
def test_under_kubectls_name_usage_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert program_of("/usr/local/bin/kubectl-calico") == "kubectl calico"
    assert program_of("/usr/bin/calicoctl") == "calicoctl"
    assert run(["get", "--help"], "kubectl calico") == 0
    assert capfd.readouterr().out.startswith("Usage: kubectl calico get ")
    assert run(["get"], "kubectl calico") == 1
    assert "Use 'kubectl calico get --help'" in capfd.readouterr().err


@pytest.mark.promise("F-106")
def test_a_manual_page_for_every_command_and_option() -> None:
    pages = dict(manpages.pages())
    assert set(pages) >= {"calicoctl.1", *(f"calicoctl-{name}.1" for name in COMMANDS)}
    for name, text in pages.items():
        assert text.startswith(".TH "), name
        assert "\\-" in text.splitlines()[2], name
    context = click.Context(calicoctl)
    get = calicoctl.get_command(context, "get")
    assert get is not None
    for option in get.params:
        for flag in option.opts:
            if flag.startswith("-"):
                assert manpages.roff(flag) in pages["calicoctl-get.1"]


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_reads_the_pages_without_complaint() -> None:
    for name, text in manpages.pages():
        done = subprocess.run(
            ["groff", "-man", "-ww", "-z", "-Tutf8"],
            input=text,
            text=True,
            capture_output=True,
            check=True,
        )
        assert done.stderr == "", name


def test_every_command_of_the_parser_has_help_and_described_options() -> None:
    def walk(command: click.Command, context: click.Context) -> None:
        assert command.help, context.command_path
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, f"{context.command_path} {parameter.opts}"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                walk(below, click.Context(below, info_name=name, parent=context))

    walk(calicoctl, click.Context(calicoctl, info_name="calicoctl"))
