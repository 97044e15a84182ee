"""`confirm`: make what was applied with `--confirm-within` last, or take it back.

Without arguments it is everything that waits. What was not confirmed in time is not in force
any more on any node (docs/design/0008-confirm-within.md): confirming it then would switch it
on unseen, so that is refused. Tested in `tests/calicoctl/test_confirm.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import click
from msgspec.structs import replace

from calicoctl import aliases
from calicoctl.cli import completed_by, datastore_options, examples
from calicoctl.client import Client
from calicoctl.commands.resources.common import (
    KindType,
    keys_of,
    options_of,
    require_in_force,
)
from calicoctl.session import Options, datastore
from libcalico import commit_confirmed
from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource


@click.command(
    "confirm",
    epilog=examples(
        "calicoctl confirm",
        "calicoctl confirm globalnetworkpolicy deny-all --revert",
    ),
)
@click.argument("kind", type=KindType(), required=False)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=completed_by("of_resources"))
@click.option("--revert", is_flag=True, help="Store the version before again instead.")
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NS",
    help="Namespace of the resources.",
    shell_complete=completed_by("of_namespaces"),
)
@datastore_options
def confirm(
    kind: str | None,
    names: tuple[str, ...],
    revert: bool,
    namespace: str,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Make what was applied with --confirm-within last; without KIND everything that waits."""
    if kind is not None and not names:
        raise click.UsageError("give the names of the resources, too")
    options = options_of(config, allow_version_mismatch, context)
    keys = keys_of(aliases.kind_of(kind), names, namespace) if kind is not None else None
    done, errors = asyncio.run(_confirm(keys, revert, options))
    for line in done:
        click.echo(line)
    if errors:
        raise MuslinError("\n".join(errors))
    if not done:
        click.echo("Nothing waits for confirmation")


async def _confirm(
    keys: Sequence[ResourceKey] | None, revert: bool, options: Options
) -> tuple[list[str], list[str]]:
    done, errors = [], []
    async with datastore(options) as store:
        client = Client(store)
        chosen = await _waiting(store) if keys is None else keys
        for key in chosen:
            try:
                await (_revert if revert else _keep)(client, key)
                done.append(f"{'Reverted' if revert else 'Confirmed'} {key}")
            except MuslinError as error:
                errors.append(str(error))
    return done, errors


async def _waiting(store: Datastore) -> list[ResourceKey]:
    keys = []
    for kind in sorted(commit_confirmed.KINDS):
        for entry in (await store.list(Selection(kind))).entries:
            if commit_confirmed.ANNOTATION in entry.value.metadata.annotations:
                assert isinstance(entry.key, ResourceKey)
                keys.append(entry.key)
    return keys


async def _keep(client: Client, key: ResourceKey) -> None:
    def change(stored: Resource) -> Resource:
        _unconfirmed(key, stored)
        require_in_force(key, stored)
        return commit_confirmed.confirmed(stored)

    await client.modify(key, change, "Update")


async def _revert(client: Client, key: ResourceKey) -> None:
    entry = await client.get(key)
    pending = _unconfirmed(key, entry.value)
    before = commit_confirmed.previous(key, pending)
    if before is None:
        await client.delete(key, str(entry.revision))
        return
    await client.modify(key, _back_to(key, before, entry), "Update")


def _back_to(key: ResourceKey, before: Resource, seen: Entry) -> Callable[[Resource], Resource]:
    def change(stored: Resource) -> Resource:
        if _text(stored) != _text(seen.value):
            raise MuslinError(f"{key} was changed meanwhile; try again")
        metadata = replace(
            stored.metadata,
            labels=before.metadata.labels,
            annotations=before.metadata.annotations,
        )
        return replace(before, metadata=metadata)

    return change


def _text(resource: Resource) -> str:
    return str(resource.metadata.annotations.get(commit_confirmed.ANNOTATION))


def _unconfirmed(key: ResourceKey, stored: Resource) -> commit_confirmed.Unconfirmed:
    try:
        pending = commit_confirmed.read(stored)
    except InvalidValue as error:
        raise MuslinError(f"{error}; apply {key} anew") from None
    if pending is None:
        raise MuslinError(f"{key} does not wait for confirmation")
    return pending
