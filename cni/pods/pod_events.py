"""Events on pods and their node for calls that were refused: why a pod does not start.

The runtime shows the same text in its own words, and not everywhere; a node whose pools are full,
or that cannot serve, is told nowhere else. Telling costs a refused call some microseconds, and
nothing where the daemon has no API of its own.
Tested in tests/apiserver/test_cni_configurations.py.
"""

from __future__ import annotations

import asyncio

from cni.request.errors import CNIError, Code
from cni.request.request import Command, Request
from ipam.records.errors import BlockLimit, NoPool, PoolsExhausted
from libcalico.kubernetes.access import Source
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.event_objects import node, pod
from libcalico.kubernetes.events import Recorder

FAILED, NO_ADDRESS, NOT_READY = "CalicoAddFailed", "CalicoNoAddress", "CalicoNotReady"
_FULL = (BlockLimit, NoPool, PoolsExhausted)
_SECONDS = 10.0


class Refusals:
    """Events of one daemon on the node that Kubernetes calls `name`; without `source` none."""

    def __init__(self, source: Source | None, name: str) -> None:
        self._node = node(name)
        self._recorder: Recorder | None = None
        if source is not None:
            client = Client(source, timeout=_SECONDS, idle=1)
            self._recorder = Recorder(client, "calico-cni", name)

    async def run(self) -> None:
        """Write the events, until cancelled."""
        if self._recorder is not None:
            await self._recorder.run()
        await asyncio.get_running_loop().create_future()

    def tell(self, request: Request, error: CNIError) -> None:
        """Note a failed call; takes no time and never fails itself."""
        if self._recorder is None:
            return
        if request.command is Command.STATUS:
            if error.code in (Code.PLUGIN_NOT_AVAILABLE, Code.LIMITED_CONNECTIVITY):
                self._recorder.tell(self._node, NOT_READY, str(error), str(error.code))
            return
        if request.command is not Command.ADD or request.pod is None:
            return
        full = isinstance(error.__cause__, _FULL)
        # A static pod's uid is not the API's, and has no dashes.
        uid = request.args.get("K8S_POD_UID", "")
        about = pod(*request.pod, uid if "-" in uid else "")
        self._recorder.tell(about, NO_ADDRESS if full else FAILED, str(error), str(error.code))
        if full:
            self._recorder.tell(self._node, NO_ADDRESS, str(error))
