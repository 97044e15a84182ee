"""`get`: show resources by kind, by name or by file.

Tested in tests/calicoctl/test_commands.py and tests/calicoctl/test_get_options.py.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from calicoctl import aliases, cells, output
from calicoctl.cli import completed_by, datastore_options, examples, file_options
from calicoctl.commands.resources.common import (
    KindType,
    documents_of,
    echo,
    keys_of,
    keys_of_words,
    kind_argument,
    options_of,
    renamed_of,
)
from calicoctl.listing.reader import Reader, table_context
from calicoctl.listing.result import Request, Result
from calicoctl.output import Shape
from calicoctl.session import Options, datastore
from libcalico.errors import DatastoreUnavailable, MuslinError
from libcalico.model.kinds import KINDS, key_of
from libcalico.process import unlooped

if TYPE_CHECKING:
    from calicoctl.documents import InputDocument


@click.command(
    "get",
    epilog=examples(
        "calicoctl get nodes -o wide --age",
        "calicoctl get networkpolicies -A --selector team=web",
        "calicoctl get ippool default-ipv4-ippool -o yaml",
        "calicoctl get workloadendpoints -A --watch",
        "calicoctl get nodes -o jsonpath='{.items[*].metadata.name}'",
        "calicoctl get ippools -o name --selector old | xargs calicoctl delete",
    ),
)
@click.argument("kind", required=False, type=KindType())
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completed_by("of_resources"))
@file_options
@click.option(
    "-o",
    "--output",
    "style",
    default="ps",
    metavar="FORMAT",
    shell_complete=completed_by("of_styles"),
    help="ps, wide, yaml, json, name, custom-columns=HEADING,..., go-template=TEMPLATE,"
    " go-template-file=FILE, jsonpath=TEMPLATE, jsonpath-file=FILE; ps by default.",
)
@click.option("-A", "-a", "--all-namespaces", is_flag=True, help="Of all namespaces.")
@click.option(
    "--selector",
    default=None,
    metavar="LABELS",
    help="Only resources with such labels: app=web,tier!=db, app in (web,api), app, !app, or a"
    " selector of Calico.",
)
@click.option("-w", "--watch", is_flag=True, help="Go on showing what changes, until interrupted.")
@click.option(
    "--output-watch-events",
    "events",
    is_flag=True,
    help="With --watch, say of each row or object whether it was added, modified or deleted.",
)
@click.option("--age", is_flag=True, help="One column more: the time since a resource was made.")
@click.option("--no-headers", is_flag=True, help="A table without its headings and empty line.")
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
    selector: str | None,
    watch: bool,
    events: bool,
    age: bool,
    no_headers: bool,
    export: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Show resources: KIND lists all of a kind, KIND NAMES or --filename shows those."""
    _check_style(style, {"--age": age, "--no-headers": no_headers})
    _check_watch(style, watch=watch, events=events, export=export)
    if namespace and all_namespaces:
        raise MuslinError("cannot use both --namespace and --all-namespaces flags at the same time")
    options = options_of(config, allow_version_mismatch, context)
    if filename is None or kind is not None:
        kind_argument(kind, filename)
        request = _of_kind(str(kind), names, namespace, all_namespaces)
    else:
        request = _of_files(documents_of(filename, recursive, skip_empty), namespace)
    if selector is not None:
        request = _selected(request, selector)
    shape = Shape(
        style,
        namespaces=bool(namespace or all_namespaces),
        headers=not no_headers,
        age=age,
        export=export and bool(names),
    )
    if watch:
        from calicoctl.listing import watching

        watching.run(request, shape, options, events)
        return
    results, errors, needed = unlooped.run(_fetch(request, style, options))
    if results:
        _show(results, shape, needed)
    if errors:
        raise MuslinError("\n".join(errors))


def _check_style(style: str, of_table: Mapping[str, bool]) -> None:
    """Raise for a style that is none, or flags of tables that contradict it."""
    kind = style.partition("=")[0]
    if style not in output.PLAIN:
        from calicoctl.listing import styles

        styles.check(style)
    if kind not in (*output.TABLES, "custom-columns"):
        for flag, given in of_table.items():
            if given:
                raise click.UsageError(f"{flag} is for tables; -o {kind} is none")


def _check_watch(style: str, *, watch: bool, events: bool, export: bool) -> None:
    """Raise for flags of a watch that contradict each other, or the style."""
    kind = style.partition("=")[0]
    if events:
        if not watch:
            raise click.UsageError("--output-watch-events needs --watch")
        if kind in ("name", "go-template", "go-template-file", "jsonpath", "jsonpath-file"):
            raise click.UsageError(f"--output-watch-events has no place in -o {kind}")
    if watch and export:
        raise click.UsageError("give either --watch or --export")


def _of_kind(kind: str, names: Sequence[str], namespace: str, all_namespaces: bool) -> Request:
    """A kind, or KIND and NAMES, or words KIND/NAME."""
    if "/" in kind:
        return Request(None, "", keys_of_words((kind, *names), namespace))
    known = aliases.kind_of(kind)
    if names:
        if all_namespaces and KINDS[known].namespaced:
            raise click.UsageError("a name is that of one namespace: give --namespace, not -A")
        return Request(known, "", keys_of(known, names, namespace))
    if (namespace or all_namespaces) and not KINDS[known].namespaced:
        raise MuslinError(f"{known} is not namespaced")
    scoped = KINDS[known].namespaced and not all_namespaces
    return Request(known, (namespace or "default") if scoped else "")


def _of_files(documents: Sequence[InputDocument], namespace: str) -> Request:
    from calicoctl.preparing import prepare

    resources = [prepare(document.resource, namespace) for document in documents]
    legacy = [one for one, document in zip(resources, documents, strict=True) if document.legacy]
    return Request(None, "", [key_of(one) for one in resources], legacy)


def _selected(request: Request, selector: str) -> Request:
    from calicoctl.listing import label_query

    if request.kind is None or request.keys:
        raise click.UsageError("--selector chooses among a kind: leave names and files out")
    return replace(request, selects=label_query.matcher(selector))


async def _fetch(
    request: Request, style: str, options: Options
) -> tuple[list[Result], list[str], cells.Context]:
    results: list[Result] = []
    errors: list[str] = []
    async with datastore(options) as store:
        client = Reader(store)
        if request.kind is not None and not request.keys:
            listed = await client.list(request.kind, request.namespace)
            results.append(listed if request.selects is None else listed.only(request.selects))
            errors += [
                f"the datastore holds a value that cannot be read: {one}" for one in listed.broken
            ]
        renamed = await renamed_of(store, request.legacy)
        for key in request.keys:
            try:
                results.append(Result(key.kind, [await client.get(renamed.get(key, key))]))
            except DatastoreUnavailable:
                raise
            except MuslinError as error:
                errors.append(str(error))
        return results, errors, await table_context(store, style, [one.kind for one in results])


def _show(results: Sequence[Result], shape: Shape, context: cells.Context) -> None:
    style = shape.style
    if style in ("json", "yaml"):
        # Not by click, which looks for terminal codes in all of it: both formats escape them.
        text = output.as_json if style == "json" else output.as_yaml
        sys.stdout.write(text(results, shape.export))
    elif style in output.TABLES or style.startswith("custom-columns="):
        echo(output.as_tables(results, shape, context), "table")
    else:
        from calicoctl.listing import styles

        click.echo(styles.text_of(results, style, context), nl=False)
