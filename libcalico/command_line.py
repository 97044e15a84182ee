"""What every program of ours does alike: `--help`, `--version`, and an error that none foresaw.

An error that is foreseen is a MuslinError, told by one sentence where it is caught. Any other is
a defect of ours: a tool tells it in one line with what to do next, and shows the traceback at
log level debug only; a daemon logs it with the traceback, because it may not happen again.
Tested in tests/e2e/test_programs.py and tests/libcalico/test_command_line.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HINT = "this is a defect of the program; its documentation says where to report it"


def version_text(program: str) -> str:
    """The line that `--version` prints: our version, and the release of Calico that we claim."""
    from libcalico.clusterinfo import CALICO_VERSION, our_version

    return f"{program} Muslin v{our_version()} (Calico {CALICO_VERSION})"


def add_version(parser: argparse.ArgumentParser) -> None:
    """Give a parser the option `--version`."""
    import argparse

    class Version(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
            print(version_text(parser.prog))
            parser.exit()

    parser.add_argument(
        "-v", "--version", action=Version, nargs=0, help="show the version and exit"
    )


def daemon_arguments(program: str, says: str, arguments: Sequence[str] | None) -> None:
    """Read the command line of a daemon, which is configured by its environment alone.

    Returns when there are no arguments; else ends the process: 0 after `--help` and `--version`,
    2 for what is unknown. `says` is the help's text. `arguments` None means those of this process.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        return
    import argparse  # not in the memory of a daemon

    parser = argparse.ArgumentParser(
        prog=program, description=says, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_version(parser)
    parser.parse_args(given)


def guarded(program: str, work: Callable[[], int], *, daemon: bool = False) -> int:
    """The exit code of `work`, or 1 after reporting an unforeseen error.

    The last resort of a program's main. SystemExit and KeyboardInterrupt pass.
    """
    try:
        return work()
    except Exception as error:
        if daemon:
            import logging  # a tool seldom needs it

            log = logging.getLogger(__name__)
            log.critical("%s ends: %s; %s", program, described(error), HINT, exc_info=True)
        else:
            _tell(program, error)
        return 1


def _tell(program: str, error: Exception) -> None:
    import logging

    debugging = logging.getLogger().isEnabledFor(logging.DEBUG)
    more = HINT if debugging else f"{HINT}; log level debug shows more"
    print(f"{program}: unexpected error: {described(error)}; {more}", file=sys.stderr)
    if debugging:
        import traceback

        traceback.print_exception(error)


def described(error: BaseException) -> str:
    """Type and text of an error on one line; of a group, its first member. Pure."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
