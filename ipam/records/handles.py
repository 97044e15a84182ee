"""Handles: what one attachment holds, counted per block.

A handle is a promise to find an address again by its owner. It changes in the very
transaction that changes the block, so that the two cannot disagree (IPAM-5). Calico writes
the handle first and the block later, and so may leave counts that overstate; such counts
are accepted here and never trusted as a reason to keep an address. Counts that understate,
after an edit by hand say, are no reason to forget one either.
Tested in tests/ipam/test_blocks.py.
"""

from __future__ import annotations

import logging
from ipaddress import ip_network

from libcalico.model import Handle
from libcalico.model.keys import BlockKey

log = logging.getLogger(__name__)


def block_keys(handle: Handle | None) -> list[BlockKey]:
    """The blocks in which a handle holds addresses; what names none is logged and left out."""
    keys: list[BlockKey] = []
    for text in (handle.block or {}) if handle else {}:
        try:
            keys.append(BlockKey(ip_network(text, strict=False)))
        except ValueError:
            log.error("a handle names the block %r, which is no network", text)
    return keys


def add(handle: Handle | None, cidr: str, count: int) -> Handle:
    """The handle with `count` more addresses in block `cidr`; a new one if there is none."""
    counts = dict(handle.block or {}) if handle else {}
    counts[cidr] = counts.get(cidr, 0) + count
    return Handle(block=counts)


def fewer(handle: Handle | None, cidr: str, freed: int, staying: int) -> int:
    """By how much the handle counts less when `freed` of its addresses in block `cidr` go.

    It may count too few. Then those that are `staying` there must be found by it all the same.
    """
    counted = (handle.block or {}).get(cidr, 0) if handle else 0
    return max(0, min(freed, counted - staying))


def subtract(handle: Handle, cidr: str, count: int) -> Handle | None:
    """The handle with `count` fewer addresses in block `cidr`; None when it holds nothing."""
    counts = dict(handle.block or {})
    left = counts.get(cidr, 0) - count
    if left > 0:
        counts[cidr] = left
    else:
        counts.pop(cidr, None)
    return Handle(block=counts) if counts else None
