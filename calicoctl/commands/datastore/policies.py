"""`datastore migrate-policy-names`: give policies of older releases the keys of today.

Up to v3.31 a policy of the default tier lay under `default.<name>`; since v3.32 the key is
the name (docs/reference/data-model.md#stored-policy-names). Each policy moves in one commit and the
command may be run again.
Tested in `tests/calicoctl/test_datastore.py`.
"""

from __future__ import annotations

import asyncio

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of
from calicoctl.session import Options, datastore
from libcalico.datastore.interface import (
    ABSENT,
    Change,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
    Selection,
)
from libcalico.errors import MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.policy import OLD_PREFIX, TIERED_KINDS

ATTEMPTS = 5


@click.command(
    "migrate-policy-names",
    epilog=examples(
        "calicoctl datastore migrate-policy-names",
    ),
)
@datastore_options
def migrate_policy_names(config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Move policies that lie under `default.NAME` to their own name; safe to run again."""
    options = options_of(config, allow_version_mismatch, context)
    moved, failed = asyncio.run(_migrate(options))
    if failed:
        raise MuslinError(f"migrated {moved} policies; not these: " + "; ".join(failed))
    click.echo(f"Policy name migration complete, migrated {moved} policies.")


async def _migrate(options: Options) -> tuple[int, list[str]]:
    moved, failed = 0, []
    async with datastore(options) as store:
        for kind in TIERED_KINDS:
            listing = await store.list(Selection(kind))
            failed += [f"{key}: {reason}" for key, reason in listing.broken]
            for entry in listing.entries:
                if not entry.broken and new_key(entry) != entry.key:
                    moved += await _move(store, entry)
    return moved, failed


def new_key(entry: Entry) -> ResourceKey:
    """Where a policy belongs: under its own name."""
    key = entry.key
    assert isinstance(key, ResourceKey)
    name = entry.value.metadata.name
    return key._replace(name=name) if key.name == OLD_PREFIX + name else key


async def _move(store: Datastore, entry: Entry) -> bool:
    current: Entry | None = entry
    for _ in range(ATTEMPTS):
        if current is None:
            return False
        key = new_key(current)
        changes: list[Change] = [Delete(current.key, current.revision)]
        if await store.get(key) is None:
            changes.insert(0, Put(key, current.value, ABSENT, current))
        try:
            await store.commit(changes)
        except CommitConflict:
            current = await store.get(entry.key)
            continue
        return True
    raise MuslinError(f"{entry.key} kept changing while it was moved; run the command again")
