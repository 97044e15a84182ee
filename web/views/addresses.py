"""View 4, addresses: each pool as a grid of its blocks, by use and node, problems outlined.

Tested in tests/web/test_addresses.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network

from ipam.admin.findings import Finding
from ipam.admin.usage import ORPHANS, BlockUsage, PoolUsage, summarize
from libcalico.model.keys import IPNetwork
from web.facts.facts import Facts
from web.views.state import counted

FILLS = "·▁▂▃▄▅▆▇█"
"""Use in eighths as a sign; the last one is full."""
HUES = 12
"""Colours that nodes share; the owner's name stands in each block's text as well."""


@dataclass(frozen=True, slots=True)
class BlockCell:
    """One block. `fill` is a sign of FILLS, `hue` 0 to HUES - 1 (-1: no owner)."""

    cidr: str
    owner: str
    used: int
    reserved: int
    capacity: int
    fill: str
    hue: int
    problems: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it in words."""
        owner = self.owner or "no owner"
        words = f"{self.cidr}, {owner}: {self.used} of {self.capacity} used"
        if self.reserved:
            words += f", {self.reserved} reserved"
        if self.problems:
            words += f"; {counted(len(self.problems), 'problem')}: {self.problems[0]}"
        return words


@dataclass(frozen=True, slots=True)
class PoolGrid:
    """One pool. `unclaimed`: blocks that it has room for and no node owns; `settings` in words."""

    name: str
    cidr: str
    used: int
    free: int
    capacity: int
    unclaimed: int
    settings: str
    blocks: tuple[BlockCell, ...]
    problems: tuple[str, ...]

    @property
    def share(self) -> str:
        """`37 %`."""
        return f"{self.used / self.capacity:.0%}".replace("%", " %") if self.capacity else "0 %"


@dataclass(frozen=True, slots=True)
class AddressRow:
    """One allocation of a block."""

    address: str
    node: str
    users: str
    state: str
    handle: str


@dataclass(frozen=True, slots=True)
class BlockView:
    """A block looked at."""

    cell: BlockCell
    rows: tuple[AddressRow, ...]


def pools(facts: Facts) -> list[PoolGrid]:
    """Every pool; blocks outside all pools come last, under a heading of their own."""
    snapshot = facts.snapshot
    by_block = _problems(facts)
    usages = summarize(snapshot.pools, snapshot.blocks, snapshot.reservations)
    return [_grid(usage, by_block, facts) for usage in usages]


def block_view(facts: Facts, grids: Iterable[PoolGrid], text: str) -> BlockView | None:
    """The block of `pools` with this CIDR, or the one that holds this address; None where there is
    none.
    """
    try:
        requested = ip_network(text)
    except ValueError:
        return None
    for grid in grids:
        for cell in grid.blocks:
            cidr = ip_network(cell.cidr)
            if cidr.version == requested.version and requested.subnet_of(cidr):  # type: ignore[arg-type]
                return BlockView(cell, tuple(_rows(facts, cidr)))
    return None


def other_problems(facts: Facts) -> list[tuple[str, str]]:
    """Problems that lie in no block: handles, affinities, addresses of no block."""
    inside = {text for texts in _problems(facts).values() for text in texts}
    reported = ((one.subject, _text(one)) for one in facts.report.problems)
    return [(subject, text) for subject, text in reported if text not in inside]


def _grid(usage: PoolUsage, by_block: Mapping[str, list[str]], facts: Facts) -> PoolGrid:
    cells = tuple(_cell(block, by_block) for block in usage.blocks)
    pool = next((one for one in facts.snapshot.pools if one.name == usage.name), None)
    unclaimed = 0
    settings = "blocks that lie in no pool"
    if pool is not None:
        room = 1 << max(0, pool.block_size - pool.cidr.prefixlen)
        unclaimed = max(0, room - len(cells))
        settings = f"blocks of /{pool.block_size}" + (", disabled" if pool.disabled else "")
    return PoolGrid(
        usage.name,
        "" if usage.name == ORPHANS else str(usage.cidr),
        usage.in_use,
        usage.free,
        usage.capacity,
        unclaimed,
        settings,
        cells,
        tuple(text for cell in cells for text in cell.problems),
    )


def _cell(block: BlockUsage, by_block: Mapping[str, list[str]]) -> BlockCell:
    eighths = len(FILLS) - 1
    used = min(eighths, -(-block.in_use * eighths // block.capacity)) if block.capacity else 0
    if used == eighths and block.in_use < block.capacity:
        used = eighths - 1
    owner = block.owner
    return BlockCell(
        str(block.cidr),
        owner,
        block.in_use,
        block.reserved,
        block.capacity,
        FILLS[used],
        zlib.crc32(owner.encode()) % HUES if owner else -1,
        tuple(by_block.get(str(block.cidr), ())),
    )


def _problems(facts: Facts) -> dict[str, list[str]]:
    """The problems of each block, of its addresses too."""
    networks: list[IPNetwork] = [ip_network(block.cidr) for block in facts.snapshot.blocks]
    by_length: dict[tuple[int, int], set[int]] = {}
    for network in networks:
        length = (network.version, network.prefixlen)
        by_length.setdefault(length, set()).add(int(network.network_address))
    result: dict[str, list[str]] = {}
    for one in facts.report.problems:
        home = _home(one.subject, by_length)
        if home:
            result.setdefault(home, []).append(_text(one))
    return result


def _home(subject: str, by_length: Mapping[tuple[int, int], set[int]]) -> str:
    """The CIDR of the block that a finding is about; empty where it is about none."""
    try:
        network = ip_network(subject)
    except ValueError:
        return ""
    number, width = int(network.network_address), network.max_prefixlen
    for (version, length), starts in by_length.items():
        if version != network.version or length > network.prefixlen:
            continue
        start = number >> (width - length) << (width - length)
        if start in starts:
            address = IPv4Address(start) if version == 4 else IPv6Address(start)
            return f"{address}/{length}"
    return ""


def _text(one: Finding) -> str:
    return f"{one.subject} {one.text} ({one.kind.value})"


def _rows(facts: Facts, cidr: IPNetwork) -> Iterable[AddressRow]:
    for record in facts.report.records:
        if record.block != cidr:
            continue
        state = "in use"
        if record.cooling:
            state = "cools down"
        elif not record.in_use:
            state = "LEAKED: allocated, and nothing uses it"
        if record.borrowed:
            state += ", borrowed"
        users = ", ".join(record.owners)
        yield AddressRow(str(record.address), record.node, users, state, record.handle_id)
