"""Entry of `calico-node`: start the node up, then keep its agents running.

`calico-node run` does both; `calico-node startup` registers the node and ends, for
init containers and tests; `calico-node checksystem` tells whether this machine can be a node.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from libcalico import apiconfig, logs
from libcalico.errors import MuslinError
from libcalico.process import run_until_signal, set_name
from node import checksystem, tunnel_addresses
from node.environment import Settings
from node.startup import registered_before, start_up
from node.supervisor import Supervisor, agents

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""How long a node that was registered before waits for the datastore, in seconds."""


def main() -> None:
    """Run the command line of this process; never returns."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code: 0, or 1 with one sentence on stderr."""
    chosen = _parser().parse_args(arguments)
    if chosen.command == "checksystem":
        return _told(lambda: checksystem.main(chosen))
    set_name("calico-node")
    logs.configure(
        "calico-node",
        os.environ.get("CALICO_LOG_LEVEL") or os.environ.get("CALICO_STARTUP_LOGLEVEL") or "INFO",
        "json" if os.environ.get("CALICO_LOG_FORMAT") == "json" else "text",
    )
    main_part = _run(chosen.only) if chosen.command == "run" else _startup()
    return _told(lambda: run_until_signal(main_part))


def _told(command: Callable[[], int]) -> int:
    try:
        return command()
    except MuslinError as error:
        print(f"calico-node: {error}", file=sys.stderr)
        return 1


async def _startup() -> None:
    await start_up(os.environ)


async def _run(only: str) -> None:
    """Register and supervise; a node that was registered before does not wait for the first.

    With the datastore away its agents go on from kernel and memory: peers drop the routes of a
    speaker that stays away longer than its restart time.
    """
    registering = asyncio.create_task(start_up(os.environ))
    tasks: list[asyncio.Task[Any]] = [registering]
    try:
        known = registered_before(os.environ)
        await asyncio.wait(tasks, timeout=PATIENCE if known else None)
        if known and not registering.done():
            log.warning("no word from the datastore: starting the agents of a known node")
            name, chosen = known
        else:
            name, chosen = registering.result()
        environ = dict(os.environ) | {"NODENAME": name}
        supervisor = Supervisor(agents(chosen.backend, only), environ, chosen.log_dir)
        tasks.append(asyncio.create_task(supervisor.run()))
        tasks.append(asyncio.create_task(_tunnel_addresses(registering)))
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _tunnel_addresses(registering: asyncio.Task[tuple[str, Settings]]) -> None:
    """From the moment at which the Node stands."""
    name, _ = await asyncio.shield(registering)
    await tunnel_addresses.keep(apiconfig.from_environment(os.environ), name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="calico-node", description="Registers this machine as a node and runs its agents."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="start up, then supervise the agents")
    runs.add_argument(
        "--only", choices=("felix",), default="", help="supervise this agent only (containers)"
    )
    commands.add_parser("startup", help="register the node, then end")
    checksystem.add_arguments(
        commands.add_parser("checksystem", help="check what this machine must have to be a node")
    )
    return parser


if __name__ == "__main__":
    main()
