"""`ipam split`: replace a pool by equal smaller ones (docs/reference/data-model.md#calicoctl-ipam).

Tested in `tests/calicoctl/test_ipam.py`.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_network

import click

from calicoctl.cli import completed_by, datastore_options, examples
from calicoctl.commands.resources.common import options_of
from calicoctl.session import Options, datastore
from ipam.admin import split as splitting
from ipam.admin.report import read_cluster
from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import IPPool
from libcalico.model.keys import ResourceKey
from libcalico.pools import network_of


@click.command(
    "split",
    epilog=examples(
        "calicoctl ipam split 4 --name default-ipv4-ippool",
    ),
)
@click.argument("number", metavar="NUMBER")
@click.option("--cidr", default=None, metavar="CIDR", help="CIDR of the pool.")
@click.option(
    "--name",
    default=None,
    shell_complete=completed_by("of_pools"),
    metavar="NAME",
    help="Name of the pool.",
)
@datastore_options
def split(
    number: str,
    cidr: str | None,
    name: str | None,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Split a pool into NUMBER equal smaller ones; NUMBER is a power of 2.

    The datastore must be locked: calicoctl datastore migrate lock.
    """
    options = options_of(config, allow_version_mismatch, context)
    if not number.isdecimal():
        raise InvalidValue("NUMBER", number, "a whole number")
    if cidr is None and name is None:
        raise MuslinError("no name or CIDR provided: say which pool with --name or --cidr")
    pool, children = asyncio.run(_split(int(number), cidr, name, options))
    click.echo(f"IP Pool {pool} was successfully split into {len(children)} smaller pools.")
    for child in children:
        click.echo(f"Created {child.metadata.name} with CIDR {child.spec.cidr}.")
    click.echo("You may now unlock the data store: calicoctl datastore migrate unlock")


async def _split(
    number: int, cidr: str | None, name: str | None, options: Options
) -> tuple[str, list[IPPool]]:
    async with datastore(options) as store:
        if not (await read_cluster(store)).locked:
            raise MuslinError(
                "datastore is not locked: run `calicoctl datastore migrate lock` first,"
                " so that no node takes a block meanwhile"
            )
        entry = await find_pool(store, name, cidr)
        return entry.value.metadata.name, await splitting.split(store, entry, number)


async def find_pool(store: Datastore, name: str | None, cidr: str | None) -> Entry:
    """The pool of a name, a CIDR, or both; raises `MuslinError` when there is none."""
    try:
        network = ip_network(cidr, strict=False) if cidr else None
    except ValueError:
        raise InvalidValue("--cidr", cidr, "a CIDR") from None
    for entry in (await store.list(Selection("IPPool"))).entries:
        named = name is None or entry.key == ResourceKey("IPPool", name)
        if named and (network is None or network_of(entry.value) == network):
            return entry
    description = " and ".join(text for text in (name, cidr) if text)
    raise MuslinError(f"unable to find an IP pool {description}")
