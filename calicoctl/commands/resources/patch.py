"""`patch`: change some fields of one resource, by a strategic merge.

Tested in `tests/calicoctl/test_patch.py`.
"""

from __future__ import annotations

import asyncio
import json

import click

from calicoctl import aliases, yamltext
from calicoctl.checked import ACCEPT_UNENFORCED, complaints
from calicoctl.cli import completed_by, datastore_options, examples
from calicoctl.client import Client
from calicoctl.commands.resources.common import (
    KindType,
    keys_of,
    options_of,
    require_in_force,
)
from calicoctl.session import Options, datastore
from calicoctl.strategic import merged
from libcalico.errors import DatastoreUnavailable, InvalidValue, MuslinError
from libcalico.model.codec import resource_from_tree, shown_value
from libcalico.model.defaults import apply_defaults
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource

TYPES = ("strategic", "json", "merge")
NOT_OURS = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
)
"""What an object is, and what an API server alone writes: a pool with a deletionTimestamp, say,
gives out no address any more."""


@click.command(
    "patch",
    epilog=examples(
        'calicoctl patch ippool default-ipv4-ippool -p \'{"spec": {"natOutgoing": true}}\'',
        'calicoctl patch node node1 -p \'{"spec": {"bgp": {"asNumber": 64513}}}\'',
    ),
)
@click.argument("kind", type=KindType())
@click.argument("name", shell_complete=completed_by("of_resources"))
@click.option("-p", "--patch", "text", required=True, metavar="PATCH", help="JSON or YAML.")
@click.option(
    "-t",
    "--type",
    "type_",
    default="strategic",
    metavar="TYPE",
    type=click.Choice(TYPES, case_sensitive=False),
    help="strategic, json or merge; a strategic merge is what is applied.",
)
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NS",
    help="Namespace of the resource.",
    shell_complete=completed_by("of_namespaces"),
)
@ACCEPT_UNENFORCED
@datastore_options
def patch(
    kind: str,
    name: str,
    text: str,
    type_: str,
    namespace: str,
    accept_unenforced: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Change some fields of the resource NAME of KIND; what the patch leaves out stays."""
    options = options_of(config, allow_version_mismatch, context)
    key = keys_of(aliases.kind_of(kind), [name], namespace)[0]
    change = patch_of(text)
    if type_.lower() == "json":
        click.echo("--type json: a strategic merge is applied", err=True)
    try:
        asyncio.run(_patch(key, change, options, accept_unenforced))
    except DatastoreUnavailable:
        raise
    except MuslinError as error:
        raise MuslinError(f"failed to patch '{key.kind}' resource: [{error}]") from error
    click.echo(f"Successfully patched 1 '{key.kind}' resource")


def patch_of(text: str) -> dict[str, object]:
    """The patch as plain values; raises `MuslinError` for anything but one mapping."""
    documents = yamltext.load(text, "--patch")
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise MuslinError("--patch must be one JSON or YAML mapping, such as {spec: {...}}")
    change: dict[str, object] = documents[0].value
    return change


async def _patch(
    key: ResourceKey, change: dict[str, object], options: Options, accept_unenforced: bool
) -> None:
    async with datastore(options) as store:

        def changed(stored: Resource) -> Resource:
            require_in_force(key, stored)
            return patched(stored, change, accept_unenforced)

        await Client(store).modify(
            key,
            changed,
            "Patch",
            str(_metadata(change).get("resourceVersion") or ""),
        )


def patched(
    stored: Resource, change: dict[str, object], accept_unenforced: bool = False
) -> Resource:
    """The resource with the patch applied and checked; raises `MuslinError`."""
    before = json.loads(shown_value(stored))
    tree = merged(before, change)
    for field in ("kind", "apiVersion"):
        if tree.get(field) != before.get(field):
            raise MuslinError(f"{field}: {tree.get(field)!r}: a patch cannot change it")
    for field in NOT_OURS:
        if _metadata(tree).get(field) != _metadata(before).get(field):
            raise MuslinError(f"metadata.{field}: a patch cannot change it")
    try:
        resource = apply_defaults(resource_from_tree(tree, strict=True))
    except InvalidValue as error:
        if not error.rule.endswith("no such field"):
            raise
        from calicoctl.terminal import suggesting

        raise MuslinError(f"{error}{suggesting.of_field(type(stored), error.field)}") from None
    wrong = complaints(resource, accept_unenforced)
    if wrong:
        raise MuslinError("; ".join(str(one) for one in wrong))
    return resource


def _metadata(tree: dict[str, object]) -> dict[str, object]:
    metadata = tree.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
