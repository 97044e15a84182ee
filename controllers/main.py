"""The process `calico-kube-controllers`, and the probe that asks its status file.

The kubelet starts the probe every few seconds, so that imports nothing of the process.
Tested in tests/controllers/test_process.py.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from controllers import status
from libcalico import command_line

log = logging.getLogger(__name__)

SAYS = """\
`calico-kube-controllers`: run the controllers, or `check-status` as a probe does.

Environment: the datastore's variables, KUBECONFIG (else the pod's service account), what
`controllers.settings` names, POD_NAMESPACE (of the lease), CALICO_LOG_FORMAT."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    arguments = argparse.ArgumentParser(prog="calico-kube-controllers", description=SAYS)
    command_line.add_version(arguments)
    arguments.add_argument("--status-file", default=str(status.FILE), help="empty: none is written")
    arguments.add_argument("--health-port", type=int, default=0, help="0: no HTTP")
    commands = arguments.add_subparsers(dest="command")
    check = commands.add_parser("check-status", help="read the status file")
    kind = check.add_mutually_exclusive_group(required=True)
    kind.add_argument("-r", "--readiness", action="store_true")
    kind.add_argument("-l", "--liveness", action="store_true")
    check.add_argument("-f", "--file", default=str(status.FILE))
    return arguments


async def serve(environ: Mapping[str, str], status_file: str, health_port: int) -> None:
    """Connect and work until cancelled; raises MuslinError."""
    from controllers.process import Options, Process
    from libcalico import apiconfig, datastore
    from libcalico.kubernetes.access import find
    from libcalico.kubernetes.client import Client

    config = apiconfig.of_node(environ)
    store = await datastore.connect(config)
    client = Client(find(config, environ))
    native = config.datastore_type == apiconfig.KUBERNETES
    options = Options(Path(status_file) if status_file else None, health_port, native)
    running = Process(store, client, environ, options)
    try:
        await running.run()
    finally:
        await running.close()
        await client.close()
        await store.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 and one sentence if it cannot start."""
    given = parser().parse_args(arguments)
    if given.command == "check-status":
        good, line = status.check(Path(given.file), liveness=given.liveness)
        print(line)
        return 0 if good else 1
    return command_line.guarded("calico-kube-controllers", lambda: run(given), daemon=True)


def run(given: argparse.Namespace) -> int:
    """Run the controllers until a signal; 1 and a log line if they cannot start."""
    from libcalico.errors import MuslinError
    from libcalico.process import logs, process

    environ = os.environ
    process.set_name("calico-kube-controllers")
    logs.configure(
        "controllers",
        environ.get("LOG_LEVEL", "info"),
        "json" if environ.get("CALICO_LOG_FORMAT") == "json" else "text",
    )
    try:
        return process.run_until_signal(serve(environ, given.status_file, given.health_port))
    except* MuslinError as group:
        for error in leaves(group):
            log.error("%s", error)
    return 1


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The members of a group of groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


if __name__ == "__main__":
    sys.exit(main())
