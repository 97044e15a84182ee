"""`ipam show`: how full the pools are, and who holds an address."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

import click

from calicoctl import borders
from calicoctl.cli import datastore_options
from calicoctl.commands.common import options_of
from calicoctl.session import Options, datastore
from ipam.usage import BlockUsage, Holding, PoolUsage, utilisation, who_has
from libcalico.errors import InvalidValue, MuslinError

HEADINGS = ("GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS FREE")


@click.group("ipam")
def ipam() -> None:
    """Show who uses which address."""


@ipam.command("show")
@click.option("--ip", default=None, help="Who holds this address.")
@click.option("--show-blocks", is_flag=True, help="Also the blocks of each pool.")
@datastore_options
def show(
    ip: str | None,
    show_blocks: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Show how many addresses are in use, in total, per pool and per block."""
    options = options_of(config, allow_version_mismatch)
    click.echo(asyncio.run(_show(ip, show_blocks, options)), nl=False)


async def _show(ip: str | None, show_blocks: bool, options: Options) -> str:
    if ip is not None:
        try:
            address = ip_address(ip)
        except ValueError:
            raise InvalidValue("--ip", ip, "an IPv4 or IPv6 address") from None
        async with datastore(options) as store:
            return holding_text(await who_has(store, address))
    async with datastore(options) as store:
        pools = await utilisation(store)
    if not pools:
        raise MuslinError("no IP pools are configured; create one with calicoctl apply")
    return borders.render(HEADINGS, usage_rows(pools, show_blocks))


def usage_rows(pools: Sequence[PoolUsage], show_blocks: bool) -> list[list[str]]:
    """One row a pool and, with `show_blocks`, one a block; numbers as Go's `%.5g`."""
    rows: list[list[str]] = []
    for pool in pools:
        rows.append(_row("IP Pool", pool))
        if show_blocks:
            rows += [_row("Block", block) for block in pool.blocks]
    return rows


def _row(grouping: str, usage: PoolUsage | BlockUsage) -> list[str]:
    return [
        grouping,
        str(usage.cidr),
        f"{usage.capacity:.5g}",
        _share(usage.in_use, usage.capacity),
        _share(usage.free, usage.capacity),
    ]


def _share(part: int, whole: int) -> str:
    return f"{part:.5g} ({100 * part / whole if whole else 0:.0f}%)"


def holding_text(holding: Holding) -> str:
    """What is told of one address (data model 6.4)."""
    allocation = holding.allocation
    if allocation is None:
        return f"{holding.address} is not assigned\n"
    lines = [f"IP {holding.address} is in use", f"Handle ID: {allocation.handle_id or '<none>'}"]
    if allocation.attributes:
        lines.append("Active Owner Attributes:")
        lines += [f"  {key}: {value}" for key, value in sorted(allocation.attributes.items())]
    else:
        lines.append("No Active Owner attributes defined")
    return "".join(line + "\n" for line in lines)
