"""`calico-goldmane`: the process, configured by its environment.

Tested in tests/flows/test_server_process.py.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence

from libcalico import command_line

log = logging.getLogger(__name__)

SAYS = """\
The aggregator of flows, with Goldmane's gRPC API.

Environment:
  PORT                     of the API, 7443
  SERVER_CERT_PATH, SERVER_KEY_PATH, CA_CERT_PATH
                           PEM files of mutual TLS, read again when they change
  GOLDMANE_ASKERS, GOLDMANE_DELIVERERS
                           names of client certificates, by commas; empty is every client of the CA
  GOLDMANE_MOST_ROWS       rows in memory (keys in 15 s), 2000000; the oldest go first
  GOLDMANE_EXPORT_FILE     flows as lines of JSON; GOLDMANE_EXPORT_BYTES each, GOLDMANE_EXPORT_FILES
  GOLDMANE_OTLP_ENDPOINT   http(s)://HOST:PORT of a collector of logs; needs muslin[otlp]
  HEALTH_ENABLED, HEALTH_PORT
                           /liveness, /readiness and /metrics, 8080
  PROMETHEUS_PORT          /metrics alone, 0 is none
  LOG_LEVEL, CALICO_LOG_FORMAT"""


async def serve(environ: Mapping[str, str]) -> None:
    """Serve until cancelled. Raises MuslinError."""
    from flows.server.process import Process
    from flows.server.settings import read

    await Process(read(environ)).run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 and one sentence if it cannot start."""
    command_line.daemon_arguments("calico-goldmane", SAYS, arguments)
    return command_line.guarded("calico-goldmane", run, daemon=True)


def run() -> int:
    """Serve until a signal; 1 and a log line if it cannot start."""
    from libcalico.errors import MuslinError
    from libcalico.process import logs, process

    environ = os.environ
    process.set_name("calico-goldmane")
    form = "json" if environ.get("CALICO_LOG_FORMAT") == "json" else "text"
    logs.configure("goldmane", environ.get("LOG_LEVEL", "info"), form)  # type: ignore[arg-type]
    try:
        return process.run_until_signal(serve(environ))
    except MuslinError as error:
        log.error("%s", error)
    return 1


if __name__ == "__main__":
    sys.exit(main())
