"""The process `calico-cni`: a datastore, the socket that the executable calls, a configuration.

Tested in tests/node/test_node_process.py and tests/cni_conformance/test_install_keeping.py.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from cni.install import keeping
from cni.pods.pod_sources import own_access
from cni.server.daemon import Daemon, settings_from, wait_for_node_name
from libcalico import apiconfig, command_line, datastore
from libcalico.errors import MuslinError
from libcalico.process import logs, process
from libcalico.process.tasks import beside

log = logging.getLogger(__name__)

SAYS = """\
`calico-cni`: the node daemon behind the CNI executable. `calico-node run` starts it.

It takes no arguments. Environment: the datastore's variables, NODENAME, CALICO_NODENAME_FILE,
CALICO_K8S_NODE_REF, CALICO_CNI_HEALTHPORT (9096), CALICO_CNI_CRI_SOCKET, CALICO_LOG_LEVEL,
CALICO_LOG_FORMAT, and in a container those of install-cni."""


async def serve(environ: Mapping[str, str]) -> None:
    """Connect and serve until cancelled; raises MuslinError if the configuration cannot work."""
    settings = settings_from(environ)
    node = await wait_for_node_name(settings, environ)
    access = apiconfig.of_node(environ)
    store = await datastore.connect(access)
    try:
        daemon = Daemon(
            store,
            node,
            settings,
            access=access,
            kubernetes=own_access(access, environ),
            kubernetes_name=environ.get("CALICO_K8S_NODE_REF", ""),
        )
        # What lives as long as the process is no work for the collector.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)
        async with beside(keeping.when_serving(environ, settings.socket, settings.host)):
            await daemon.run()
    finally:
        await store.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the daemon; exits 1 with one sentence if it cannot start."""
    command_line.daemon_arguments("calico-cni", SAYS, arguments)
    sys.exit(command_line.guarded("calico-cni", _main, daemon=True))


def _main() -> int:
    environ = os.environ
    process.set_name("calico-cni")
    logs.configure(
        "cni",
        environ.get("CALICO_LOG_LEVEL", "INFO"),
        "json" if environ.get("CALICO_LOG_FORMAT") == "json" else "text",
    )
    sys.setswitchinterval(0.0005)
    try:
        return process.run_until_signal(serve(environ))
    except MuslinError as error:
        log.error("%s", error)
        return 1


if __name__ == "__main__":
    main()
