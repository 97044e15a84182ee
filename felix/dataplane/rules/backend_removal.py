"""Takes away rules and sets of ours in back ends that are not used.

Invariant:
  BKE-1  Objects of the back end that is not used are removed, and only once what replaces them
         is in force: a change of the mode leaves no moment without rules
         (felix.dataplane.rules.manager).
Tested in tests/felix/kernel/test_backend_switch.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, cast

from felix.dataplane.rules import iptables, nftables
from felix.dataplane.rules.backend_mode import NATIVE, connected, legacy_tables
from felix.dataplane.rules.chain_target import Family
from felix.rules.nftables import TABLE
from linux.errors import CommandError, KernelError
from linux.ipset import IPSets
from linux.iptables import Desired, Table
from linux.netlink.wire import as_text
from linux.nftables.messages import CHAIN_NAME, GETCHAIN

VARIANTS: tuple[Literal["nft", "legacy"], ...] = ("nft", "legacy")

log = logging.getLogger(__name__)


async def remove_leftovers(
    used: str, lock_wait: float, still: Callable[[], bool] = lambda: True
) -> dict[str, str]:
    """Takes away our objects in the back ends that are not `used`; returns failures (BKE-1).

    `still`: asked before each table whether that is so; where it is not, nothing more is removed.
    """
    failures: dict[str, str] = {}
    if used != NATIVE and still():
        await asyncio.to_thread(_remove_tables, failures)
    for variant in VARIANTS:
        if used == f"iptables-{variant}":
            continue
        for family in cast("tuple[Family, ...]", (4, 6)):
            if not still():
                return failures
            for name in await asyncio.to_thread(holding, variant, family):
                if still():
                    await _empty(name, family, variant, lock_wait, failures)
    if used == NATIVE and not failures and still():
        await asyncio.to_thread(_remove_ipsets, failures)
    return failures


async def remove_everything(lock_wait: float) -> dict[str, str]:
    """Takes away our objects in every back end: for a node that is given up; returns failures."""
    failures = await remove_leftovers("", lock_wait)
    # A set that a rule still names cannot go.
    if not failures:
        await asyncio.to_thread(_remove_ipsets, failures)
    return failures


def _remove_tables(failures: dict[str, str]) -> None:
    with connected() as connection:
        if connection is None:
            return
    tables = nftables.NftTables((4, 6))
    try:
        if tables.remove():
            log.info("removed: the nftables tables named %s", TABLE)
    except KernelError as error:
        failures["nftables"] = str(error)
    finally:
        tables.close()


def holding(
    variant: Literal["nft", "legacy"],
    family: Family,
    owns: Callable[[str], bool] = iptables.SCHEME.owns,
) -> list[str]:
    """The tables of iptables in which a chain is ours (`owns`); legacy: that are there at all.

    No program runs.
    """
    if variant == "legacy":
        there = legacy_tables(family)
        return [name for name in iptables.NAMES if name in there]
    with connected() as connection:
        return [
            name
            for name in iptables.NAMES
            if connection is not None
            and any(
                owns(as_text(chain[CHAIN_NAME]))
                for chain in connection.objects(GETCHAIN, family, name)
            )
        ]


async def _empty(
    name: str,
    family: Family,
    variant: Literal["nft", "legacy"],
    lock_wait: float,
    failures: dict[str, str],
) -> None:
    table = Table(name, family, variant, iptables.SCHEME, lock_wait=max(1, round(lock_wait)))
    try:
        report = await table.commit(Desired({}, {}, {}))
    except CommandError as error:
        failures[f"{name} of iptables-{variant}, IPv{family}"] = str(error)
    else:
        if report.chains_deleted:
            log.info("removed: our chains in %s of iptables-%s, IPv%s", name, variant, family)
    finally:
        table.close()


def _remove_ipsets(failures: dict[str, str]) -> None:
    with IPSets() as kernel:
        for name in kernel.names():
            if name.startswith(("cali4", "cali6")):
                try:
                    kernel.destroy(name)
                except KernelError as error:
                    failures[name] = str(error)
