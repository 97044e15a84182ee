"""Entry of `calico-node`: start the node up, then keep its agents running.

`run` does both. `startup` registers the node and ends, for init containers and tests. `shutdown`
reports that the node's network goes, for preStop hooks. `checksystem` checks whether this machine
can be a node. `cleanup` leaves a machine that is given up as it was. `trace` watches one connection
(docs/trace.md). Documented in docs/node.md.
Tested in tests/node/test_node_process.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

from libcalico import apiconfig, command_line
from libcalico.errors import InvalidValue, MuslinError
from libcalico.process import logs, tasks
from libcalico.process.backoff import Backoff
from libcalico.process.process import run_until_signal, set_name
from libcalico.process.tasks import ended
from linux.errors import KernelError
from node import checksystem, cni_token, events, notify, probes, readiness
from node.identity import life_sign
from node.settings.environment import Settings
from node.start import modules, own_node, redetect, tunnel_addresses
from node.start.startup import name_of, registered_before, start_up
from node.supervisor import Supervisor, agents
from node.trace import command as trace

if TYPE_CHECKING:
    import argparse

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds that a node that was registered before waits for the datastore."""


def main() -> None:
    """Run the command line of this process; never returns."""
    given = sys.argv[1:]
    daemon = "run" in given
    sys.exit(command_line.guarded("calico-node", lambda: run(given), daemon=daemon))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code: 0, or 1 with one sentence on stderr."""
    if probing := probes.asked(arguments):
        return _exit_status(lambda: probes.main(probing, os.environ))
    if arguments == ["run"]:
        return _daemon(lambda: _run(only=""))  # the parser would stay in its memory
    chosen = _parser().parse_args(arguments)
    if chosen.command == "cleanup":
        return _exit_status(lambda: _cleanup(chosen))
    if chosen.command == "checksystem":
        return _exit_status(lambda: checksystem.main(chosen))
    if chosen.command == "trace":
        return _exit_status(lambda: trace.main(chosen))
    if chosen.command == "run":
        return _daemon(lambda: _run(chosen.only))
    return _daemon(_shutdown if chosen.command == "shutdown" else _startup)


def _daemon(work: Callable[[], Coroutine[object, object, None]]) -> int:
    """Run what logs and ends with a signal; returns the exit code."""
    set_name("calico-node")
    logs.configure(
        "calico-node",
        os.environ.get("CALICO_LOG_LEVEL") or os.environ.get("CALICO_STARTUP_LOGLEVEL") or "INFO",
        "json" if os.environ.get("CALICO_LOG_FORMAT") == "json" else "text",
    )
    return _exit_status(lambda: run_until_signal(work()))


def _exit_status(command: Callable[[], int]) -> int:
    try:
        return command()
    except MuslinError as error:
        print(f"calico-node: {error}", file=sys.stderr)
        return 1


def _cleanup(chosen: argparse.Namespace) -> int:
    from node import cleanup  # felix and the installer, which nothing else here needs

    if os.geteuid() != 0:
        raise MuslinError("cleanup changes the kernel's tables: run it as root")
    work = cleanup.clean(os.environ, force=chosen.force, keep_cni=chosen.keep_cni)
    try:
        asyncio.run(work)
    except KernelError as error:
        raise MuslinError(f"the kernel refused: {error}; what was not reached is left") from None
    return 0


async def _startup() -> None:
    await start_up(os.environ)


async def _shutdown() -> None:
    name, chosen = name_of(os.environ)
    try:
        await readiness.shut_down(os.environ, name, chosen)
    except OSError as error:
        file = str(chosen.shutdown_file)
        raise InvalidValue("CALICO_SHUTDOWN_TIMESTAMP_FILE", file, str(error.strerror)) from None


async def _run(only: str) -> None:
    """Register and supervise; a node that was registered before does not wait for the first.

    With the datastore away its agents go on from kernel and memory: peers drop the routes of a
    speaker that stays away longer than its restart time.
    """
    # Wrong settings are refused before anything is done.
    name_of(os.environ)
    # Before the datastore: no program may run once gRPC has threads.
    await modules.load()
    doubted = asyncio.Event()
    registering = tasks.start(start_up(os.environ, doubt=doubted.set), "start-up")
    running: list[asyncio.Task[object]] = [registering]
    try:
        known = registered_before(os.environ)
        await asyncio.wait(running, timeout=PATIENCE if known else None)
        if known and not registering.done() and not doubted.is_set():
            log.warning("no word from the datastore: starting the agents of a known node")
            name, chosen = known
        else:
            name, chosen = await _registered(registering)
        environ = dict(os.environ) | {"NODENAME": name}
        programs = agents(chosen.backend, only, felix=chosen.felix)
        supervisor = Supervisor(programs, environ, chosen.log_dir)
        running.append(tasks.start(supervisor.run(), "supervisor"))
        running.append(tasks.start(_services(registering, supervisor, only), "services"))
        notify.send("READY=1")
        await asyncio.gather(*running)
    finally:
        notify.send("STOPPING=1")
        for task in running:
            task.cancel()
        await ended(running)


async def _registered(registering: asyncio.Task[tuple[str, Settings]]) -> tuple[str, Settings]:
    """The name and settings that start-up returns; its failure is also an Event of the node."""
    try:
        return await registering
    except MuslinError as error:
        name, chosen = name_of(os.environ)
        kubernetes_name = chosen.kubernetes_name(name)
        await events.last_word(os.environ, kubernetes_name, events.STARTUP, str(error))
        raise


async def _services(
    registering: asyncio.Task[tuple[str, Settings]], supervisor: Supervisor, only: str
) -> None:
    """Run the services of this process for the node, once the Node is registered."""
    name, chosen = await asyncio.shield(registering)
    environ = os.environ
    # Beside a container that runs felix alone, another one runs the speaker.
    elsewhere = ("bgp",) if only and chosen.backend == "bird" else ()
    reporter = events.EventReporter(environ, chosen.kubernetes_name(name))

    async def condition() -> None:
        if await readiness.clear_when_ready(
            environ, name, chosen, supervisor.pids, elsewhere=elsewhere
        ):
            reporter.normal(*readiness.UP[1:])

    works: dict[str, Callable[[], Awaitable[None]]] = {
        "life sign": lambda: life_sign.keep(apiconfig.of_node(environ), name, reporter.warn),
        "tunnel addresses": lambda: tunnel_addresses.keep(
            apiconfig.of_node(environ), name, devices=chosen.felix
        ),
        "address detection": lambda: redetect.keep(environ, name, chosen, supervisor.restart),
        "own Node": lambda: own_node.keep(environ, name, chosen, reporter.warn),
        "node condition": condition,
        "CNI token": lambda: cni_token.keep(environ, chosen),
        "Events": reporter.run,
    }
    await asyncio.gather(*(_kept(what, work, reporter.warn) for what, work in works.items()))


async def _kept(
    what: str,
    work: Callable[[], Awaitable[None]],
    warn: Callable[[str, str], None] = lambda _what, _why: None,
) -> None:
    """Run a service until it ends; a failure stops neither the others nor the node."""
    backoff = Backoff(1.0, 60.0)
    while True:
        try:
            return await work()
        except MuslinError as error:
            log.warning("%s: %s; trying again", what, error)
            warn(what, str(error))
        except Exception:
            log.exception("%s failed; trying again", what)
        await backoff.wait()


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="calico-node", description="Registers this machine as a node and runs its agents."
    )
    command_line.add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="start up, then supervise the agents")
    runs.add_argument(
        "--only", choices=("felix",), default="", help="supervise this agent only (containers)"
    )
    commands.add_parser("startup", help="register the node, then end")
    commands.add_parser(
        "shutdown", help="note the time, and tell Kubernetes that this node's network goes"
    )
    cleaning = commands.add_parser(
        "cleanup", help="remove rules, routes, tunnels, plugin and state from this machine"
    )
    cleaning.add_argument(
        "--force", action="store_true", help="although agents run or pods are attached"
    )
    cleaning.add_argument("--keep-cni", action="store_true", help="leave the CNI plugin as it is")
    checksystem.add_arguments(
        commands.add_parser("checksystem", help="check what this machine must have to be a node")
    )
    trace.add_arguments(commands.add_parser("trace", help="watch one connection on this node"))
    return parser


if __name__ == "__main__":
    main()
