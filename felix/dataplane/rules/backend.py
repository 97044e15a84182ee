"""The back ends that write rules and sets: what both of them can do, and how one is opened.

Tested in tests/felix/kernel/test_backends.py and test_backend_switch.py.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from typing import Protocol, cast

from felix.config.parameters import Config
from felix.dataplane.rules import iptables, nftables
from felix.dataplane.rules.chain_target import ChainTarget, Dispatch, Family, Place
from felix.dataplane.rules.drift import Drift
from felix.dataplane.rules.ipsets import Sets
from felix.rules.model import Action, Chain, TableModel
from felix.rules.nftables import TABLE
from linux.errors import KernelError
from linux.nftables.connection import Connection
from linux.nftables.messages import new_table


class Target(ChainTarget, Protocol):
    """One table of one family."""

    def differs(self, name: str) -> bool:
        """Whether the kernel has a chain of this name with other rules than are wanted."""


class Tables(Protocol):
    """What the main loop asks of a back end; `felix.dataplane.rules.iptables` explains it."""

    refused: dict[Place, dict[str, str]]
    drifted: int
    drift: Drift

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def places(self) -> Mapping[Place, Target]:
        """Every table, told in the rule model."""

    @property
    def garbage(self) -> bool:
        """Whether the kernel has something of ours that is not desired."""

    @property
    def saves(self) -> int:
        """How often tables were read."""

    @property
    def restores(self) -> int:
        """How often tables were written."""

    @property
    def errors(self) -> tuple[int, int]:
        """How many reads and how many writes failed."""

    @property
    def rules(self) -> int:
        """Rules wanted."""

    @property
    def chains(self) -> int:
        """Chains wanted."""

    def dispatch(self, family: int, prefixes: tuple[str, ...], deny: Action) -> Dispatch:
        """How packets of one family find their endpoint."""

    def want(self, family: Family, models: Mapping[str, TableModel]) -> None:
        """What does not depend on endpoints or policies."""

    def commit_now(self, *, sweep: bool = True) -> bool:
        """As `commit`, before this returns; False where that takes time, or a refusal came."""

    async def commit(self, *, sweep: bool = True) -> dict[str, str]:
        """Write what differs; returns failures."""

    async def accepts(self, place: Place, chains: Iterable[Chain]) -> frozenset[str]:
        """Those of these chains, by name, that the kernel would take now."""

    async def counters(
        self, family: Family, table: str, chains: Collection[str]
    ) -> dict[str, list[tuple[int, int, str]]]:
        """Packets, bytes and text of each rule of these chains, as the kernel has them."""

    async def read_back(self) -> bool:
        """Read everything; returns whether a commit is due.

        Raises `KernelError` when something could not be read, after the rest was.
        """

    def take_lost(self) -> bool:
        """Whether sets may be gone with what another program removed; says so once."""

    def close(self) -> None:
        """Give back what waits; the rules stay."""


async def open_backend(
    config: Config, families: frozenset[int], *, in_nftables: bool, drifted: Callable[[], None]
) -> tuple[Tables, Sets]:
    """The tables and the sets of a back end. Raises `KernelError` where it cannot be used.

    `drifted` is called when another program changes them, where the kernel tells.
    """
    if in_nftables:
        must_take_nftables(families)
        kernel, native_tables = nftables.open_sets(families), nftables.NftTables(families)
        native_tables.watch(kernel, drifted)
        return native_tables, Sets(families, config.max_ipset_size, kernel)
    lock_wait = config.iptables_lock_timeout
    tables = await iptables.open_tables(config.iptables_backend, families, lock_wait)
    return tables, Sets(families, config.max_ipset_size)


def must_take_nftables(families: frozenset[int]) -> None:
    """Raises `KernelError` that says what is lacking where we cannot write; nothing is written."""
    with closing(Connection()) as connection:
        for family in cast("tuple[Family, ...]", tuple(sorted(families))):
            try:
                # Not our own table: whether that may be changed is another matter.
                connection.commit([new_table(family, f"{TABLE}-trial")], trial=True)
            except KernelError as error:
                # A kernel without nf_tables knows no such messages and calls them invalid.
                lack = f"this kernel has no nftables for IPv{family} (nf_tables)"
                if error.errno == errno.EPERM:
                    lack = "CAP_NET_ADMIN is needed"
                hint = f"{lack}; nftablesMode Disabled has rules in iptables"
                raise KernelError(error.errno, "write rules in nftables", hint) from error
