"""`get`: show resources by kind, by name or by file. Tested in tests/calicoctl/test_commands.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from calicoctl import cells, output
from calicoctl.cli import datastore_options, examples, file_options
from calicoctl.commands.resources.common import (
    KindType,
    documents_of,
    keys_of,
    kind_argument,
    options_of,
    renamed_of,
)
from calicoctl.listing.reader import Reader
from calicoctl.listing.result import Result
from calicoctl.session import Options, datastore
from libcalico.datastore.interface import Datastore
from libcalico.errors import DatastoreUnavailable, MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import KINDS, Resource, key_of
from libcalico.process import unlooped


@click.command(
    "get",
    epilog=examples(
        "calicoctl get nodes -o wide",
        "calicoctl get networkpolicies -A",
        "calicoctl get ippool default-ipv4-ippool -o yaml",
        "calicoctl get globalnetworkpolicies -o custom-columns=NAME,ORDER",
    ),
)
@click.argument("kind", required=False, type=KindType())
@click.argument("names", nargs=-1, metavar="[NAME]...")
@file_options
@click.option(
    "-o",
    "--output",
    "style",
    default="ps",
    metavar="FORMAT",
    help="ps, wide, yaml, json, custom-columns=HEADING,..., go-template=TEMPLATE,"
    " go-template-file=FILE; ps by default.",
)
@click.option("-A", "-a", "--all-namespaces", is_flag=True, help="Of all namespaces.")
@click.option("--export", is_flag=True, help="Leave out what belongs to this cluster only.")
@datastore_options
def get(
    kind: str | None,
    names: tuple[str, ...],
    filename: str | None,
    recursive: bool,
    skip_empty: bool,
    namespace: str,
    style: str,
    all_namespaces: bool,
    export: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Show resources: KIND lists all of a kind, KIND NAMES or --filename shows those."""
    output.check_style(style)
    if namespace and all_namespaces:
        raise MuslinError("cannot use both --namespace and --all-namespaces flags at the same time")
    options = options_of(config, allow_version_mismatch, context)
    known = kind_argument(kind, filename)
    keys: list[ResourceKey] = []
    legacy: list[Resource] = []
    if known is None:
        from calicoctl.preparing import prepare

        for document in documents_of(str(filename), recursive, skip_empty):
            resource = prepare(document.resource, namespace)
            keys.append(key_of(resource))
            if document.legacy:
                legacy.append(resource)
    elif names:
        keys = keys_of(known, names, namespace)
    elif (namespace or all_namespaces) and not KINDS[known].namespaced:
        raise MuslinError(f"{known} is not namespaced")
    scope = "" if all_namespaces else namespace or "default"
    results, errors, table_context = unlooped.run(
        _fetch(known, keys, legacy, scope, style, options)
    )
    if results:
        _show(
            results, style, export and bool(names), table_context, bool(namespace or all_namespaces)
        )
    if errors:
        raise MuslinError("\n".join(errors))


async def _fetch(
    kind: str | None,
    keys: Sequence[ResourceKey],
    legacy: Sequence[Resource],
    scope: str,
    style: str,
    options: Options,
) -> tuple[list[Result], list[str], cells.Context]:
    results: list[Result] = []
    errors: list[str] = []
    async with datastore(options) as store:
        client = Reader(store)
        if kind is not None and not keys:
            namespace = scope if KINDS[kind].namespaced else ""
            listed = await client.list(kind, namespace)
            results.append(listed)
            errors += [
                f"the datastore holds a value that cannot be read: {one}" for one in listed.broken
            ]
        renamed = await renamed_of(store, legacy)
        for key in keys:
            try:
                results.append(Result(key.kind, [await client.get(renamed.get(key, key))]))
            except DatastoreUnavailable:
                raise
            except MuslinError as error:
                errors.append(str(error))
        template = style.startswith("go-template")
        nodes = any(result.kind == "Node" for result in results)
        context = cells.Context()
        if template or (nodes and style not in ("yaml", "json", "ps")):
            context = await _context(store)
    return results, errors, context


async def _context(store: Datastore) -> cells.Context:
    try:
        entry = await store.get(ResourceKey("BGPConfiguration", "default"))
    except DatastoreUnavailable:
        raise
    except MuslinError:
        # Not permitted, or not readable: the table has Calico's default then.
        return cells.Context()
    if entry is None or entry.value.spec.asNumber is None:
        return cells.Context()
    return cells.Context(str(entry.value.spec.asNumber))


def _show(
    results: Sequence[Result],
    style: str,
    export: bool,
    context: cells.Context,
    with_namespace: bool,
) -> None:
    if style in ("json", "yaml"):
        # Not by click, which looks for terminal codes in all of it: both formats escape them.
        text = output.as_json if style == "json" else output.as_yaml
        sys.stdout.write(text(results, export))
    elif (template := output.template_of(style)) is not None:
        click.echo(output.as_template(results, template, context), nl=False)
    else:
        click.echo(output.as_tables(results, style, context, with_namespace), nl=False)
