"""The pools of a cluster, judged by how full they are. Pure.

Tested in `tests/calicoctl/test_status_judge.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_network

from calicoctl.status.values import Grade, PoolState
from ipam.admin.usage import ORPHANS, summarize
from ipam.records import blocks
from ipam.records.pools import Pool
from libcalico.model import Block
from libcalico.model.keys import IPNetwork

NEARLY_FULL = 0.9
"""The part in use from which on a pool is worth a word."""


def judged(
    pools: Sequence[Pool], stored: Sequence[Block], reserved: Iterable[IPNetwork]
) -> tuple[PoolState, ...]:
    """Every pool, the fullest of the worst first."""
    kept_back = tuple(reserved)
    counted = _exactly(pools, stored, kept_back) if kept_back else _quickly(pools, stored)
    return tuple(sorted(counted, key=lambda one: (-one.grade, -one.share, one.name)))


def _exactly(
    pools: Sequence[Pool], stored: Sequence[Block], reserved: tuple[IPNetwork, ...]
) -> list[PoolState]:
    # Reserved addresses may be in use, too: whether they are is looked up one by one.
    by_name = {pool.name: pool for pool in pools}
    return [
        _state(by_name[one.name], one.in_use, one.free, len(one.blocks))
        for one in summarize(pools, stored, reserved)
        if one.name != ORPHANS
    ]


def _quickly(pools: Sequence[Pool], stored: Sequence[Block]) -> list[PoolState]:
    ordered = sorted(pools, key=lambda pool: -pool.cidr.prefixlen)
    used = dict.fromkeys((pool.name for pool in pools), 0)
    block_count = dict(used)
    for block in stored:
        cidr = ip_network(block.cidr)
        home = next((pool for pool in ordered if _inside(cidr, pool.cidr)), None)
        if home is not None:
            used[home.name] += blocks.used_count(block)
            block_count[home.name] += 1
    return [
        _state(
            pool, used[pool.name], blocks.size(pool.cidr) - used[pool.name], block_count[pool.name]
        )
        for pool in pools
    ]


def _inside(cidr: IPNetwork, pool: IPNetwork) -> bool:
    if cidr.version != pool.version or cidr.prefixlen < pool.prefixlen:
        return False
    return cidr.network_address in pool


def _state(pool: Pool, in_use: int, free: int, block_count: int) -> PoolState:
    capacity = blocks.size(pool.cidr)
    grade, why = Grade.FINE, ""
    if pool.disabled:
        why = "disabled: it gives no new address"
    elif free <= 0:
        grade, why = Grade.BAD, "no address is free"
    elif in_use >= NEARLY_FULL * capacity:
        grade, why = Grade.WARNING, f"only {free} addresses are free"
    return PoolState(
        pool.name, str(pool.cidr), grade, why, capacity, in_use, free, block_count, pool.disabled
    )
