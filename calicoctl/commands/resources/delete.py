"""`delete`: remove resources by file, or by kind and names.

Tested in `tests/calicoctl/test_commands.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from calicoctl.cli import completed_by, datastore_options, examples, file_options
from calicoctl.client import Client
from calicoctl.commands.resources.common import (
    KindType,
    documents_of,
    keys_of,
    keys_of_words,
    kind_argument,
    options_of,
    renamed_of,
    report,
)
from calicoctl.outcome import Outcome
from calicoctl.preparing import prepare
from calicoctl.session import Options, datastore
from libcalico.errors import DatastoreUnavailable, MuslinError, NotFound
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource, key_of

Target = tuple[ResourceKey, str]
"""A key and, where the file gives one, the version that it must have."""


@click.command(
    "delete",
    epilog=examples(
        "calicoctl delete bgppeer rack1-tor",
        "calicoctl delete networkpolicy web db -n shop",
        "calicoctl delete -f policy.yaml --skip-not-exists",
    ),
)
@click.argument("kind", required=False, type=KindType())
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completed_by("of_resources"))
@file_options
@click.option("-s", "--skip-not-exists", is_flag=True, help="A missing resource is no error.")
@datastore_options
def delete(
    kind: str | None,
    names: tuple[str, ...],
    filename: str | None,
    recursive: bool,
    skip_empty: bool,
    namespace: str,
    skip_not_exists: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Delete resources by file, or by KIND and NAMES."""
    options = options_of(config, allow_version_mismatch, context)
    known = kind_argument(kind, filename)
    targets: list[Target]
    legacy: list[Resource] = []
    if known is not None:
        targets = [(key, "") for key in keys_of(known, names, namespace)]
        if not targets:
            raise MuslinError(
                "resource name may not be empty: name what to delete, as in"
                f" calicoctl delete {known.lower()} NAME"
            )
    elif kind is not None:
        targets = [(key, "") for key in keys_of_words((kind, *names), namespace)]
    else:
        documents = documents_of(str(filename), recursive, skip_empty)
        resources = [prepare(document.resource, namespace) for document in documents]
        targets = [(key_of(item), item.metadata.resourceVersion) for item in resources]
        legacy = [
            item for item, document in zip(resources, documents, strict=True) if document.legacy
        ]
    report(asyncio.run(_delete(targets, legacy, options, skip_not_exists)))


async def _delete(
    targets: Sequence[Target], legacy: Sequence[Resource], options: Options, skip_missing: bool
) -> Outcome:
    handled, errors = 0, []
    if not targets:
        return Outcome("delete", [], 0, [])
    async with datastore(options) as store:
        client = Client(store)
        renamed = await renamed_of(store, legacy)
        for key, version in targets:
            try:
                await client.delete(renamed.get(key, key), version)
                handled += 1
            except NotFound as error:
                if skip_missing:
                    handled += 1
                else:
                    errors.append(str(error))
            except DatastoreUnavailable as error:
                errors.append(str(error))
                break
            except MuslinError as error:
                errors.append(str(error))
    return Outcome("delete", [key.kind for key, _ in targets], handled, errors)
