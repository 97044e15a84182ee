"""`ipam release`: give back one address, or everything that reports agree is leaked.

Texts and exit codes as Calico's (docs/reference/data-model.md#calicoctl-ipam). Tested in
`tests/calicoctl/test_ipam.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from calicoctl import versions
from calicoctl.cli import datastore_options, examples
from calicoctl.commands.ipam.show import parse_ip
from calicoctl.commands.resources.common import options_of
from calicoctl.session import Options, datastore
from ipam.admin import report as reports
from ipam.admin.library import Release, release_ips
from ipam.records.blocks import IPAddress
from libcalico.errors import MuslinError


@click.command(
    "release",
    epilog=examples(
        "calicoctl ipam release --ip 10.65.0.7",
        "# What two reports agree on, while nothing changes:",
        "calicoctl datastore migrate lock",
        "calicoctl ipam release --from-report old.json --from-report new.json",
        "calicoctl datastore migrate unlock",
    ),
)
@click.option("--ip", default=None, metavar="IP", help="The address to release.")
@click.option(
    "--from-report",
    "files",
    multiple=True,
    metavar="FILE",
    help="Release what this report of `ipam check` calls unused; repeat it, and only what all"
    " reports agree on is released. One of them must be new.",
)
@click.option("--force", is_flag=True, help="Also with a report of another version, or unlocked.")
@datastore_options
def release(
    ip: str | None,
    files: tuple[str, ...],
    force: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Release an address, so that any endpoint may get it; no endpoint loses it by that."""
    options = options_of(config, allow_version_mismatch, context)
    if (ip is None) == (not files):
        raise click.UsageError("give either --ip or --from-report")
    if ip is not None:
        address = parse_ip(ip)
        asyncio.run(_release_one(address, options))
        click.echo(f"Successfully released IP address {address}")
        return
    asyncio.run(_release_leaked(files, force, options))
    click.echo("You may now unlock the data store.")


async def _release_one(address: IPAddress, options: Options) -> None:
    async with datastore(options) as store:
        result = await release_ips(store, [Release(address)])
    for reason in result.refused.values():
        raise MuslinError(f"error: {reason}")
    if not result.released:
        raise MuslinError(f"IP address {address} is not assigned")


async def _release_leaked(files: Sequence[str], force: bool, options: Options) -> None:
    loaded = [(name, reports.parse(name, _bytes(name))) for name in files]
    async with datastore(options) as store:
        cluster = await reports.read_cluster(store)
        leaks = reports.merge(loaded, cluster, versions.CALICO, force)
        for warning in leaks.warnings:
            click.echo(warning)
        if leaks.addresses:
            click.echo(f"Releasing {len(leaks.addresses)} old IPs...")
        else:
            click.echo("Report didn't contain any leaked IPs to clean up.")
        if not leaks.handles:
            click.echo("Report didn't contain any handles to clean up.")
        outcome = await reports.release(store, leaks)
    if leaks.addresses:
        click.echo(f"Released {outcome.released} IPs successfully")
    if outcome.already_free:
        click.echo(f"{outcome.already_free} addresses of the report were free already.")
    if leaks.handles:
        click.echo(f"Released {outcome.handles} handles; {outcome.handles_changed} skipped.")
    if outcome.refused:
        reasons = "; ".join(outcome.refused.values())
        raise MuslinError(
            f"{len(outcome.refused)} addresses were not released, they changed since the report:"
            f" {reasons}"
        )


def _bytes(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise MuslinError(f"cannot read the report {name}: {error.strerror}") from error
