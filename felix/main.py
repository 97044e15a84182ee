"""The process `calico-felix`: determines the name of its node and runs the agent.

Tested in tests/felix/config/test_parameters.py and tests/e2e/test_nasty_settings.py.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from libcalico import command_line, parsing
from libcalico.errors import MuslinError
from libcalico.process import logs, malloc_trim, paths, process

log = logging.getLogger(__name__)

SAYS = """\
The agent that programs this node's kernel: routes, rules and sets. `calico-node run` starts it.

It takes no arguments: FELIX_* variables, /etc/calico/felix.cfg and FelixConfigurations
configure it (docs/felix-configuration.md)."""


def node_name(environ: Mapping[str, str], file: Path | None = None) -> str:
    """This node's name: FELIX_FELIXHOSTNAME, NODENAME, the nodename file, else the host's name."""
    for variable in ("FELIX_FELIXHOSTNAME", "NODENAME"):
        if environ.get(variable):
            return environ[variable]
    return parsing.text_of(file or paths.NODENAME).strip() or socket.gethostname().lower()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal; 0 after an orderly end, 1 when something could not go on.

    `RESTART_STATUS` when a changed parameter asks for a new start.
    """
    command_line.daemon_arguments("calico-felix", SAYS, arguments)
    return command_line.guarded("calico-felix", _main, daemon=True)


def _main() -> int:
    # Objects made at the start live long: collecting among them would take a sixth of the time.
    gc.set_threshold(50_000, 50, 100)
    # Threads write the rules; one that is done must not wait 5 ms for the loop to let go.
    sys.setswitchinterval(0.0005)
    process.set_name("calico-felix")
    malloc_trim.one_arena()
    level = os.environ.get("CALICO_LOG_LEVEL", "INFO")
    form = os.environ.get("CALICO_LOG_FORMAT", "text")
    logs.configure("felix", level, "json" if form == "json" else "text")
    from felix.agent import RESTART_STATUS, Agent, RestartNeeded

    async def run() -> int:
        return await Agent(node_name(os.environ), os.environ).run()

    try:
        return process.run_until_signal(run())
    except MuslinError as error:
        log.error("%s", error)
        return 1
    except BaseExceptionGroup as group:
        restart, others = group.split(RestartNeeded)
        if restart is not None and others is None:
            log.warning("felix is to be started again: %s", restart.exceptions[0])
            return RESTART_STATUS
        for inner in group.exceptions:
            log.error("felix ends: %r", inner, exc_info=inner)
        return 1


if __name__ == "__main__":
    sys.exit(main())
