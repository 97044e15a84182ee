"""Life signs of calico-node in etcd: this machine lives under this node's name.

A machine that starts with the same name reads them (`node.identity.life`), and kube-controllers
take nothing from a node that writes them. The machine that has the name reads them too: a sign of
another machine is logged at once, and is an Event. On the Kubernetes datastore the kubelet's Lease
does all this. Tested in tests/node/test_life.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from libcalico import apiconfig
from libcalico.datastore import UNHURRIED, connect
from libcalico.datastore.interface import Datastore, Put
from libcalico.errors import DatastoreFull, MuslinError
from libcalico.model.base.meta import now_text
from libcalico.model.keys import LifeSignKey
from libcalico.model.resources.status import LifeSign
from libcalico.process.backoff import Backoff
from node.identity import interfaces, life

log = logging.getLogger(__name__)

FIRST_RETRY = 1.0

Warn = Callable[[str, str], None]


async def keep(config: apiconfig.DatastoreConfig, name: str, warn: Warn) -> None:
    """Write life signs for ever; `warn` is called about another machine that writes them, too."""
    if config.datastore_type == apiconfig.KUBERNETES:
        return
    backoff = Backoff(FIRST_RETRY, life.INTERVAL)
    logged = ""
    while True:
        try:
            # Connections from an address that is gone hang; new ones do not.
            store = await connect(config, gather=UNHURRIED)
            try:
                signs = Signs(store, name, warn)
                while True:
                    await signs.give()
                    backoff.reset()
                    logged = ""
                    await asyncio.sleep(life.INTERVAL)
            finally:
                await store.close()
        except MuslinError as error:
            if str(error) != logged:
                logged = str(error)
                log.warning("no sign of life of this node can be given: %s", error)
                if isinstance(error, DatastoreFull):
                    warn("life sign", logged)
            await backoff.wait()


class Signs:
    """Writes this machine's life signs, and reads the one before each."""

    def __init__(self, store: Datastore, name: str, warn: Warn = lambda _what, _why: None) -> None:
        self._store, self._name, self._warn = store, name, warn
        self._first = True

    async def give(self) -> None:
        """Write one life sign. Raises DatastoreError."""
        local_interfaces = await asyncio.to_thread(interfaces.read)
        machine = life.this_machine(local_interfaces)
        other = await life.read_sign(self._store, self._name, machine)
        # The first one is the one that start-up judged, or this node's before its restart.
        if other is not None and not other.ours and not self._first:
            trouble = (
                f"another machine gives signs of life under the name {self._name}: {other.shown};"
                f" this machine is {machine}. Stop calico-node on the one that is not this node"
            )
            log.error("%s", trouble)
            self._warn("node name", trouble)
        self._first = False
        sign = LifeSign(
            time=now_text(),
            bootID=machine.boot,
            network=machine.network,
            host=machine.host,
            addresses=list(machine.addresses),
            interval=life.INTERVAL,
        )
        await self._store.commit([Put(LifeSignKey(self._name), sign, ttl=life.TTL)])
