"""`datastore migrate lock` and `unlock`: may the cluster change what the datastore holds?

While it is locked no pod is wired or removed and the agents keep what they have programmed
(docs/reference/data-model.md#readiness-and-initialisation, #calicoctl-datastore-migrate). Tested in
`tests/calicoctl/test_datastore.py`.
"""

from __future__ import annotations

import asyncio

import click
from msgspec.structs import replace

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of
from calicoctl.session import CLUSTER, Options, datastore
from libcalico.clusterinfo import ensure_initialized
from libcalico.datastore.interface import CommitConflict, Put
from libcalico.errors import MuslinError

ATTEMPTS = 5


@click.command(
    "lock",
    epilog=examples(
        "calicoctl datastore migrate lock",
    ),
)
@datastore_options
def lock(config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Lock the datastore: pods can neither start nor stop until it is unlocked."""
    asyncio.run(_set(False, options_of(config, allow_version_mismatch, context)))
    click.echo("Datastore locked.")


@click.command(
    "unlock",
    epilog=examples(
        "calicoctl datastore migrate unlock",
    ),
)
@datastore_options
def unlock(config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Unlock the datastore."""
    asyncio.run(_set(True, options_of(config, allow_version_mismatch, context)))
    click.echo("Datastore unlocked.")


async def _set(ready: bool, options: Options) -> None:
    async with datastore(options) as store:
        if not ready:
            await ensure_initialized(store, "", version="")
        for _ in range(ATTEMPTS):
            entry = await store.get(CLUSTER)
            if entry is None:
                raise MuslinError(f"{CLUSTER} does not exist: there is nothing to unlock")
            if entry.value.spec.datastoreReady is ready:
                return
            value = replace(entry.value, spec=replace(entry.value.spec, datastoreReady=ready))
            try:
                await store.commit([Put(CLUSTER, value, entry.revision, entry)])
                return
            except CommitConflict:
                continue
        raise MuslinError(f"{CLUSTER} kept changing; try again")
