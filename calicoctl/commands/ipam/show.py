"""`ipam show`: how full the pools are, who holds or borrows an address, the settings.

Tables and texts as Calico prints them (docs/reference/data-model.md#calicoctl-ipam). Tested in
`tests/calicoctl/test_ipam.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

import click

from calicoctl import borders
from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of
from calicoctl.session import Options, datastore
from ipam.admin.usage import (
    ORPHANS,
    BlockUsage,
    Borrowed,
    Holding,
    PoolUsage,
    borrowed,
    utilisation,
    who_has,
)
from ipam.records.blocks import IPAddress
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import IPAMConfig
from libcalico.process import unlooped

HEADINGS = ("GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS RESERVED", "IPS FREE")
BORROWED = ("IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "TYPE", "ALLOCATED-TO")


@click.command(
    "show",
    epilog=examples(
        "calicoctl ipam show --show-blocks",
        "calicoctl ipam show --ip 10.65.0.7",
        "calicoctl ipam show --show-borrowed",
    ),
)
@click.option("--ip", default=None, metavar="IP", help="Who holds this address.")
@click.option("--show-blocks", is_flag=True, help="Also the blocks of each pool.")
@click.option("--show-borrowed", is_flag=True, help="The addresses lent to other nodes.")
@click.option("--show-configuration", is_flag=True, help="The settings of the allocator.")
@datastore_options
def show(
    ip: str | None,
    show_blocks: bool,
    show_borrowed: bool,
    show_configuration: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Show how many addresses are in use, in total, per pool and per block."""
    options = options_of(config, allow_version_mismatch, context)
    address = parse_ip(ip) if ip is not None else None
    if address is not None:
        text = unlooped.run(_address(address, options))
    elif show_borrowed:
        text = unlooped.run(_borrowed(options))
    elif show_configuration:
        text = unlooped.run(_configuration(options))
    else:
        text = unlooped.run(_usage(show_blocks, options))
    click.echo(text, nl=False)


def parse_ip(text: str) -> IPAddress:
    """The value of `--ip`; raises InvalidValue."""
    try:
        return ip_address(text)
    except ValueError:
        raise InvalidValue("--ip", text, "an IPv4 or IPv6 address") from None


async def _address(address: IPAddress, options: Options) -> str:
    async with datastore(options) as store:
        return holding_text(await who_has(store, address))


async def _borrowed(options: Options) -> str:
    async with datastore(options) as store:
        addresses, unknown = await borrowed(store)
    text = borders.render(BORROWED, [_borrowed_row(one) for one in addresses])
    if unknown:
        text += (
            f"\nNote: {unknown} allocations do not name their node,"
            " so nobody can tell whether they are borrowed.\n"
        )
    return text


def _borrowed_row(one: Borrowed) -> list[str]:
    return [str(one.address), one.node, str(one.block), one.owner, one.kind, one.allocated_to]


async def _configuration(options: Options) -> str:
    from ipam.admin.library import get_config  # the whole allocator

    async with datastore(options) as store:
        return borders.render(("PROPERTY", "VALUE"), settings_rows(await get_config(store)))


def settings_rows(config: IPAMConfig) -> list[list[str]]:
    """The settings under the names that Calico prints."""
    return [
        ["StrictAffinity", str(config.strict_affinity).lower()],
        ["AutoAllocateBlocks", str(config.auto_allocate_blocks).lower()],
        ["MaxBlocksPerHost", str(config.maxBlocksPerHost)],
        ["KubeVirtVMAddressPersistence", config.kubeVirtVMAddressPersistence or "Enabled"],
        ["IPCooldownSeconds", str(config.ipCooldownSeconds)],
    ]


async def _usage(show_blocks: bool, options: Options) -> str:
    async with datastore(options) as store:
        pools = await utilisation(store)
    if not pools:
        raise MuslinError("no IP pools are configured; create one with calicoctl apply")
    return borders.render(HEADINGS, usage_rows(pools, show_blocks))


def usage_rows(pools: Sequence[PoolUsage], show_blocks: bool) -> list[list[str]]:
    """One row a pool and, with `show_blocks`, one a block; numbers as Go's `%.5g`.

    Blocks without a pool have no row of a pool above them.
    """
    rows: list[list[str]] = []
    for pool in pools:
        if pool.name != ORPHANS:
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
        _share(usage.reserved, usage.capacity),
        _share(usage.free, usage.capacity),
    ]


def _share(part: int, whole: int) -> str:
    return f"{part:.5g} ({100 * part / whole if whole else 0:.0f}%)"


def holding_text(holding: Holding) -> str:
    """What is told of one address (docs/reference/data-model.md#calicoctl-ipam)."""
    allocation = holding.allocation
    if allocation is None:
        return f"{holding.address} is not assigned\n"
    lines = [f"IP {holding.address} is in use", f"Handle ID: {allocation.handle_id or '<none>'}"]
    if allocation.attributes:
        lines.append("Active Owner Attributes:")
        lines += [f"  {key}: {value}" for key, value in sorted(allocation.attributes.items())]
    else:
        lines.append("No Active Owner attributes defined")
    if holding.alternate:
        lines.append("Alternate Owner Attributes:")
        lines += [f"  {key}: {value}" for key, value in sorted(holding.alternate.items())]
    return "".join(line + "\n" for line in lines)
