"""Entry of `calicoctl`: run the command, print one sentence when it fails, exit 1.

`version --client`, which scripts ask most, is answered before the parser is imported; every
other command imports the parser and then only its own code. Under the name `kubectl-calico`
the same program is a plugin of kubectl. Tested in `tests/calicoctl/test_process.py`.
"""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

COMPLETE_VARIABLE = "_CALICOCTL_COMPLETE"
"""By this variable the shell's completion script asks for words."""


def main() -> None:
    """Run the command line of this process; never returns."""
    # What imports make stays to the end: looking for garbage in it is a tenth of a short command.
    gc.set_threshold(50_000, 50, 100)
    try:
        code = run(sys.argv[1:], program_of(sys.argv[0]))
    except KeyboardInterrupt:
        code = 130  # while the program is still being imported
    gc.freeze()
    sys.exit(code)


def program_of(path: str) -> str:
    """How usage texts call this program: kubectl runs its plugins as `kubectl-NAME`."""
    name = path.rpartition("/")[2]
    return "kubectl calico" if name.startswith("kubectl-calico") else "calicoctl"


def run(arguments: list[str], program: str = "calicoctl") -> int:
    """Run one command line; returns the exit code: 0, 1 for any error, 130 interrupted."""
    if arguments == ["version", "--client"]:
        from calicoctl.versions import client_text

        return _guarded(lambda: sys.stdout.write(client_text()))

    from calicoctl.cli import calicoctl
    from libcalico.command_line import guarded

    def command() -> None:
        # A command that ends with a status of its own does not raise here: click returns it.
        code = calicoctl.main(
            arguments, prog_name=program, complete_var=COMPLETE_VARIABLE, standalone_mode=False
        )
        if isinstance(code, int) and code:
            import click

            sys.stdout.flush()
            raise click.exceptions.Exit(code)

    return guarded(program, lambda: _chosen(command, arguments, program))


def _chosen(command: Callable[[], object], arguments: list[str], program: str) -> int:
    import click

    from libcalico.errors import MuslinError

    try:
        return _guarded(command)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except click.UsageError as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            return _failed(error.format_message())
        return _failed(f"{error.format_message()}\n{_hint(error, arguments, program)}")
    except click.ClickException as error:
        return _failed(error.format_message())
    except MuslinError as error:
        return _failed(str(error))
    except (KeyboardInterrupt, click.Abort):
        # What was half made at that moment, an event loop say, complains when it goes.
        sys.unraisablehook = lambda _: None
        return 130


def _guarded(command: Callable[[], object]) -> int:
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:
        import os

        # The reader of a pipe went away: leave quietly, also in the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _hint(error: object, arguments: list[str], program: str) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else " ".join([program, *_named(arguments)])
    return f"Use '{path} --help' to read about it."


def _named(arguments: list[str]) -> list[str]:
    """The words of a command line that name its command: an error may not know it."""
    from calicoctl.cli import COMMANDS, LazyGroup, calicoctl

    words: list[str] = []
    group: object = calicoctl
    for word in arguments:
        if isinstance(group, LazyGroup) and word in group.table:
            words.append(word)
            group = group.get_command(group.make_context(word, [], resilient_parsing=True), word)
    return words if words and words[0] in COMMANDS else []


def _failed(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
