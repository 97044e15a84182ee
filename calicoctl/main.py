"""Entry of `calicoctl`: run the command, print one sentence when it fails, exit 1.

`version --client` and `--help` import nothing beyond click. Tested in
`tests/calicoctl/test_process.py`.
"""

from __future__ import annotations

import os
import sys

import click

from calicoctl.cli import calicoctl
from libcalico.errors import MuslinError


def main() -> None:
    """Run the command line of this process; never returns."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code: 0, 1 for any error, 130 interrupted."""
    try:
        calicoctl.main(arguments, prog_name="calicoctl", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except click.UsageError as error:
        return _failed(f"{error.format_message()}\n{_hint(error)}".rstrip())
    except click.ClickException as error:
        return _failed(error.format_message())
    except MuslinError as error:
        return _failed(str(error))
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        # The reader of a pipe went away: leave quietly, also in the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _hint(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "calicoctl"
    return f"Use '{path} --help' to read about it."


def _failed(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
