"""`create`, `apply`, `replace`, `delete`: change resources.

Invariant CTL-2: every document of a command is checked before the first key is written.
Tested in `tests/calicoctl/test_commands.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from calicoctl.cli import datastore_options, file_options
from calicoctl.client import Client, prepare
from calicoctl.commands.common import documents_of, keys_of, kind_argument, options_of
from calicoctl.documents import InputDocument
from calicoctl.outcome import Outcome
from calicoctl.session import Options, datastore
from calicoctl.unenforced import notices, refused
from libcalico.clusterinfo import ensure_initialized
from libcalico.datastore.interface import Datastore
from libcalico.errors import (
    AlreadyExists,
    DatastoreUnavailable,
    MuslinError,
    NotFound,
)
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import key_of
from libcalico.model.validate import problems

_ACCEPT = click.option(
    "--accept-unenforced", is_flag=True, help="Store also what this release does not enforce."
)


@click.command("create")
@file_options
@click.option("--skip-exists", is_flag=True, help="A resource that exists is no error.")
@_ACCEPT
@datastore_options
def create(
    filename: str | None,
    recursive: bool,
    skip_empty: bool,
    namespace: str,
    skip_exists: bool,
    accept_unenforced: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Create resources from a file or from standard input."""
    options = options_of(config, allow_version_mismatch)
    documents = _documents(filename, recursive, skip_empty)
    _report(
        asyncio.run(_write("create", documents, namespace, options, accept_unenforced, skip_exists))
    )


def _plain(verb: str, text: str) -> click.Command:
    """A command whose verb has no option of its own."""

    @click.command(verb, help=text)
    @file_options
    @_ACCEPT
    @datastore_options
    def command(
        filename: str | None,
        recursive: bool,
        skip_empty: bool,
        namespace: str,
        accept_unenforced: bool,
        config: str | None,
        context: str,
        allow_version_mismatch: bool,
    ) -> None:
        options = options_of(config, allow_version_mismatch)
        documents = _documents(filename, recursive, skip_empty)
        _report(asyncio.run(_write(verb, documents, namespace, options, accept_unenforced)))

    return command


apply = _plain("apply", "Create resources, or replace those that exist.")
replace = _plain("replace", "Replace resources that exist.")


@click.command("delete")
@click.argument("kind", required=False)
@click.argument("names", nargs=-1)
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
    options = options_of(config, allow_version_mismatch)
    known = kind_argument(kind, filename)
    if known is not None:
        keys = [(key, "") for key in keys_of(known, names, namespace)]
        if not keys:
            raise MuslinError("resource name may not be empty")
    else:
        prepared = [
            prepare(document.resource, namespace)
            for document in documents_of(str(filename), recursive, skip_empty)
        ]
        keys = [(key_of(item), item.metadata.resourceVersion) for item in prepared]
    _report(asyncio.run(_delete(keys, options, skip_not_exists)))


def _documents(filename: str | None, recursive: bool, skip_empty: bool) -> list[InputDocument]:
    if filename is None:
        raise click.UsageError("--filename is required")
    return documents_of(filename, recursive, skip_empty)


async def _write(
    verb: str,
    documents: Sequence[InputDocument],
    namespace: str,
    options: Options,
    accept_unenforced: bool,
    skip_exists: bool = False,
) -> Outcome:
    kinds = [document.kind for document in documents]
    prepared, errors = prepared_all(documents, namespace, accept_unenforced)
    if errors or not documents:
        return Outcome(verb, kinds, 0, errors)
    handled = 0
    async with datastore(options) as store:
        await _initialised(store)
        client = Client(store)
        act = {"create": client.create, "apply": client.apply, "replace": client.update}[verb]
        for resource in prepared:
            try:
                await act(resource)
                handled += 1
            except AlreadyExists as error:
                if skip_exists:
                    handled += 1
                else:
                    errors.append(str(error))
            except DatastoreUnavailable as error:
                # Waiting out the deadline once is enough: what is left would fail alike.
                errors.append(str(error))
                break
            except MuslinError as error:
                errors.append(str(error))
    return Outcome(verb, kinds, handled, errors)


def prepared_all(
    documents: Sequence[InputDocument], namespace: str, accept_unenforced: bool
) -> tuple[list[Any], list[str]]:
    """All resources ready to write, or all that is wrong with them (CTL-2).

    What is fine but not enforced is named on standard error.
    """
    prepared, errors = [], []
    for document in documents:
        try:
            resource = prepare(document.resource, namespace)
        except MuslinError as error:
            errors.append(f"{document.place()}: {error}")
            continue
        prepared.append(resource)
        wrong = problems(resource) + ([] if accept_unenforced else refused(resource))
        errors += [f"{document.place(one.field)}: {one}" for one in wrong]
        for field, told in notices(resource):
            name = f"{document.kind}({document.name})"
            click.echo(f"{document.place(field)}: {name}: {field}: not enforced: {told}", err=True)
    return prepared, errors


async def _initialised(store: Datastore) -> None:
    # Who may write only some kinds must still be able to write those, as in Calico.
    try:
        await ensure_initialized(store, "")
    except DatastoreUnavailable:
        raise
    except MuslinError:
        pass


async def _delete(
    keys: Sequence[tuple[ResourceKey, str]], options: Options, skip_missing: bool
) -> Outcome:
    handled, errors = 0, []
    async with datastore(options) as store:
        client = Client(store)
        for key, version in keys:
            try:
                await client.delete(key, version)
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
    return Outcome("delete", [key.kind for key, _ in keys], handled, errors)


def _report(outcome: Outcome) -> None:
    said, error = outcome.sentences()
    if said:
        click.echo(said)
    if error:
        raise MuslinError(error)
