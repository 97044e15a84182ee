"""The words that could stand next on a command line: for shells, and for kubectl's plugins.

Everything comes from the parser: commands, options, choices, and the kinds. The shells'
scripts are click's templates, filled in; kubectl asks a program `kubectl_complete-calico` and
reads words, descriptions and a last line `:DIRECTIVE`. Tested in
`tests/calicoctl/test_completion.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from calicoctl.cli import calicoctl
from calicoctl.main import COMPLETE_VARIABLE

SHELLS = ("bash", "zsh", "fish")
FILES = ":0"
"""Cobra's directive by which the shell completes file names itself."""
NO_FILES = ":4"


def script(shell: str) -> str:
    """The completion script of a shell."""
    class_ = get_completion_class(shell)
    assert class_ is not None
    # The base method: bash's own runs a bash to ask for its version.
    return ShellComplete.source(class_(calicoctl, {}, "calicoctl", COMPLETE_VARIABLE))


def words(arguments: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """What could stand behind `arguments`, beginning with `incomplete`."""
    class_ = get_completion_class("bash")
    assert class_ is not None
    items: list[CompletionItem] = class_(
        calicoctl, {}, "calicoctl", COMPLETE_VARIABLE
    ).get_completions(list(arguments), incomplete)
    return items


def for_kubectl(arguments: Sequence[str]) -> str:
    """What kubectl reads: a line a word, then the directive."""
    *before, incomplete = arguments or [""]
    items = words(before, incomplete)
    files = any(item.type in ("file", "dir") for item in items)
    lines = [
        f"{item.value}\t{item.help}" if item.help else str(item.value)
        for item in items
        if item.type == "plain"
    ]
    return "\n".join([*lines, FILES if files else NO_FILES]) + "\n"


def main() -> None:
    """Entry of `kubectl_complete-calico`."""
    sys.stdout.write(for_kubectl(sys.argv[1:]))
