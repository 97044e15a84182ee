"""Entry point of `calico-cni`, the node daemon behind the CNI executable."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Mapping

from cni.daemon import Daemon, settings_from, wait_for_node_name
from cni.install import keeping
from cni.pod_sources import own_access
from libcalico import apiconfig, datastore, logs, process
from libcalico.errors import MuslinError

log = logging.getLogger(__name__)


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
        writing = asyncio.create_task(keeping.when_serving(environ, settings.socket, settings.host))
        try:
            await daemon.run()
        finally:
            writing.cancel()
    finally:
        await store.close()


def main() -> None:
    """Run the daemon; exits 1 with one sentence if it cannot start."""
    environ = os.environ
    process.set_name("calico-cni")
    logs.configure(
        "cni",
        environ.get("CALICO_LOG_LEVEL", "INFO"),
        "json" if environ.get("CALICO_LOG_FORMAT") == "json" else "text",
    )
    sys.setswitchinterval(0.0005)
    try:
        sys.exit(process.run_until_signal(serve(environ)))
    except MuslinError as error:
        log.error("%s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
