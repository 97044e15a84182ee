"""Which back end writes the rules, and what both of them can do.

Calico's parameter decides (docs/reference/data-model.md#felixconfiguration,
docs/reference/dataplane.md#nftables): `Enabled` is nftables, `Disabled` iptables, `Auto` follows
kube-proxy: nftables where kube-proxy has its table there, or where rules in iptables cannot be: the
programs are lacking, or the kernel refuses xtables or IP sets, though the image has the programs
(RHEL 10).

Invariant:
  BKE-1  Objects of the back end that is not used are removed, and only once what replaces them
         is in force: a change of the mode leaves no moment without rules (felix.dataplane.loop).
Tested in tests/felix/kernel/test_backend_switch.py.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, Protocol, cast

from felix.config.parameters import Config
from felix.dataplane.rules import iptables, nftables
from felix.dataplane.rules.chain_target import ChainTarget, Dispatch, Place
from felix.dataplane.rules.drift import Drift
from felix.dataplane.rules.ipsets import Sets
from felix.rules.model import Action, Chain, TableModel
from felix.rules.nftables import TABLE
from linux import programs
from linux.errors import CommandError, KernelError
from linux.ipset import IPSets, has_ipsets
from linux.iptables import Desired, Table
from linux.netlink.wire import as_text
from linux.nftables.connection import Connection
from linux.nftables.messages import CHAIN_NAME, GETCHAIN, new_table
from linux.xtables import has_match

Family = Literal[4, 6]
NATIVE = "nftables"
_KUBE_PROXY = "kube-proxy"
LOOK_EVERY = 15.0
"""Seconds between two looks at what kube-proxy uses."""
_SET_REVISION = 4
"""The oldest form of the match `set` that our rules need (Linux 3.19)."""
_LEGACY: dict[Family, Path] = {
    4: Path("/proc/net/ip_tables_names"),
    6: Path("/proc/net/ip6_tables_names"),
}
VARIANTS: tuple[Literal["nft", "legacy"], ...] = ("nft", "legacy")

log = logging.getLogger(__name__)


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


def native(config: Config) -> bool:
    """Whether rules belong into nftables. Raises `KernelError` where it cannot be found out."""
    if config.nftables_mode != "Auto":
        return config.nftables_mode == "Enabled"
    families: tuple[Family, ...] = (4, 6)
    with _connected() as connection:
        if connection is None:
            return False
        if any(connection.has_chains(family, _KUBE_PROXY) for family in families):
            return True
    names = ("iptables-nft-restore", "iptables-legacy-restore", "iptables-restore")
    return not any(map(programs.find, names)) or bool(lacking_for_iptables())


@cache
def lacking_for_iptables() -> str:
    """What this kernel lacks for rules in iptables, "" for nothing; looked at once, for a module
    that comes later moves no rules. Raises `KernelError` where it cannot be found out.
    """
    lacks = []
    if not (any(map(_legacy_tables, _LEGACY)) or has_match("set", _SET_REVISION)):
        lacks.append("xtables with the match set (xt_set)")
    if not has_ipsets():
        lacks.append("IP sets (ip_set)")
    lack = " and ".join(lacks)
    if lack:
        log.info("nftablesMode Auto: rules go into nftables, for this kernel has no %s", lack)
    return lack


def _legacy_tables(family: Family) -> list[str]:
    with suppress(OSError):
        return _LEGACY[family].read_text().split()
    return []


class Mode:
    """Which back end is used, and whether it is time for the other one.

    `wanted`: nftables, as of the last look; `used`: what rules are written to since, None before.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.used: bool | None = None
        self._config: Config | None = None
        self._look_at = 0.0
        self._known: tuple[Config, bool, Config] | None = None

    def differs(self, config: Config, now: float) -> bool:
        """Whether tables are to be opened. Looks at once when the parameters are new."""
        if self.used is None or config is not self._config or now >= self._look_at:
            self.wanted = native(config)
            self._config, self._look_at = config, now + LOOK_EVERY
        return self.wanted is not self.used

    def parameters(self, config: Config) -> Config:
        """The parameters as the rules read them: nftables has some of its own."""
        used = bool(self.used)
        if self._known is None or self._known[0] is not config or self._known[1] is not used:
            self._known = (config, used, effective(config, in_nftables=used))
        return self._known[2]


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


def effective(config: Config, *, in_nftables: bool) -> Config:
    """The parameters as the rules read them: in nftables those of nftables stand for iptables'."""
    if not in_nftables:
        return config
    return replace(
        config,
        iptables_refresh_interval=config.nftables_refresh_interval,
        iptables_filter_allow_action=config.nftables_filter_allow_action,
        iptables_mangle_allow_action=config.nftables_mangle_allow_action,
        iptables_filter_deny_action=config.nftables_filter_deny_action,
        iptables_mark_mask=config.nftables_mark_mask,
    )


# -- what another back end left --------------------------------------------------------------------


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


@contextmanager
def _connected() -> Iterator[Connection | None]:
    """A connection to nf_tables; None where the kernel has none, and so nothing of ours."""
    with ExitStack() as stack:
        connection: Connection | None = None
        with suppress(OSError):
            connection = stack.enter_context(Connection())
        yield connection if connection is not None and connection.available() else None


def _remove_tables(failures: dict[str, str]) -> None:
    with _connected() as connection:
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
        there = _legacy_tables(family)
        return [name for name in iptables.NAMES if name in there]
    with _connected() as connection:
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
