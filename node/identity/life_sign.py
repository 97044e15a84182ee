"""Life signs of calico-node in etcd: this machine lives under this node's name.

The sign is read and its lease kept alive every `life.INTERVAL`. It is written within five minutes,
and at once when it is gone, is another machine's, or has something new to say. A machine that
starts with the same name reads it (`node.identity.life`), and kube-controllers take nothing from a
node that has one. The machine that has the name reads it too: a sign of another machine is logged
at once, and is an Event. On the Kubernetes datastore the kubelet's Lease does all this.
Tested in tests/node/test_life.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from libcalico import apiconfig
from libcalico.datastore import UNHURRIED, connect
from libcalico.datastore.capabilities import Leasing
from libcalico.datastore.interface import Datastore, Put
from libcalico.datastore.leased_values import REWRITE, LeasedValues
from libcalico.errors import DatastoreFull, MuslinError
from libcalico.model.base.meta import now_text
from libcalico.model.keys import LifeSignKey
from libcalico.model.resources.status import LifeSign
from libcalico.process.backoff import Backoff
from node.identity import interfaces, life
from node.identity.machines import Machine

log = logging.getLogger(__name__)

FIRST_RETRY = 1.0

Warn = Callable[[str, str], None]


async def keep(config: apiconfig.DatastoreConfig, name: str, warn: Warn) -> None:
    """Write life signs for ever; `warn` is called about another machine that writes them, too."""
    if config.datastore_type == apiconfig.KUBERNETES:
        return
    backoff, values = Backoff(FIRST_RETRY, life.INTERVAL), LeasedValues()
    logged = ""
    while True:
        try:
            # Connections from an address that is gone hang; new ones do not.
            store = await connect(config, gather=UNHURRIED)
            try:
                signs = Signs(store, name, warn, values)
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
    """Gives this machine's life signs, and reads the one before each.

    `values` knows what was written, also through the store of before.
    """

    def __init__(
        self,
        store: Datastore,
        name: str,
        warn: Warn = lambda _what, _why: None,
        values: LeasedValues | None = None,
    ) -> None:
        self._store, self._name, self._warn = store, name, warn
        self._values = values or LeasedValues()
        self._first = True

    async def give(self) -> None:
        """Write one life sign, or keep the last one alive. Raises DatastoreError."""
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
        if other is None or not other.ours:
            self._values.rewrite()
        assert isinstance(self._store, Leasing)
        await self._values.give(
            self._store, lambda lease: [self._sign(machine, lease)], life.TTL, machine
        )

    def _sign(self, machine: Machine, lease: int) -> Put:
        sign = LifeSign(
            time=now_text(),
            bootID=machine.boot,
            network=machine.network,
            host=machine.host,
            addresses=list(machine.addresses),
            interval=REWRITE,
            keptAlive=life.INTERVAL,
        )
        return Put(LifeSignKey(self._name), sign, lease=lease)
