"""The configuration object: created where there is none, followed, and its status written.

Tested in tests/controllers/test_process.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing

from msgspec.structs import replace

from controllers.settings import NAME, Settings, default, effective
from libcalico.datastore.interface import ABSENT, CommitConflict, Datastore, Put, Selection
from libcalico.datastore.syncer import Syncer
from libcalico.errors import InvalidValue
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.controllers import KubeControllersConfigurationStatus

log = logging.getLogger(__name__)

KEY = ResourceKey("KubeControllersConfiguration", NAME)


class Configuration:
    """`settings` as they are now; `changed` is set when they became others."""

    def __init__(self, store: Datastore, environ: Mapping[str, str]) -> None:
        self._store, self._environ = store, environ
        self.settings: Settings = effective(default().spec, environ)
        self.changed = asyncio.Event()
        self.error = ""

    async def load(self) -> None:
        """Read it, or create it. Raises InvalidValue for one that cannot be, DatastoreError."""
        entry = await self._store.get(KEY)
        if entry is None:
            try:
                await self._store.commit([Put(KEY, default(), ABSENT)])
            except CommitConflict:
                pass
            entry = await self._store.get(KEY)
        spec = entry.value.spec if entry else default().spec
        self.settings = effective(spec, self._environ)

    async def report(self, store: Datastore) -> None:
        """Say in the object's status what runs; nothing is written where it says so.

        `store` is behind the lease (LEAD-4): raises what its check does.
        """
        for _ in range(5):
            entry = await store.get(KEY)
            if entry is None:
                return
            status = KubeControllersConfigurationStatus(
                runningConfig=self.settings.running,
                environmentVars=dict(self.settings.environment),
            )
            if entry.value.status == status:
                return
            try:
                fresh = replace(entry.value, status=status)
                await store.commit([Put(KEY, fresh, entry.revision, entry)])
                return
            except CommitConflict:
                continue

    async def run(self) -> None:
        """Follow it until cancelled; one that cannot be leaves what runs, and is said."""
        syncer = Syncer(self._store, [Selection("KubeControllersConfiguration")])
        async with aclosing(syncer.batches()) as batches:  # type: ignore[type-var]
            async for batch in batches:
                for update in batch.updates:
                    if update.key == KEY and update.entry is not None:
                        self._take(update.entry.value.spec)

    def _take(self, spec: object) -> None:
        try:
            fresh = effective(spec, self._environ)  # type: ignore[arg-type]
        except InvalidValue as problem:
            self.error = str(problem)
            log.error("the configuration is not taken up: %s", problem)
            return
        self.error = ""
        if fresh != self.settings:
            self.settings = fresh
            self.changed.set()
