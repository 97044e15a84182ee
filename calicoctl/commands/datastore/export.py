"""`datastore migrate export`: write everything that another datastore needs.

Tested in `tests/calicoctl/test_datastore.py`.
"""

from __future__ import annotations

import asyncio
import os

import click

from calicoctl import datastream, exporting
from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of
from calicoctl.output import tree
from calicoctl.session import CLUSTER, Options, datastore
from libcalico import apiconfig
from libcalico.datastore.interface import Datastore, Entry, Listing, Selection
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.keys import IPAMConfigKey


@click.command(
    "export",
    epilog=examples(
        "calicoctl datastore migrate export > export.yaml",
    ),
)
@datastore_options
def export(config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Write what an etcd datastore holds to standard output, for `import`.

    The datastore must be locked: calicoctl datastore migrate lock. Endpoints and profiles are
    not written, the new datastore makes its own.
    """
    options = options_of(config, allow_version_mismatch, context)
    click.echo(asyncio.run(_export(options)), nl=False)


async def _export(options: Options) -> str:
    kind = apiconfig.load(options.config, os.environ).datastore_type
    if kind != apiconfig.ETCD:
        raise InvalidValue("datastoreType", kind, f"only {apiconfig.ETCD} can be exported")
    async with datastore(options) as store:
        cluster = await store.get(CLUSTER)
        if cluster is None or cluster.value.spec.datastoreReady is not False:
            raise MuslinError(
                "datastore is not locked: run `calicoctl datastore migrate lock` first,"
                " so that it does not change while it is written"
            )
        listings = {kind: await _list(store, Selection(kind)) for kind in datastream.KINDS_IN_ORDER}
        records: list[Entry] = []
        for family in ("BlockAffinity", "Block", "Handle"):
            records += (await _list(store, Selection(family))).entries
        settings = await store.get(IPAMConfigKey())
        records += [settings] if settings else []
    names = exporting.node_names(listings["Node"].entries)
    return datastream.render(
        exporting.lists(listings, names), tree(cluster), exporting.ipam_records(records, names)
    )


async def _list(store: Datastore, selection: Selection) -> Listing:
    listing = await store.list(selection)
    if listing.broken:
        unreadable = "; ".join(f"{key}: {reason}" for key, reason in listing.broken)
        raise MuslinError(f"nothing was exported, values cannot be read: {unreadable}")
    return listing
