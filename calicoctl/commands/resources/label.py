"""`label`: set or remove one label of one resource.

Tested in `tests/calicoctl/test_patch.py`.
"""

from __future__ import annotations

import asyncio

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
from libcalico.errors import MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource
from libcalico.model.validation.validate import problems


@click.command(
    "label",
    epilog=examples(
        "calicoctl label nodes node1 rack=r1",
        "calicoctl label nodes node1 rack=r2 --overwrite",
        "calicoctl label nodes node1 rack --remove",
    ),
)
@click.argument("kind", type=KindType())
@click.argument("name", shell_complete=completed_by("of_resources"))
@click.argument("label", metavar="KEY=VALUE|KEY")
@click.option("--overwrite", is_flag=True, help="Replace a value that is there.")
@click.option("--remove", is_flag=True, help="Remove the label KEY.")
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NS",
    help="Namespace of the resource.",
    shell_complete=completed_by("of_namespaces"),
)
@datastore_options
def label(
    kind: str,
    name: str,
    label: str,
    overwrite: bool,
    remove: bool,
    namespace: str,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Set the label KEY of the resource NAME of KIND to VALUE, or remove it."""
    options = options_of(config, allow_version_mismatch, context)
    key = keys_of(aliases.kind_of(kind), [name], namespace)[0]
    label_key, value = parsed(label, overwrite, remove)
    done = asyncio.run(_label(key, label_key, value, overwrite, options))
    click.echo(f"Successfully {done} {kind} {name}")


def parsed(text: str, overwrite: bool, remove: bool) -> tuple[str, str | None]:
    """Key and value of the label, None to remove it; raises `UsageError`."""
    key, equals, value = text.partition("=")
    if remove and overwrite:
        raise click.UsageError("give either --remove or --overwrite")
    if not key:
        raise click.UsageError(f"{text!r}: the label's key is empty")
    if remove:
        if equals:
            raise click.UsageError(f"--remove takes the label's key alone, not {text!r}")
        return key, None
    if not equals:
        raise click.UsageError(f"{text!r}: give KEY=VALUE, or KEY and --remove")
    return key, value


async def _label(
    key: ResourceKey, label_key: str, value: str | None, overwrite: bool, options: Options
) -> str:
    said = ""

    def change(stored: Resource) -> Resource:
        nonlocal said
        require_in_force(key, stored)
        labels, said = labelled(stored.metadata.labels, label_key, value, overwrite, str(key))
        resource = replace(stored, metadata=replace(stored.metadata, labels=labels))
        wrong = problems(resource)
        if wrong:
            raise MuslinError("; ".join(str(one) for one in wrong))
        return resource

    async with datastore(options) as store:
        await Client(store).modify(key, change, "Update")
    return said


def labelled(
    labels: dict[str, str], key: str, value: str | None, overwrite: bool, subject: str
) -> tuple[dict[str, str], str]:
    """The new labels, and what was done as Calico says it; raises `MuslinError`."""
    if value is None:
        if key not in labels:
            raise MuslinError(f"can not remove label of {subject}, key {key} does not exist")
        return {name: old for name, old in labels.items() if name != key}, (
            f"removed label {key} from"
        )
    if key not in labels:
        return {**labels, key: value}, f"set label {key} on"
    if labels[key] != value and not overwrite:
        raise MuslinError(
            f"failed to update label of {subject}, key {key} is already present;"
            " use --overwrite to replace its value"
        )
    return {**labels, key: value}, f"updated label {key} on"
