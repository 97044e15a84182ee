"""`create`, `apply`, `replace`: store resources.

All documents are checked before the first is written (CTL-2 in `calicoctl/checked.py`); then
each is tried, and every one that failed is named. Tested in
`tests/calicoctl/test_commands.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import click
import msgspec

from calicoctl.checked import ACCEPT_UNENFORCED, Prepared, prepared_all
from calicoctl.cli import datastore_options, examples, file_options
from calicoctl.client import Client
from calicoctl.commands.resources.common import (
    documents_of,
    initialised,
    options_of,
    report,
    required,
)
from calicoctl.outcome import Outcome
from calicoctl.session import Options, datastore
from libcalico import commit_confirmed, durations
from libcalico.errors import AlreadyExists, DatastoreUnavailable, MuslinError
from libcalico.model.kinds import Resource
from libcalico.process import unlooped

_ALLOW_OVERLAP = click.option(
    "--allow-overlap",
    is_flag=True,
    help="Store a pool that overlaps a node's network, the service range or another pool.",
)


class WriteFlags(msgspec.Struct, frozen=True):
    """The flags of the writing commands: what the operator lets pass."""

    accept_unenforced: bool = False
    allow_overlap: bool = False
    skip_exists: bool = False
    confirm_within: float = 0.0


@click.command(
    "create",
    epilog=examples(
        "calicoctl create -f pool.yaml",
        "calicoctl create -f policies/ -R --skip-exists",
    ),
)
@file_options
@click.option("--skip-exists", is_flag=True, help="A resource that exists is no error.")
@ACCEPT_UNENFORCED
@_ALLOW_OVERLAP
@datastore_options
def create(
    filename: str | None,
    recursive: bool,
    skip_empty: bool,
    namespace: str,
    skip_exists: bool,
    accept_unenforced: bool,
    allow_overlap: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Create resources from a file or from standard input."""
    options = options_of(config, allow_version_mismatch, context)
    flags = WriteFlags(accept_unenforced, allow_overlap, skip_exists)
    files = (required(filename), recursive, skip_empty)
    report(_run("create", files, namespace, options, flags))


def _duration(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float:
    if value is None:
        return 0.0
    try:
        seconds = durations.parse(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}") from None
    if not commit_confirmed.LEAST <= seconds <= commit_confirmed.MOST:
        least, most = durations.text(commit_confirmed.LEAST), durations.text(commit_confirmed.MOST)
        raise click.BadParameter(f"{value!r}: must be between {least} and {most}")
    return seconds


def _plain(verb: str, text: str, *typed: str) -> click.Command:
    """A command whose verb has no option of its own."""

    @click.command(verb, help=text, epilog=examples(*typed))
    @file_options
    @ACCEPT_UNENFORCED
    @_ALLOW_OVERLAP
    @datastore_options
    def command(
        filename: str | None,
        recursive: bool,
        skip_empty: bool,
        namespace: str,
        accept_unenforced: bool,
        allow_overlap: bool,
        config: str | None,
        context: str,
        allow_version_mismatch: bool,
    ) -> None:
        options = options_of(config, allow_version_mismatch, context)
        flags = WriteFlags(accept_unenforced, allow_overlap)
        files = (required(filename), recursive, skip_empty)
        report(_run(verb, files, namespace, options, flags))

    return command


@click.command(
    "apply",
    epilog=examples(
        "calicoctl apply -f policy.yaml",
        "cat policy.yaml | calicoctl apply -f -",
        "# Every node goes back by itself, unless a confirm follows:",
        "calicoctl apply -f policy.yaml --confirm-within 60s",
    ),
)
@file_options
@click.option(
    "--confirm-within",
    default=None,
    metavar="DURATION",
    callback=_duration,
    help="Go back to the version before, unless calicoctl confirm follows within 60s, say.",
)
@ACCEPT_UNENFORCED
@_ALLOW_OVERLAP
@datastore_options
def apply(
    filename: str | None,
    recursive: bool,
    skip_empty: bool,
    namespace: str,
    confirm_within: float,
    accept_unenforced: bool,
    allow_overlap: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Create resources, or replace those that exist."""
    options = options_of(config, allow_version_mismatch, context)
    flags = WriteFlags(accept_unenforced, allow_overlap, confirm_within=confirm_within)
    files = (required(filename), recursive, skip_empty)
    outcome = _run("apply", files, namespace, options, flags)
    report(outcome)
    if confirm_within and outcome.handled:
        click.echo(
            f"Run calicoctl confirm within {durations.text(confirm_within)},"
            " or every node goes back to the version before"
        )


replace = _plain(
    "replace",
    "Replace resources that exist.",
    "calicoctl get ippool default-ipv4-ippool -o yaml > pool.yaml",
    "calicoctl replace -f pool.yaml",
)


def _run(
    verb: str, files: tuple[str, bool, bool], namespace: str, options: Options, flags: WriteFlags
) -> Outcome:
    documents = documents_of(*files)
    kinds = [document.kind for document in documents]
    prepared, errors = prepared_all(documents, namespace, flags.accept_unenforced)
    if flags.confirm_within:
        errors += [
            f"{one.resource.kind}({one.resource.metadata.name}): --confirm-within is possible for"
            f" {', '.join(sorted(commit_confirmed.KINDS))} only"
            for one in prepared
            if one.resource.kind not in commit_confirmed.KINDS
        ]
    if errors or not documents:
        return Outcome(verb, kinds, 0, errors)
    handled, errors = unlooped.run(_write(verb, prepared, options, flags))
    return Outcome(verb, kinds, handled, errors)


async def _write(
    verb: str, prepared: Sequence[Prepared], options: Options, flags: WriteFlags
) -> tuple[int, list[str]]:
    handled, errors = 0, []
    async with datastore(options) as store:
        await initialised(store)
        client = Client(store, flags.allow_overlap)
        acts: dict[str, Callable[[Resource], Awaitable[None]]] = {
            "create": client.create,
            "apply": lambda resource: client.apply(resource, flags.confirm_within),
            "replace": client.update,
        }
        for one in prepared:
            try:
                # A file may come from `get`: what it says of an earlier deadline means nothing.
                resource = commit_confirmed.confirmed(one.resource)
                if one.legacy:
                    from libcalico.legacy import onto_stored  # few documents are old

                    resource = await onto_stored(store, resource)
                await acts[verb](resource)
                handled += 1
            except AlreadyExists as error:
                if flags.skip_exists:
                    handled += 1
                else:
                    errors.append(str(error))
            except DatastoreUnavailable as error:
                # Waiting out the deadline once is enough: what is left would fail alike.
                errors.append(str(error))
                break
            except MuslinError as error:
                errors.append(str(error))
    return handled, errors
