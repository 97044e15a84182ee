"""`datastore migrate import`: store what `export` wrote in a Kubernetes datastore.

The stream is read and checked as a whole before anything is written, and nothing is written
beside objects that are there already. Tested in `tests/calicoctl/test_datastore.py` and, into a
real Kubernetes API, in `tests/apiserver/test_kdd_calicoctl.py`.
"""

from __future__ import annotations

import asyncio
import os

import click
from msgspec.structs import replace

from calicoctl import datastream, documents
from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of
from calicoctl.session import CLUSTER, Options, datastore
from libcalico import apiconfig
from libcalico.datastore.interface import ABSENT, Datastore, Put, Selection
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.kinds import key_of
from libcalico.model.validation.validate import problems

_MADE_AT_START = frozenset(
    {"Node", "Tier", "KubeControllersConfiguration", "FelixConfiguration", "BGPConfiguration"}
)
_OF_KUBERNETES = ("knp.default.", "kcnp.")


@click.command(
    "import",
    epilog=examples(
        "calicoctl -c kubernetes.cfg datastore migrate import -f export.yaml",
    ),
)
@click.option("-f", "--filename", required=True, metavar="FILE", help="The export; - for stdin.")
@datastore_options
def import_(filename: str, config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Store what `export` wrote in a Kubernetes datastore without Calico's objects."""
    _import(filename, options_of(config, allow_version_mismatch, context))


def _import(filename: str, options: Options) -> None:
    kind = apiconfig.load(options.config, os.environ).datastore_type
    if kind == apiconfig.ETCD:
        raise InvalidValue(
            "datastoreType", kind, "import needs kubernetes: the export is made for that datastore"
        )
    text = "".join(documents.text_of(raw, source) for source, raw in documents.read_texts(filename))
    stream = datastream.parse(text, filename)
    planned = plan(stream)
    asyncio.run(_store(stream, options, f"{filename} is sound ({planned})"))
    click.echo(f"Imported {planned}. Unlock the datastore when the nodes have changed over.")


async def _store(stream: datastream.Stream, options: Options, sound: str) -> None:
    """Write all of it; the cluster stays locked. Raises `MuslinError`."""
    async with datastore(options, gate=False) as store:
        there = await _existing(store)
        if there:
            raise MuslinError(
                f"{sound}, but the datastore holds objects of Calico already:"
                f" {', '.join(there[:5])}; nothing was imported"
            )
        # Locked first: nodes that look in meanwhile wait for the rest.
        cluster = replace(stream.cluster, spec=replace(stream.cluster.spec, datastoreReady=False))
        await store.commit([Put(CLUSTER, cluster)])
        for document in stream.resources:
            value = document.resource
            key = key_of(value)
            if key.kind != "Node":
                await store.commit([Put(key, value)])
                continue
            entry = await store.get(key)
            guard = entry.revision if entry else ABSENT
            await store.commit([Put(key, value, guard, entry)])
        for record, content in stream.ipam.items():
            await store.commit([Put(record, content)])


async def _existing(store: Datastore) -> list[str]:
    """What an import would have to mix with; what every start of a node makes is none of it."""
    keys: list[str] = []
    for family in (*datastream.KINDS_IN_ORDER, "Block", "Handle"):
        if family in _MADE_AT_START:
            continue
        for entry in (await store.list(Selection(family))).entries:
            name = getattr(entry.key, "name", "")
            if not name.startswith(_OF_KUBERNETES):
                keys.append(str(entry.key))
    return keys


def plan(stream: datastream.Stream) -> str:
    """What an import would write, in words; raises `MuslinError` naming every bad resource."""
    wrong = [
        f"{document.place(one.field)}: {one}"
        for document in stream.resources
        for one in problems(document.resource)
    ]
    if wrong:
        raise MuslinError("; ".join(wrong))
    return f"{len(stream.resources)} resources, {len(stream.ipam)} records of IPAM"
