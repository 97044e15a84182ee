"""The process `calico-bgp`.

Tested in tests/bgp/test_agent.py.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from libcalico import command_line, gc_control
from libcalico.errors import MuslinError
from libcalico.process import logs, malloc_trim, process

log = logging.getLogger(__name__)

SAYS = """\
`calico-bgp`: the process. Environment in, agent wired up, run until a signal.

NODENAME (else `/var/lib/calico/nodename`, waited for; else the host name), the datastore
variables, CALICO_BGP_HOLD_TIME (seconds, 90), CALICO_BGP_MAX_PREFIXES (paths of one peer,
200000; 0: no limit), CALICO_ROUTER_ID, CALICO_LOG_LEVEL, CALICO_LOG_FORMAT,
CALICO_BGP_HEALTH_PORT (9097), CALICO_BGP_PASSWORD_DIR (/etc/calico/bgp-passwords),
CALICO_ADVERTISE_CLUSTER_IPS, CALICO_BIRD_CTL_DIR (/var/run/calico; none: no sockets). A stop
sends no CEASE: peers keep our routes for the restart time, felix keeps the kernel's."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of `calico-bgp`; returns its exit status."""
    command_line.daemon_arguments("calico-bgp", SAYS, arguments)
    return command_line.guarded("calico-bgp", _main, daemon=True)


def _main() -> int:
    process.set_name("calico-bgp")
    malloc_trim.one_arena()
    process.keep_secrets()
    environ = os.environ
    logs.configure(
        "bgp",
        environ.get("CALICO_LOG_LEVEL", "INFO"),
        "json" if environ.get("CALICO_LOG_FORMAT") == "json" else "text",
    )
    # What imports make stays: to look for garbage in it is a tenth of the start.
    with gc_control.resting(lambda: True):
        from bgp.serving import serve
    try:
        return process.run_until_signal(serve(environ))
    except MuslinError as error:
        log.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
