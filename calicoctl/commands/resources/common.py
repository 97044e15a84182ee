"""What the resource commands share: options to a session, arguments to keys and documents.

Tested in tests/calicoctl/test_commands.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from calicoctl import aliases
from calicoctl.outcome import Outcome
from calicoctl.session import Options
from libcalico.datastore.interface import Datastore
from libcalico.errors import DatastoreUnavailable, InvalidValue, MuslinError
from libcalico.model.base.meta import API_VERSION
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import KINDS, Resource, key_of

if TYPE_CHECKING:
    from calicoctl.documents import InputDocument


class KindType(click.ParamType[str]):
    """A kind by any of its names: text for the parser, kinds for the shell's completion."""

    name = "kind"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The kinds that begin so, as Calico writes their plurals."""
        word = incomplete.lower()
        return [CompletionItem(name) for name in aliases.plurals() if name.startswith(word)]


def echo(text: str, palette: str) -> None:
    """Print a finished text, in the colours of `palette` where they are wanted."""
    chosen = click.get_current_context().color
    terminal = sys.stdout.isatty()
    if chosen or (chosen is None and terminal):
        from calicoctl.terminal import colour

        if chosen or colour.expected(terminal, os.environ):
            text = colour.painted(text, palette)
    click.echo(text, nl=False)


def echo_tree(tree: Mapping[str, object], form: str) -> None:
    """Print plain values as one object, in `json` or `yaml`."""
    if form == "json":
        import json

        click.echo(json.dumps(tree, indent=2))
    else:
        from calicoctl import yamltext

        click.echo(yamltext.dump(tree), nl=False)


def options_of(config: str | None, allow_version_mismatch: bool, context: str = "") -> Options:
    """The session options, a flag before the command counting like one after it."""
    before = click.get_current_context().find_root().obj or {}
    return Options(
        config,
        allow_version_mismatch or bool(before.get("allow_version_mismatch")),
        context or str(before.get("context") or ""),
    )


def documents_of(filename: str, recursive: bool, skip_empty: bool) -> list[InputDocument]:
    """The documents of `-f`; raises `MuslinError` when there is none, unless `skip_empty`."""
    from calicoctl.documents import load_files

    try:
        documents = load_files(filename, recursive)
    except MuslinError as error:
        raise MuslinError(f"failed to execute command: {error}") from error
    if not documents and not skip_empty:
        raise MuslinError(f"No resources specified in file {filename}")
    return documents


def required(filename: str | None) -> str:
    """The file of `-f`; raises `UsageError` when it is missing."""
    if filename is None:
        raise click.UsageError("--filename is required")
    return filename


def report(outcome: Outcome) -> None:
    """Say what was done; raises `MuslinError` with everything that was not."""
    said, error = outcome.sentences()
    if said:
        click.echo(said)
    if error:
        raise MuslinError(error)


async def initialised(store: Datastore) -> None:
    """Make sure that cluster information and tiers exist, as far as this user may."""
    from libcalico.clusterinfo import ensure_initialized

    # Who may write only some kinds must still be able to write those, as in Calico.
    try:
        await ensure_initialized(store, "", version="")
    except DatastoreUnavailable:
        raise
    except MuslinError:
        pass


def keys_of(kind: str, names: Sequence[str], namespace: str) -> list[ResourceKey]:
    """The keys of `KIND NAME...`; `kind` as in the model; raises `MuslinError`."""
    if any(not name for name in names):
        raise MuslinError("resource name may not be empty")
    if KINDS[kind].namespaced:
        return [ResourceKey(kind, name, namespace or "default") for name in names]
    if namespace:
        raise MuslinError(f"{kind} is not namespaced")
    return [ResourceKey(kind, name) for name in names]


def keys_of_words(words: Sequence[str], namespace: str) -> list[ResourceKey]:
    """The keys of `KIND/NAME ...`, as `get -o name` prints them; raises `UsageError`."""
    keys: list[ResourceKey] = []
    for word in words:
        kind, slash, name = word.partition("/")
        if not slash:
            raise click.UsageError(f"{word!r}: write each as KIND/NAME, or KIND NAME...")
        group = kind.lower().removesuffix(f".{API_VERSION.partition('/')[0]}")
        keys += keys_of(aliases.kind_of(group), [name], namespace)
    return keys


def kind_argument(kind: str | None, filename: str | None) -> str | None:
    """The kind of `KIND`, None when `-f` or `KIND/NAME` is given.

    Raises `UsageError` for none or both.
    """
    if (kind is None) == (filename is None):
        raise click.UsageError("give either --filename or KIND [NAME]...")
    return None if kind is None or "/" in kind else aliases.kind_of(kind)


def require_in_force(key: ResourceKey, stored: Resource) -> None:
    """Raise `MuslinError` for a version that was not confirmed in time.

    No node acts on it any more, so a change of it would change nothing, or switch it on unseen
    (docs/design/0008-confirm-within.md).
    """
    from libcalico import commit_confirmed

    with suppress(InvalidValue):  # then the stored version counts
        pending = commit_confirmed.read(stored)
        if pending is not None and pending.passed(datetime.now(UTC)):
            raise MuslinError(
                f"{key} was not confirmed by {pending.deadline}: the version before it is in force"
                " again. Apply it anew, or store the version before with confirm --revert"
            )


async def renamed_of(
    store: Datastore, legacy: Sequence[Resource]
) -> dict[ResourceKey, ResourceKey]:
    """The stored keys of resources that came from first-generation documents.

    A pool of that time is known by its CIDR alone: the stored one may have another name.
    """
    if not legacy:
        return {}
    from libcalico.legacy import onto_stored

    return {key_of(item): key_of(await onto_stored(store, item)) for item in legacy}
